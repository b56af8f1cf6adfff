"""The openai patch and streams: six exits, partial texts, one span each, and nothing left behind in the context."""

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from threading import Event
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from opentelemetry import trace

from amfs_otel import instrumentor
from amfs_otel.capture import streams
from amfs_otel.capture.streams import StreamWatch
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Reply
from tests.instrumentation.openai_calls import (
    VERSION,
    aask,
    ask,
    breaches,
    lacking,
    model_events,
    model_spans,
    only_event,
)
from tests.instrumentation.recording import Captured

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def quiet_context(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is ever logged by OpenTelemetry's context, and no span of ours stays current."""
    with caplog.at_level(logging.DEBUG, "opentelemetry"):
        yield
    assert [record for record in caplog.records if record.name.startswith("opentelemetry.context")] == []
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[OpenAI]:
    instrumentor.instrument(["openai"])
    with OpenAI(base_url=model_server.base_url, api_key="test", max_retries=0) as made:
        yield made


@pytest.fixture
def aclient(captured: Captured, model_server: ModelServer) -> AsyncOpenAI:
    instrumentor.instrument(["openai"])
    return AsyncOpenAI(base_url=model_server.base_url, api_key="test", max_retries=0)


def text_of(event: dict[str, Any]) -> str:
    return event["output_messages"][0]["parts"][0]["content"]


def test_a_stream_keeps_its_type_and_identity(captured: Captured, client: OpenAI) -> None:
    stream = ask(client, stream=True)
    assert stream.__class__ is openai.Stream
    assert stream.response.headers["x-request-id"] == "req_demo000001"
    assert next(stream).choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in stream][:3] == ["You", " said:", " hello"]
    assert list(stream) == []
    event = only_event(captured)
    assert (event["stream_exit"], event["chunks"], text_of(event)) == ("complete", 5, "You said: hello")
    assert event["time_to_first_chunk_ms"] > 0
    assert breaches(captured) == []


def test_a_loop_may_be_left_and_taken_up_again(captured: Captured, client: OpenAI) -> None:
    stream = ask(client, stream=True)
    for _ in stream:
        break
    assert model_spans(captured) == []
    assert len(list(stream)) == 4
    assert only_event(captured)["stream_exit"] == "complete"


@pytest.mark.parametrize("how", ["with and break", "close", "response.close", "error in the loop"])
def test_closed_early_keeps_what_came(captured: Captured, client: OpenAI, how: str) -> None:
    stream = ask(client, "slow", stream=True)
    if how in ("with and break", "error in the loop"):
        assert hasattr(stream, "__enter__") == (VERSION >= (1, 8))
    if how == "close":
        assert hasattr(stream, "close") == (VERSION >= (1, 8))
    if how != "response.close" and VERSION < (1, 8):
        lacking("close and `with` of a stream")
    iterator = iter(stream)
    for _ in range(3):
        next(iterator)
    if how == "with and break":
        with stream:
            pass
    elif how == "close":
        stream.close()
    elif how == "response.close":
        stream.response.close()
    else:
        with pytest.raises(KeyError, match="mine"), stream:
            raise KeyError("mine")
    (span,) = model_spans(captured)
    assert span.attributes["amfs.stream.exit"] == "closed_early"
    assert stream.response.is_closed
    stream.response.close()
    event = only_event(captured)
    assert (event["stream_exit"], event["chunks"], text_of(event)) == ("closed_early", 3, "one two")
    assert event["response_id"] == "chatcmpl-demo000001"
    assert event["status"] == "ok"


@pytest.mark.parametrize("reading", [True, False])
def test_dropped_streams_are_abandoned(captured: Captured, client: OpenAI, reading: bool) -> None:
    stream = ask(client, stream=True)
    if reading:
        for _ in stream:
            break
    del stream
    gc.collect()
    (span,) = model_spans(captured)
    assert span.attributes["amfs.stream.exit"] == "abandoned"
    assert only_event(captured)["stream_exit"] == "abandoned"


def test_a_stream_collected_where_locks_may_be_held_ends_with_the_next_event(
    captured: Captured, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(_frame: object) -> bool:
        return True

    monkeypatch.setattr("amfs_otel.capture.streams._may_hold_a_lock", held)
    stream = ask(client, stream=True)
    del stream
    gc.collect()
    assert model_spans(captured) == []
    ask(client)
    assert sorted(event.get("stream_exit", "") for event in model_events(captured)) == ["", "abandoned"]


def test_a_connection_that_breaks_is_an_error_with_partial_text(captured: Captured, client: OpenAI) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  the type differs between the SDK's versions
        list(ask(client, "cut", stream=True))
    event = only_event(captured)
    assert (event["stream_exit"], event["status"], text_of(event)) == ("error", "error", "one two")
    assert event["error_type"] == f"{type(caught.value).__module__}.{type(caught.value).__qualname__}"
    assert breaches(captured) == []


def test_an_error_in_mid_stream_is_the_providers(captured: Captured, client: OpenAI) -> None:
    with pytest.raises(openai.APIError):
        list(ask(client, "error-mid-stream", stream=True))
    event = only_event(captured)
    assert (event["stream_exit"], event["error_type"]) == ("error", "openai.APIError")


def test_tool_call_fragments_are_joined_as_far_as_they_came(captured: Captured, client: OpenAI) -> None:
    stream = ask(client, "tools", stream=True)
    for _ in range(4):
        next(stream)
    stream.response.close()
    list(ask(client, "tools", stream=True))
    cut, whole = model_events(captured)
    assert cut["requested_tools"] == whole["requested_tools"]
    assert cut["output_messages"][0]["parts"][0]["arguments"] == '{"order_id": "4821'
    assert whole["output_messages"][0]["parts"][0]["arguments"] == {"order_id": "48213", "with_history": True}


def test_several_choices_are_told_apart(captured: Captured, client: OpenAI) -> None:
    list(ask(client, stream=True, n=2))
    event = only_event(captured)
    assert event["finish_reasons"] == ["stop", "stop"]
    assert [message["parts"][0]["content"] for message in event["output_messages"]] == ["You said: hello"] * 2


def test_an_async_stream_keeps_its_type_and_may_be_read_in_another_task(
    captured: Captured, aclient: AsyncOpenAI
) -> None:
    async def read() -> None:
        async with aclient:
            stream = await aask(aclient, stream=True)
            assert stream.__class__ is openai.AsyncStream

            async def all_of_it() -> list[Any]:
                return [chunk async for chunk in stream]

            assert len(await asyncio.create_task(all_of_it())) == 5

    asyncio.run(read())
    event = only_event(captured)
    assert (event["stream_exit"], text_of(event)) == ("complete", "You said: hello")


def test_async_streams_closed_or_dropped(captured: Captured, aclient: AsyncOpenAI) -> None:
    async def leave() -> None:
        async with aclient:
            closed = await aask(aclient, "slow", stream=True)
            await closed.__anext__()
            await closed.response.aclose()
            dropped = await aask(aclient, stream=True)
            async for _ in dropped:
                break
            del dropped
            unread = await aask(aclient, stream=True)
            del unread
            await asyncio.sleep(0)
            gc.collect()
            await asyncio.sleep(0)

    asyncio.run(leave())
    gc.collect()
    assert [event["stream_exit"] for event in model_events(captured)] == ["closed_early", "abandoned", "abandoned"]
    assert len(model_spans(captured)) == 3


@pytest.mark.parametrize("scenario", ["hang", "plain call"])
def test_a_cancelled_task_ends_the_span(
    captured: Captured,
    aclient: AsyncOpenAI,
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    scenario: str,
) -> None:
    asked, answer = Event(), Event()

    def held(request: Any) -> Reply:
        asked.set()
        answer.wait(20)
        return Reply(text="too late")

    if scenario == "plain call":
        monkeypatch.setattr(model_server, "reply_to", held)

    async def read() -> None:
        if scenario == "plain call":
            await aask(aclient, "slow")
        async for _ in await aask(aclient, "hang", stream=True):
            asked.set()

    async def cancel() -> None:
        task = asyncio.create_task(read())
        await asyncio.to_thread(asked.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    answer.set()
    event = only_event(captured)
    assert (event["status"], event["error_type"]) == ("error", "asyncio.exceptions.CancelledError")
    assert event.get("stream_exit") == ("cancelled" if scenario == "hang" else None)
    assert len(model_spans(captured)) == 1


def test_an_async_generator_may_be_left_by_return(captured: Captured, aclient: AsyncOpenAI) -> None:
    async def words() -> AsyncIterator[str]:
        async for chunk in await aask(aclient, stream=True):
            yield chunk.choices[0].delta.content or ""

    async def first() -> str:
        async for word in words():
            return word
        return "nothing"

    async def leave() -> None:
        async with aclient:
            assert await first() == ""
            assert not trace.get_current_span().get_span_context().is_valid
            await asyncio.sleep(0)
            gc.collect()

    asyncio.run(leave())
    gc.collect()
    # Where httpx2 loses its own race between closing and collecting, the logged traceback keeps the stream alive.
    streams.end_all()
    assert only_event(captured)["stream_exit"] in ("abandoned", "closed_early", "interpreter_exit")


def test_a_timeout_inside_an_async_generator_still_fires(captured: Captured, aclient: AsyncOpenAI) -> None:
    async def chunks() -> AsyncIterator[Any]:
        async with asyncio.timeout(0.2):
            async for chunk in await aask(aclient, "hang", stream=True):
                yield chunk

    async def read() -> None:
        with pytest.raises(TimeoutError):
            async for _ in chunks():
                pass

    asyncio.run(read())
    assert only_event(captured)["stream_exit"] == "cancelled"


def test_a_coroutine_that_never_runs_is_no_call(
    captured: Captured, aclient: AsyncOpenAI, recwarn: pytest.WarningsRecorder
) -> None:
    create: Any = aclient.chat.completions.create
    pending = create(model="gpt-4o-mini", messages=[])
    assert asyncio.iscoroutine(pending)
    assert pending.__qualname__ == "AsyncCompletions.create"
    pending.close()
    del pending
    gc.collect()
    assert [str(warning.message) for warning in recwarn if "never awaited" in str(warning.message)] == []
    assert captured.close() == []


def test_a_stream_that_is_open_at_exit_ends(model_server: ModelServer) -> None:
    program = f"""
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda s: str(dict(s.attributes)) + chr(10))))
trace.set_tracer_provider(provider)
import amfs_otel
amfs_otel.instrument("openai")
import openai
client = openai.OpenAI(base_url={model_server.base_url!r}, api_key="k")
stream = client.chat.completions.create(model="gpt-4o-mini+hang", messages=[{{"role": "user", "content": "x"}}], stream=True)
next(stream)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=True)
    exits = [line for line in done.stdout.splitlines() if "'gen_ai.operation.name': 'chat'" in line]
    assert len(exits) == 1
    assert "'amfs.stream.exit': 'interpreter_exit'" in exits[0]


def test_a_broken_fold_never_reaches_the_reader(
    captured: Captured, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: StreamWatch) -> None:
        raise RuntimeError("fold")

    monkeypatch.setattr("amfs_otel_instrumentation.openai.ChatFold.fold", broken)
    assert len(list(ask(client, stream=True))) == 5
    assert only_event(captured)["stream_exit"] == "complete"
