"""The anthropic patch: what a call leaves behind, on every surface that the installed version has."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.bedrock import AnthropicBedrock
from anthropic.lib.vertex import AnthropicVertex, AsyncAnthropicVertex
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import BaseModel

from amfs_otel import instrumentor
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Failure, Reply, Usage
from amfs_otel.demo.wire_messages import MessageReply
from amfs_otel.settings import LedgerContent, SpanContent
from tests.instrumentation.anthropic_calls import (
    EVERYTHING,
    HAS_BEDROCK_KEYS,
    HAS_PARSE,
    HELLO,
    MODEL,
    OVERLOADED,
    TOOLS,
    VERSION,
    aask,
    ask,
    breaches,
    lacking,
    model_events,
    model_spans,
    only_event,
    raw,
    request,
    text_of,
)
from tests.instrumentation.contract import Call, Contract
from tests.instrumentation.recording import Captured
from tests.support.oracle import Rules


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[Anthropic]:
    instrumentor.instrument(["anthropic"])
    with Anthropic(base_url=model_server.origin, api_key="test", max_retries=0) as made:
        yield made


@pytest.fixture
def aclient(captured: Captured, model_server: ModelServer) -> AsyncAnthropic:
    instrumentor.instrument(["anthropic"])
    return AsyncAnthropic(base_url=model_server.origin, api_key="test", max_retries=0)


class Answer(BaseModel):
    said: str


def test_a_call_holds_what_was_asked_and_what_the_provider_said(
    captured: Captured, client: Anthropic, model_server: ModelServer
) -> None:
    model_server.queue(EVERYTHING)
    sampling = {"temperature": 0, "top_k": 5, "top_p": 0.5}
    ask(client, extra_body=sampling, system="Be brief.", tools=TOOLS, metadata={"user_id": "user-1"})
    body = model_server.exchanges[0].json
    usage = body["usage"]
    event = only_event(captured)
    expected = {
        "operation": "chat",
        "provider": "anthropic",
        "model": MODEL,
        "max_tokens": 100,
        "temperature": 0,
        "top_k": 5,
        "top_p": 0.5,
        "user": "user-1",
        "server_address": "127.0.0.1",
        "server_port": model_server.port,
        "response_model": body["model"],
        "response_id": body["id"],
        "finish_reasons": [body["stop_reason"]],
        "cached_tokens": usage["cache_read_input_tokens"],
        "cache_write_tokens": usage["cache_creation_input_tokens"],
        "output_tokens": usage["output_tokens"],
        "reasoning_tokens": usage["output_tokens_details"]["thinking_tokens"],
        "requested_tools": [{"call_id": "call_look_up_order", "tool_name": "look_up_order"}],
        "request_metadata": {"user_id": "user-1"},
        "status": "ok",
    }
    assert {key: event.get(key) for key in expected} == expected
    assert (usage["input_tokens"], event["input_tokens"]) == (10, 10 + 512 + 100)
    assert event["input_messages"] == [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]
    assert event["system_instructions"] == [{"type": "text", "content": "Be brief."}]
    assert event["tool_definitions"][0]["parameters"] == TOOLS[0]["input_schema"]
    assert event["output_messages"] == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "The user wants an order."},
                {"type": "text", "content": "Let me look that up."},
                {
                    "type": "tool_call",
                    "id": "call_look_up_order",
                    "name": "look_up_order",
                    "arguments": {"order_id": "48213", "with_history": True},
                },
            ],
            "finish_reason": "tool_call",
        }
    ]
    assert not {"attempts", "stream"} & set(event)


def through_create(client: Anthropic) -> None:
    for _ in ask(client, stream=True):
        pass


def through_the_helper(client: Anthropic) -> None:
    with client.messages.stream(**request()) as stream:
        assert stream.get_final_message().stop_reason == "tool_use"


def through_beta(client: Anthropic) -> None:
    create: Any = client.beta.messages.create
    for _ in create(**request(stream=True)):
        pass


def through_a_raw_response(client: Anthropic) -> None:
    for _ in raw(client, stream=True).parse():
        pass


def through_a_streaming_response(client: Anthropic) -> None:
    create: Any = client.messages.with_streaming_response.create
    with create(**request(stream=True)) as response:
        for _ in response.parse():
            pass


READINGS = [through_create, through_the_helper, through_beta, through_a_raw_response, through_a_streaming_response]


@pytest.mark.parametrize("read", READINGS)
def test_a_stream_leaves_what_a_whole_reply_leaves(
    captured: Captured, client: Anthropic, model_server: ModelServer, read: Callable[[Anthropic], None]
) -> None:
    model_server.queue(EVERYTHING, EVERYTHING)
    ask(client)
    read(client)
    whole, streamed = model_events(captured)
    own = {"id", "seq", "span", "start_us", "end_us", "response_id"}
    assert {k: v for k, v in whole.items() if k not in own} == {
        k: v
        for k, v in streamed.items()
        if k not in {*own, "stream", "stream_exit", "chunks", "time_to_first_chunk_ms"}
    }
    assert (streamed["stream"], streamed["stream_exit"]) == (True, "complete")
    assert len(model_spans(captured)) == 2
    assert breaches(captured) == []


def test_its_span_follows_the_conventions_and_holds_no_content(
    captured: Captured, client: Anthropic, model_server: ModelServer
) -> None:
    model_server.queue(EVERYTHING)
    ask(client, extra_body={"temperature": 1, "top_k": 5}, tools=TOOLS, system="Be brief.")
    captured.close()
    (span,) = model_spans(captured)
    assert breaches(captured) == []
    assert (span.name, span.kind, span.status) == (f"chat {MODEL}", "client", "unset")
    assert span.attributes["gen_ai.response.finish_reasons"] == ["tool_use"]
    assert span.attributes["gen_ai.usage.input_tokens"] == 622
    assert span.attributes["gen_ai.usage.reasoning.output_tokens"] == 12
    assert all(text not in repr(span.attributes) for text in ("hello", "look_up_order", "brief", "wants"))


def test_with_content_on_the_span_holds_messages_of_the_profiles_shape(
    captured_with: Callable[..., Captured], model_server: ModelServer
) -> None:
    captured = captured_with(span_content=SpanContent.SPAN_ONLY)
    instrumentor.instrument(["anthropic"])
    model_server.queue(EVERYTHING)
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "none", "is_error": True}
    with Anthropic(base_url=model_server.origin, api_key="k", max_retries=0) as client:
        ask(client, tools=TOOLS, system="Be brief.", messages=[*HELLO, {"role": "user", "content": [answer]}])
    captured.close()
    (span,) = model_spans(captured)
    assert breaches(captured, Rules(content=True)) == []
    (said,) = json.loads(span.attributes["gen_ai.output.messages"])
    assert [part["type"] for part in said["parts"]] == ["reasoning", "text", "tool_call"]
    hello, told = json.loads(span.attributes["gen_ai.input.messages"])
    assert (hello["role"], told["role"]) == ("user", "tool")
    assert told["parts"][0]["response"] == {"is_error": True, "content": "none"}


@pytest.mark.parametrize(
    ("reply", "reason", "shown"),
    [
        (Reply(text="Done."), "end_turn", "stop"),
        (Reply(text="Done", finish_reason="stop_sequence"), "stop_sequence", "stop"),
        (Reply(text="An answer that does not", finish_reason="length"), "max_tokens", "length"),
        (Reply(text="", finish_reason="model_context_window_exceeded"), "model_context_window_exceeded", "length"),
        (Reply(text="No.", finish_reason="content_filter"), "refusal", "content_filter"),
        (Reply(text="Wait", finish_reason="pause_turn"), "pause_turn", "pause_turn"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_stop_reasons_are_the_providers_and_the_messages_use_the_profiles_words(
    captured: Captured,
    client: Anthropic,
    model_server: ModelServer,
    reply: Reply,
    reason: str,
    shown: str,
    stream: bool,
) -> None:
    model_server.queue(reply)
    result = ask(client, stream=stream)
    if stream:
        list(result)
    event = only_event(captured)
    assert event["finish_reasons"] == [reason]
    assert event["output_messages"][0]["finish_reason"] == shown
    assert breaches(captured) == []


@pytest.mark.parametrize("stream", [False, True])
def test_usage_that_nobody_reported_is_unknown(
    captured: Captured, client: Anthropic, model_server: ModelServer, stream: bool
) -> None:
    model_server.queue(Reply(text="hi", usage=None))
    result = ask(client, stream=stream)
    if stream:
        list(result)
    event = only_event(captured)
    assert not {"input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"} & set(event)
    assert model_spans(captured)[0].attributes["amfs.usage.unknown"] is True


def test_metrics_follow_the_conventions(captured: Captured, client: Anthropic, model_server: ModelServer) -> None:
    reader = InMemoryMetricReader()
    captured.capture.metrics = ClientMetrics(MeterProvider([reader]).get_meter("amfs_otel"))
    model_server.queue(EVERYTHING, EVERYTHING)
    ask(client)
    list(ask(client, stream=True))
    data = json.loads(reader.get_metrics_data().to_json())  # pyright: ignore[reportOptionalMemberAccess]
    metrics = data["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    counts = {m["name"].removeprefix("gen_ai.client.inference."): m["data"]["data_points"] for m in metrics}
    assert set(counts) == {
        "duration", "time_to_first_chunk", "time_per_output_chunk", "usage.input_tokens", "usage.output_tokens",
        "usage.cache_read.input_tokens", "usage.cache_write.input_tokens", "usage.reasoning.output_tokens",
        "operation.input_tokens", "operation.output_tokens",
    }  # fmt: skip
    assert sum(point["value"] for point in counts["usage.input_tokens"]) == 2 * 622


def test_a_tool_is_seen_through_the_messages(captured: Captured, client: Anthropic, model_server: ModelServer) -> None:
    model_server.queue(EVERYTHING)
    reply = ask(client, tools=TOOLS)
    result = {"type": "tool_result", "tool_use_id": "call_look_up_order", "content": "on its way"}
    sent_back: Any = [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    ask(client, messages=[*HELLO, *sent_back])
    (trace_,) = captured.close()
    first, seen, second = trace_["events"]
    assert (seen["kind"], seen["observed"], seen["tool_name"]) == ("tool_call", "messages", "look_up_order")
    assert seen["arguments"] == {"order_id": "48213", "with_history": True}
    assert seen["result"] == "on its way"
    assert second["input_messages"][1]["parts"] == first["output_messages"][0]["parts"]
    assert second["input_messages"][2]["role"] == "tool"


def test_an_overload_is_one_event_with_its_attempts(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["anthropic"])
    model_server.queue(OVERLOADED)
    with Anthropic(base_url=model_server.origin, api_key="k", max_retries=1) as client:
        ask(client)
        model_server.queue(OVERLOADED, Reply(failure=Failure(429, "Rate limit secret-1", "requests")))
        with pytest.raises(anthropic.RateLimitError):
            ask(client)
    good, bad = model_events(captured)
    assert (good["status"], good["attempts"]) == ("ok", 2)
    assert (bad["status"], bad["error_type"], bad["attempts"]) == ("error", "anthropic.RateLimitError", 2)
    assert "secret-1" in bad["error_message"]
    assert len(model_server.exchanges) == 4
    spans = model_spans(captured)
    assert [span.status for span in spans] == ["unset", "error"]
    assert "secret-1" not in repr(spans)
    assert breaches(captured) == []


def test_asynchronous_calls_leave_the_same(
    captured: Captured, aclient: AsyncAnthropic, model_server: ModelServer
) -> None:
    model_server.queue(EVERYTHING, EVERYTHING, EVERYTHING)

    async def calls() -> None:
        async with aclient:
            await aask(aclient)
            async for _ in await aask(aclient, stream=True):
                pass
            async with aclient.messages.stream(**request()) as stream:
                assert (await stream.get_final_message()).stop_reason == "tool_use"

    asyncio.run(calls())
    events = model_events(captured)
    assert [event["input_tokens"] for event in events] == [622] * 3
    assert [event.get("stream_exit") for event in events] == [None, "complete", "complete"]
    assert all(event["output_messages"] == events[0]["output_messages"] for event in events)
    assert breaches(captured) == []


def test_parse_is_one_event(captured: Captured, client: Anthropic, model_server: ModelServer) -> None:
    if not HAS_PARSE:
        assert VERSION < (1, 0)
        lacking("messages.parse")
    model_server.queue(*(Reply(text='{"said": "yes"}') for _ in range(2)))
    for surface in (client.messages, client.beta.messages):
        parsed = cast("Any", surface).parse(**request(output_format=Answer))
        assert parsed.parsed_output == Answer(said="yes")
    first, second = model_events(captured)
    assert first["output_type"] == second["output_type"] == "json"
    assert text_of(first) == '{"said": "yes"}'
    assert len(model_spans(captured)) == 2
    assert breaches(captured) == []


def test_raw_and_streaming_responses_are_seen_however_they_are_read(captured: Captured, client: Anthropic) -> None:
    plain = raw(client)
    assert plain.headers["request-id"] == "req_demo000001"
    assert plain.parse().stop_reason == "end_turn"
    create: Any = client.messages.with_streaming_response.create
    with create(**request()) as response:
        assert response.parse().content[0].text == "You said: hello"
    with create(**request()) as response:
        assert b"You said" in b"".join(response.iter_bytes())
    with create(**request()) as response:
        assert response.headers["request-id"]
    with create(**request(stream=True)) as response:
        lines = response.iter_lines()
        assert next(lines) == "event: message_start"
    events = model_events(captured)
    assert [event.get("input_tokens") for event in events] == [143, 143, None, None, None]
    assert [event.get("stream_exit") for event in events] == [None, None, "complete", "closed_early", "closed_early"]
    assert len(model_spans(captured)) == 5


def test_platforms_are_told_apart(captured: Captured, client: Anthropic, model_server: ModelServer) -> None:
    made: dict[str, Any] = {"region": "us-east5", "project_id": "p", "access_token": "t"}
    with AnthropicVertex(base_url=model_server.origin, max_retries=0, **made) as vertex:
        ask(vertex)  # pyright: ignore[reportArgumentType]
        vertex.beta.messages.create(**request())

    async def asynchronous() -> None:
        async with AsyncAnthropicVertex(base_url=model_server.origin, max_retries=0, **made) as vertex:
            await vertex.messages.create(**request())

    asyncio.run(asynchronous())
    ask(client.with_options(timeout=5))
    providers = [event["provider"] for event in model_events(captured)]
    assert providers == ["gcp.vertex_ai", "gcp.vertex_ai", "gcp.vertex_ai", "anthropic"]
    assert all(exchange.status == 200 for exchange in model_server.exchanges)


def test_bedrock_is_a_platform_of_its_own(captured: Captured, model_server: ModelServer) -> None:
    if not HAS_BEDROCK_KEYS:
        assert VERSION < (1, 0)
        lacking("key of Bedrock's client")
    instrumentor.instrument(["anthropic"])
    bedrock: Any = AnthropicBedrock(base_url=model_server.origin, aws_region="us-east-1", api_key="k", max_retries=0)
    with bedrock:
        ask(bedrock)
        bedrock.beta.messages.create(**request())
    assert [event["provider"] for event in model_events(captured)] == ["aws.bedrock"] * 2
    assert all(exchange.status == 200 for exchange in model_server.exchanges)


def test_other_requests_are_no_model_calls(captured: Captured, client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        cast("Any", client.beta.messages).count_tokens(model=MODEL, messages=HELLO)
    assert model_events(captured) == []


def test_blocks_of_every_kind_become_parts(captured: Captured, client: Anthropic, model_server: ModelServer) -> None:
    data = base64.b64encode(b"picture" * 400).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    blocks: Any = [
        image,
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a report"}},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}, image]},
        {"type": "thinking", "thinking": "hm", "signature": "x"},
    ]
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "parcels"}}
    page = {"type": "web_search_result", "title": "Parcels", "encrypted_content": data}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]}
    model_server.queue(MessageReply(text="Found.", more=(search, found), usage=Usage()))
    ask(client, messages=[{"role": "user", "content": blocks}])
    event = only_event(captured)
    digest = f"sha256:{hashlib.sha256(b'picture' * 400).hexdigest()} (2800 bytes)"
    blob = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": digest}
    assert event["input_messages"][0]["parts"] == [
        blob,
        {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"},
        {"type": "file", "modality": "document", "file_id": "file_1"},
        {"type": "text", "content": "a report"},
        {"type": "tool_call_response", "id": "t1", "response": [{"type": "text", "content": "one"}, blob]},
        {"type": "reasoning", "content": "hm"},
    ]
    said, called, answered = event["output_messages"][0]["parts"]
    assert said["content"] == "Found."
    assert (called["type"], called["id"], called["name"]) == ("server_tool_call", "s1", "web_search")
    assert called["server_tool_call"]["input"] == {"query": "parcels"}
    (shown,) = answered["server_tool_call_response"]["content"]
    assert (shown["title"], shown["encrypted_content"]) == ("Parcels", digest)
    assert "requested_tools" not in event


def test_content_is_withheld_where_the_policy_says_so(
    captured: Captured, client: Anthropic, model_server: ModelServer
) -> None:
    model_server.queue(EVERYTHING)
    ask(client, system="canary-1", messages=[{"role": "user", "content": "canary-2"}], metadata={"user_id": "u"})
    captured.close()
    for content in (LedgerContent.NONE, LedgerContent.DECISION):
        kept = repr(captured.traces(content))
        assert all(text not in kept for text in ("canary", "wants an order", "48213"))
    assert "canary" not in repr(captured.spans())


# -- the contract of all patches --------------------------------------------------------------------------------------


@asynccontextmanager
async def contract_calls(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    """Those that the contract is tried with."""
    way: Any = {"base_url": request.getfixturevalue("model_server").origin, "api_key": "k", "max_retries": 0}
    with Anthropic(**way) as client:
        async with AsyncAnthropic(**way) as asynchronous:

            async def plain() -> Any:
                return ask(client).content[0].text

            async def awaited() -> Any:
                return (await aask(asynchronous)).content[0].text

            async def streamed() -> Any:
                return [event.type for event in ask(client, stream=True)]

            async def refused() -> Any:
                return ask(client, "rate-limited")

            yield plain, awaited, streamed, refused


CONTRACT = Contract(contract_calls, ("_anthropic_facts", "_anthropic_folds"))
