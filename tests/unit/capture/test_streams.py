"""Six ways in which a stream ends, each ending its step exactly once, sync and async."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry import context

from amfs_otel import api, capture
from amfs_otel.capture.streams import (
    StreamWatch,
    WatchedAsyncIterator,
    WatchedIterator,
    end_all,
    watched_async_generator,
    watched_generator,
)
from amfs_otel.model import EventClosed, Kind, Message
from tests.support.capturing import Bench, ListSink, capturing, resolved


class Watched:
    """A stream of three chunks under watch; `fails` is raised after the second."""

    def __init__(self, bench: Bench, fails: BaseException | None = None) -> None:
        fields = {"operation": "chat", "provider": "openai", "model": "m", "stream": True}
        step = capture.begin(Kind.LLM_CALL, "openai", fields)
        assert step is not None
        self.bench, self.fails, self.kept, self.watch = bench, fails, [], None
        watch = StreamWatch(step, self.kept.append, lambda: {"output_tokens": len(self.kept)}, bench.capture.metrics)
        self.sync = WatchedIterator(self.chunks(), watch)
        self.asynchronous = WatchedAsyncIterator(self.achunks(), watch)

    def chunks(self) -> Iterator[int]:
        yield 1
        yield 2
        if self.fails is not None:
            raise self.fails
        yield 3

    async def achunks(self) -> AsyncIterator[int]:
        for chunk in self.chunks():
            await asyncio.sleep(0)
            yield chunk


def end_of(bench: Bench) -> dict[str, Any]:
    """The one event's facts, and that its span ended once."""
    (made,) = bench.traces()
    (event,) = made.facts["events"]
    assert [span.name for span in bench.spans()].count("chat m") == 1
    return event


@pytest.fixture
def bench() -> Iterator[Bench]:
    with capturing() as made:
        yield made


def test_complete(bench: Bench) -> None:
    assert list(Watched(bench).sync) == [1, 2, 3]
    event = end_of(bench)
    assert (event["stream_exit"], event["chunks"], event["output_tokens"]) == ("complete", 3, 3)
    assert event["status"] == "ok"
    assert event["time_to_first_chunk_ms"] >= 0


async def test_complete_async(bench: Bench) -> None:
    assert [chunk async for chunk in Watched(bench).asynchronous] == [1, 2, 3]
    assert end_of(bench)["stream_exit"] == "complete"


def test_next_by_next_and_then_a_loop_is_one_stream(bench: Bench) -> None:
    stream = Watched(bench).sync
    assert next(stream) == 1
    for chunk in stream:
        assert chunk == 2
        break
    assert list(stream) == [3]
    assert (end_of(bench)["stream_exit"], end_of(bench)["chunks"]) == ("complete", 3)


async def test_next_by_next_and_then_loops_is_one_stream_async(bench: Bench) -> None:
    stream = Watched(bench).asynchronous
    assert await anext(stream) == 1
    async with aclosing(aiter(stream)) as loop:
        async for chunk in loop:
            assert chunk == 2
            break
    assert [chunk async for chunk in stream] == [3]
    assert (end_of(bench)["stream_exit"], end_of(bench)["chunks"]) == ("complete", 3)


def test_a_chunk_read_inside_a_loop_counts_once(bench: Bench) -> None:
    stream = Watched(bench).sync
    assert [(chunk, next(stream, None)) for chunk in stream] == [(1, 2), (3, None)]
    assert end_of(bench)["chunks"] == 3


def test_closed_early(bench: Bench) -> None:
    watched = Watched(bench)
    assert next(watched.sync) == 1
    watched.sync.close()
    event = end_of(bench)
    assert (event["stream_exit"], event["chunks"], event["status"]) == ("closed_early", 1, "ok")


async def test_closed_early_async(bench: Bench) -> None:
    async with aclosing(Watched(bench).asynchronous) as stream:
        async for _ in stream:
            break
    assert end_of(bench)["stream_exit"] == "closed_early"


@pytest.mark.parametrize("started", [False, True])
def test_abandoned(bench: Bench, started: bool) -> None:
    watched = Watched(bench)
    if started:
        next(watched.sync)
    del watched
    gc.collect()
    assert end_of(bench)["stream_exit"] == "abandoned"


async def test_abandoned_async(bench: Bench) -> None:
    watched = Watched(bench)
    assert await anext(watched.asynchronous) == 1
    del watched
    gc.collect()
    assert end_of(bench)["stream_exit"] == "abandoned"


def test_an_error_passes_through_and_ends_the_step(bench: Bench) -> None:
    error = ConnectionError("message-canary")
    with pytest.raises(ConnectionError) as raised:
        list(Watched(bench, error).sync)
    assert raised.value is error
    event = end_of(bench)
    assert (event["stream_exit"], event["status"], event["error_type"]) == ("error", "error", "ConnectionError")
    assert event["chunks"] == 2


async def test_an_error_async(bench: Bench) -> None:
    with pytest.raises(ConnectionError):
        _ = [chunk async for chunk in Watched(bench, ConnectionError()).asynchronous]
    assert end_of(bench)["stream_exit"] == "error"


async def test_cancelled(bench: Bench) -> None:
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in WatchedAsyncIterator(never(), watch):
            reading.set()

    async def never() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    step = capture.begin(Kind.LLM_CALL, "openai", {"operation": "chat", "provider": "openai", "model": "m"})
    assert step is not None
    watch = StreamWatch(step, lambda _: None, dict)
    task = asyncio.create_task(read())
    await reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    event = end_of(bench)
    assert event["stream_exit"] == "cancelled"
    assert event["error_type"].endswith("CancelledError")


def test_interpreter_exit(bench: Bench) -> None:
    watched = Watched(bench)
    next(watched.sync)
    end_all()
    assert end_of(bench)["stream_exit"] == "interpreter_exit"
    assert list(watched.sync) == [2, 3], "the stream itself goes on"
    assert end_of(bench)["stream_exit"] == "interpreter_exit"


def test_a_fold_that_fails_costs_no_chunk(bench: Bench) -> None:
    watched = Watched(bench)

    def fold(_chunk: int) -> None:
        raise KeyError("content")

    watched.sync._watch.fold = fold
    assert list(watched.sync) == [1, 2, 3]
    assert end_of(bench)["chunks"] == 3


async def test_no_context_is_held_between_chunks(bench: Bench) -> None:
    before = context.get_current()
    stream = Watched(bench).asynchronous
    async for _ in stream:
        assert context.get_current() == before
    assert context.get_current() == before


def test_gaps_between_chunks_are_measured(bench: Bench) -> None:
    list(Watched(bench).sync)
    data = bench.reader.get_metrics_data()
    assert data is not None
    counts = {
        metric.name: point.count
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if hasattr(point, "count")
    }
    assert counts["gen_ai.client.inference.time_per_output_chunk"] == 2


COLLECTED_UNDER_OUR_LOCK = """
import gc, threading
from tests.support.capturing import capturing
from tests.unit.capture.test_streams import Watched
with capturing() as bench:
    watched = Watched(bench)
    next(watched.sync)
    cycle = [watched.sync]
    cycle.append(cycle)
    del watched, cycle
    held, go = threading.Event(), threading.Event()
    def hold():
        with bench.capture.windows.lock:
            held.set()
            go.wait(20)
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    threading.Timer(0.2, go.set).start()
    gc.collect()
    go.set()
    (made,) = bench.traces()
    print(made.facts["events"][0]["stream_exit"])
"""


def test_a_stream_collected_while_another_thread_holds_our_lock_ends_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTED_UNDER_OUR_LOCK], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("abandoned", "")


class Collecting(ListSink):
    """Runs the collector where it is told that an event has ended: our lock is held there."""

    def put(self, message: Message) -> None:
        super().put(message)
        if isinstance(message, EventClosed):
            gc.collect()


def test_a_stream_collected_while_we_hold_our_lock_ends_in_its_session(bench: Bench) -> None:
    gc.collect()
    with api.session("agent"):
        watched = Watched(bench)
        next(watched.sync)
        cycle: list[Any] = [watched.sync]
        cycle.append(cycle)
        del watched, cycle
        bench.capture.windows._sink = Collecting(bench.sink.messages)
        api.record_context("label", "summary")
    (made,) = bench.traces()
    facts = resolved(made)
    assert (facts["closed_by"], facts["status"]) == ("session_end", "complete")
    assert facts["events"][0]["stream_exit"] == "abandoned"


class TestGenerators:
    """Streams of libraries that give plain generators."""

    def watched(self, bench: Bench, closed: list[str]) -> Any:
        def chunks() -> Iterator[int]:
            try:
                yield from (1, 2, 3)
            finally:
                closed.append("inner")

        return watched_generator(chunks(), self.watch(bench))

    def watched_async(self, bench: Bench, closed: list[str]) -> Any:
        async def chunks() -> AsyncIterator[int]:
            try:
                for number in (1, 2, 3):
                    yield number
            finally:
                closed.append("inner")

        return watched_async_generator(chunks(), self.watch(bench))

    @staticmethod
    def watch(bench: Bench) -> StreamWatch:
        step = capture.begin(Kind.LLM_CALL, "openai", {"operation": "chat", "provider": "openai", "model": "m"})
        assert step is not None
        return StreamWatch(step, lambda _chunk: None, dict, bench.capture.metrics)

    def test_read_to_the_end(self, bench: Bench) -> None:
        closed: list[str] = []
        assert (list(self.watched(bench, closed)), closed) == ([1, 2, 3], ["inner"])
        assert end_of(bench)["stream_exit"] == "complete"

    async def test_read_to_the_end_async(self, bench: Bench) -> None:
        closed: list[str] = []
        assert ([chunk async for chunk in self.watched_async(bench, closed)], closed) == ([1, 2, 3], ["inner"])
        assert end_of(bench)["stream_exit"] == "complete"

    def test_closed(self, bench: Bench) -> None:
        closed: list[str] = []
        stream = self.watched(bench, closed)
        assert next(stream) == 1
        stream.close()
        assert (closed, end_of(bench)["stream_exit"]) == (["inner"], "closed_early")

    async def test_closed_async(self, bench: Bench) -> None:
        closed: list[str] = []
        async with aclosing(self.watched_async(bench, closed)) as stream:
            assert await anext(stream) == 1
        assert (closed, end_of(bench)["stream_exit"]) == (["inner"], "closed_early")

    def test_collected_and_never_begun(self, bench: Bench) -> None:
        for exit_, reads in (("closed_early", 1), ("abandoned", 0)):
            bench.sink.messages.clear()
            closed: list[str] = []
            stream = self.watched(bench, closed)
            assert [next(stream) for _ in range(reads)] == [1] * reads
            del stream
            gc.collect()
            (ended,) = [message.event for message in bench.sink.messages if isinstance(message, EventClosed)]
            assert ended.result is not None
            assert ended.result["stream_exit"] == exit_
            assert closed == ["inner"] * reads

    def test_an_error_passes_through(self, bench: Bench) -> None:
        def fails() -> Iterator[int]:
            yield 1
            raise ValueError("the library's own")

        stream = watched_generator(fails(), self.watch(bench))
        with pytest.raises(ValueError, match="library's own"):
            list(stream)
        assert end_of(bench)["stream_exit"] == "error"
