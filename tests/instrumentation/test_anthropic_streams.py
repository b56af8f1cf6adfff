"""The anthropic patch and streams: six exits, partial texts, one span each, and nothing left behind in the context."""

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from threading import Event
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from opentelemetry import trace

from amfs_otel import instrumentor
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Reply
from amfs_otel_instrumentation._anthropic_folds import MessageFold
from tests.instrumentation.anthropic_calls import (
    EVERYTHING,
    aask,
    ask,
    breaches,
    model_events,
    model_spans,
    only_event,
    request,
    text_of,
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
def client(captured: Captured, model_server: ModelServer) -> Iterator[Anthropic]:
    instrumentor.instrument(["anthropic"])
    with Anthropic(base_url=model_server.origin, api_key="test", max_retries=0) as made:
        yield made


@pytest.fixture
def aclient(captured: Captured, model_server: ModelServer) -> AsyncAnthropic:
    instrumentor.instrument(["anthropic"])
    return AsyncAnthropic(base_url=model_server.origin, api_key="test", max_retries=0)


def test_a_stream_keeps_its_type_and_identity(captured: Captured, client: Anthropic) -> None:
    stream = ask(client, stream=True)
    assert stream.__class__ is anthropic.Stream
    assert stream.response.headers["request-id"] == "req_demo000001"
    kinds = [next(stream).type, *(event.type for event in stream)]
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert list(stream) == []
    event = only_event(captured)
    assert (event["stream_exit"], event["chunks"], text_of(event)) == ("complete", 8, "You said: hello")
    assert event["time_to_first_chunk_ms"] > 0
    assert breaches(captured) == []


def test_the_helpers_streams_give_what_they_give_without_us(captured: Captured, client: Anthropic) -> None:
    with client.messages.stream(**request()) as stream:
        assert "".join(stream.text_stream) == "You said: hello"
        assert stream.get_final_message().usage.output_tokens == 58
    with client.messages.stream(**request()) as stream:
        stream.until_done()
        assert stream.current_message_snapshot.id == "msg_demo000002"
    with client.messages.stream(**request()) as stream:
        for text in stream.text_stream:
            assert text == "You"
            break
    with client.messages.stream(**request()):
        pass
    manager = client.messages.stream(**request())
    del manager
    events = model_events(captured)
    assert [event["stream_exit"] for event in events] == ["complete", "complete", "closed_early", "closed_early"]
    assert text_of(events[2]) == "You"
    assert len(model_spans(captured)) == 4


def test_a_loop_may_be_left_and_taken_up_again(captured: Captured, client: Anthropic) -> None:
    stream = ask(client, stream=True)
    for _ in stream:
        break
    assert model_spans(captured) == []
    assert len(list(stream)) == 7
    assert only_event(captured)["stream_exit"] == "complete"


@pytest.mark.parametrize("how", ["with and break", "close", "response.close", "error in the loop"])
def test_closed_early_keeps_what_came(captured: Captured, client: Anthropic, how: str) -> None:
    stream = ask(client, "slow", stream=True)
    iterator = iter(stream)
    for _ in range(4):
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
    stream.close()
    event = only_event(captured)
    assert (event["stream_exit"], event["chunks"], text_of(event)) == ("closed_early", 4, "one two")
    assert (event["response_id"], event["input_tokens"], event["status"]) == ("msg_demo000001", 143, "ok")
    assert "output_tokens" not in event, "the first event's count is a placeholder"


@pytest.mark.parametrize("reading", [True, False])
def test_dropped_streams_are_abandoned(captured: Captured, client: Anthropic, reading: bool) -> None:
    stream = ask(client, stream=True)
    if reading:
        for _ in stream:
            break
    del stream
    gc.collect()
    (span,) = model_spans(captured)
    assert span.attributes["amfs.stream.exit"] == "abandoned"
    assert only_event(captured)["stream_exit"] == "abandoned"


def test_a_connection_that_breaks_is_an_error_with_partial_text(captured: Captured, client: Anthropic) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  the type differs between the SDK's versions
        list(ask(client, "cut", stream=True))
    event = only_event(captured)
    assert (event["stream_exit"], event["status"]) == ("error", "error")
    assert event["error_type"] == f"{type(caught.value).__module__}.{type(caught.value).__qualname__}"
    assert breaches(captured) == []


def test_an_error_in_mid_stream_is_the_providers(captured: Captured, client: Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError, match="Overloaded") as caught:
        list(ask(client, "error-mid-stream", stream=True))
    event = only_event(captured)
    assert (event["stream_exit"], event["error_type"]) == ("error", f"anthropic.{type(caught.value).__name__}")


def test_fragments_are_joined_as_far_as_they_came(
    captured: Captured, client: Anthropic, model_server: ModelServer
) -> None:
    model_server.queue(EVERYTHING, EVERYTHING)
    stream = ask(client, stream=True)
    for event in stream:
        if getattr(getattr(event, "delta", None), "partial_json", None):
            break
    stream.close()
    list(ask(client, stream=True))
    cut, whole = model_events(captured)
    assert cut["requested_tools"] == whole["requested_tools"]
    assert cut["output_messages"][0]["parts"][2]["arguments"] == '{"order_i'
    assert whole["output_messages"][0]["parts"][2]["arguments"] == {"order_id": "48213", "with_history": True}


def folded(*events: dict[str, Any]) -> dict[str, Any]:
    fold = MessageFold()
    for event in events:
        fold.fold(event)
    return fold.result()


def started(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "m", "model": "c", "usage": usage}}


def ended(**usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage or None}


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({"input_tokens": 10, "output_tokens": 1}, {"output_tokens": 7}, (10, None, None, 7, None)),
        (
            {
                "input_tokens": 10,
                "cache_read_input_tokens": 512,
                "cache_creation_input_tokens": 100,
                "output_tokens": 1,
            },
            {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}},
            (622, 512, 100, 7, 3),
        ),
        (
            {"input_tokens": 10, "cache_read_input_tokens": 512, "output_tokens": 1},
            {"input_tokens": 11, "cache_read_input_tokens": None, "output_tokens": 7},
            (523, 512, None, 7, None),
        ),
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 25, "output_tokens": 7}, (25, None, None, 7, None)),
        ({}, {"output_tokens": 7}, (None, None, None, 7, None)),
        ({"input_tokens": 10, "output_tokens": 7}, {}, (10, None, None, 7, None)),
        ({"input_tokens": None, "output_tokens": None}, {}, (None, None, None, None, None)),
        ({"input_tokens": "10", "output_tokens": True}, {"output_tokens": -1}, (None, None, None, None, None)),
    ],
)
def test_usage_split_over_frames(first: dict[str, Any], last: dict[str, Any], expected: tuple[Any, ...]) -> None:
    result = folded(started(**first), ended(**last))
    names = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    assert tuple(result[name] for name in names) == expected


def test_events_of_any_shape_fold() -> None:
    odd: list[Any] = [
        None,
        1,
        "x",
        {"type": []},
        {"type": "content_block_start", "index": []},
        {"type": "message_start"},
    ]
    odd += [{"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "a"}}]
    odd += [{"type": "content_block_delta", "index": 0, "delta": {"type": {}}}, {"type": "message_delta", "delta": 3}]
    assert folded(*odd)["input_tokens"] is None


def test_async_streams_closed_or_dropped(captured: Captured, aclient: AsyncAnthropic) -> None:
    async def leave() -> None:
        async with aclient:
            closed = await aask(aclient, "slow", stream=True)
            assert closed.__class__ is anthropic.AsyncStream
            await closed.__anext__()
            await closed.close()
            async with aclient.messages.stream(**request("slow")) as helper:
                async for _ in helper:
                    break
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
    exits = [event["stream_exit"] for event in model_events(captured)]
    assert exits == ["closed_early", "closed_early", "abandoned", "abandoned"]
    assert len(model_spans(captured)) == 4


def test_an_async_stream_may_be_read_in_another_task(captured: Captured, aclient: AsyncAnthropic) -> None:
    async def read() -> None:
        async with aclient:
            stream = await aask(aclient, stream=True)

            async def all_of_it() -> list[Any]:
                return [event async for event in stream]

            assert len(await asyncio.create_task(all_of_it())) == 8

    asyncio.run(read())
    assert only_event(captured)["stream_exit"] == "complete"


@pytest.mark.parametrize("scenario", ["hang", "plain call", "helper"])
def test_a_cancelled_task_ends_the_span(
    captured: Captured,
    aclient: AsyncAnthropic,
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    scenario: str,
) -> None:
    asked, answer = Event(), Event()

    def held(_: Any) -> Reply:
        asked.set()
        answer.wait(20)
        return Reply(text="too late")

    if scenario == "plain call":
        monkeypatch.setattr(model_server, "reply_to", held)

    async def read(begun: asyncio.Event) -> None:
        if scenario == "plain call":
            await aask(aclient)
        elif scenario == "helper":
            async with aclient.messages.stream(**request("hang")) as stream:
                async for _ in stream:
                    begun.set()
        else:
            async for _ in await aask(aclient, "hang", stream=True):
                begun.set()

    async def cancel() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(read(begun))
        await (asyncio.to_thread(asked.wait, 20) if scenario == "plain call" else begun.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    answer.set()
    event = only_event(captured)
    assert (event["status"], event["error_type"]) == ("error", "asyncio.exceptions.CancelledError")
    assert event.get("stream_exit") == (None if scenario == "plain call" else "cancelled")
    assert len(model_spans(captured)) == 1


def test_an_async_generator_may_be_left_by_return(captured: Captured, aclient: AsyncAnthropic) -> None:
    async def kinds() -> AsyncIterator[str]:
        async for event in await aask(aclient, stream=True):
            yield event.type

    async def first() -> str:
        async for kind in kinds():
            return kind
        return "nothing"

    async def leave() -> None:
        async with aclient:
            assert await first() == "message_start"
            assert not trace.get_current_span().get_span_context().is_valid
            await asyncio.sleep(0)
            gc.collect()

    asyncio.run(leave())
    gc.collect()
    assert only_event(captured)["stream_exit"] in ("abandoned", "closed_early")


def test_a_timeout_inside_an_async_generator_still_fires(captured: Captured, aclient: AsyncAnthropic) -> None:
    async def events() -> AsyncIterator[Any]:
        async with asyncio.timeout(0.3):
            async for event in await aask(aclient, "hang", stream=True):
                yield event

    async def read() -> None:
        with pytest.raises(TimeoutError):
            async for _ in events():
                pass

    asyncio.run(read())
    assert only_event(captured)["stream_exit"] == "cancelled"


def test_coroutines_and_managers_that_never_run_are_no_calls(captured: Captured, aclient: AsyncAnthropic) -> None:
    create: Any = aclient.messages.create
    pending = create(**request())
    assert asyncio.iscoroutine(pending)
    pending.close()
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
amfs_otel.instrument("anthropic")
import anthropic
client = anthropic.Anthropic(base_url={model_server.origin!r}, api_key="k")
stream = client.messages.create(
    model="claude-sonnet-5+hang", max_tokens=9, messages=[{{"role": "user", "content": "x"}}], stream=True
)
next(stream)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=True)
    exits = [line for line in done.stdout.splitlines() if "'gen_ai.operation.name': 'chat'" in line]
    assert len(exits) == 1
    assert "'amfs.stream.exit': 'interpreter_exit'" in exits[0]


def test_a_broken_fold_never_reaches_the_reader(
    captured: Captured, client: Anthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: MessageFold) -> None:
        raise RuntimeError("fold")

    monkeypatch.setattr(MessageFold, "fold", broken)
    assert len(list(ask(client, stream=True))) == 8
    assert only_event(captured)["stream_exit"] == "complete"
