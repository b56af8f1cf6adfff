"""The openai patch: what a call leaves behind, on every surface that the installed version has."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from openai import AsyncOpenAI, AzureOpenAI, NotFoundError, OpenAI, RateLimitError
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import BaseModel

from amfs_otel import capture, instrumentor
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Failure, Reply
from amfs_otel.settings import LedgerContent, SpanContent
from amfs_otel_instrumentation._openai_facts import chat_reply
from tests.instrumentation.contract import Call, Contract
from tests.instrumentation.openai_calls import (
    HAS_METADATA,
    HAS_PARSE,
    HAS_RESPONSES,
    HAS_STREAM_HELPER,
    HAS_STREAMING_RESPONSE,
    HELLO,
    STREAM_WITH_USAGE,
    TOOLS,
    aask,
    ask,
    breaches,
    lacking,
    model,
    model_events,
    model_spans,
    only_event,
    respond,
)
from tests.instrumentation.recording import Captured
from tests.support.oracle import Rules


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[OpenAI]:
    instrumentor.instrument(["openai"])
    with OpenAI(base_url=model_server.base_url, api_key="test", max_retries=0) as made:
        yield made


@pytest.fixture
def aclient(captured: Captured, model_server: ModelServer) -> AsyncOpenAI:
    instrumentor.instrument(["openai"])
    return AsyncOpenAI(base_url=model_server.base_url, api_key="test", max_retries=0)


class Answer(BaseModel):
    said: str


def test_a_chat_holds_what_was_asked_and_what_the_provider_said(
    captured: Captured, client: OpenAI, model_server: ModelServer
) -> None:
    ask(client, temperature=0, max_tokens=100, seed=7, n=2, user="user-1", tools=TOOLS, presence_penalty=0.5)
    body = model_server.exchanges[0].json
    event = only_event(captured)
    expected = {
        "kind": "llm_call",
        "operation": "chat",
        "provider": "openai",
        "model": "gpt-4o-mini",
        "temperature": 0,
        "max_tokens": 100,
        "seed": 7,
        "choice_count": 2,
        "presence_penalty": 0.5,
        "user": "user-1",
        "server_address": "127.0.0.1",
        "server_port": model_server.port,
        "response_model": body["model"],
        "response_id": body["id"],
        "finish_reasons": ["stop", "stop"],
        "input_tokens": body["usage"]["prompt_tokens"],
        "cached_tokens": 64,
        "output_tokens": body["usage"]["completion_tokens"],
        "reasoning_tokens": 0,
        "service_tier": "default",
        "system_fingerprint": "fp_demo",
        "status": "ok",
    }
    assert {key: event.get(key) for key in expected} == expected
    assert event["input_messages"] == [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]
    said = {"type": "text", "content": "You said: hello"}
    assert event["output_messages"] == [{"role": "assistant", "parts": [said], "finish_reason": "stop"}] * 2
    assert event["tool_definitions"][0]["name"] == "look_up_order"
    assert "attempts" not in event


def test_its_span_follows_the_conventions_and_holds_no_content(captured: Captured, client: OpenAI) -> None:
    ask(client, temperature=0, tools=TOOLS, user="user-1")
    for _ in ask(client, "text-and-tools", stream=True):
        pass
    client.embeddings.create(model="text-embedding-3-small", input=["a b", "c"])
    captured.close()
    assert breaches(captured) == []
    chat, streamed, embedded = model_spans(captured)
    assert (chat.name, chat.kind, chat.status) == ("chat gpt-4o-mini", "client", "unset")
    assert chat.attributes["openai.api.type"] == "chat_completions"
    assert streamed.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert streamed.attributes["gen_ai.request.stream"] is True
    assert embedded.name == "embeddings text-embedding-3-small"
    shown = repr([span.attributes for span in (chat, streamed, embedded)])
    assert all(text not in shown for text in ("hello", "user-1", "look_up_order", "Leeds"))


def test_with_content_on_the_span_holds_messages_of_the_profiles_shape(
    captured_with: Callable[..., Captured], model_server: ModelServer
) -> None:
    captured = captured_with(span_content=SpanContent.SPAN_ONLY)
    instrumentor.instrument(["openai"])
    with OpenAI(base_url=model_server.base_url, api_key="k", max_retries=0) as client:
        ask(client, "text-and-tools", tools=TOOLS)
    captured.close()
    (span,) = model_spans(captured)
    assert breaches(captured, Rules(content=True)) == []
    (said,) = json.loads(span.attributes["gen_ai.output.messages"])
    assert [part["type"] for part in said["parts"]] == ["text", "tool_call", "tool_call"]
    assert said["parts"][1]["arguments"] == {"order_id": "48213", "with_history": True}
    assert json.loads(span.attributes["gen_ai.input.messages"])[0]["parts"][0]["content"] == "hello"


def test_metrics_follow_the_conventions(captured: Captured, client: OpenAI) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("amfs_otel")
    captured.capture.metrics = ClientMetrics(meter)
    ask(client)
    for _ in ask(client, stream=True):
        pass
    client.embeddings.create(model="text-embedding-3-small", input="a b")
    data = json.loads(reader.get_metrics_data().to_json())  # pyright: ignore[reportOptionalMemberAccess]
    metrics = data["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    counts = {metric["name"]: metric["data"]["data_points"] for metric in metrics}
    assert {name.removeprefix("gen_ai.client.") for name in counts} == {
        "inference.duration",
        "inference.time_to_first_chunk",
        "inference.time_per_output_chunk",
        "inference.usage.input_tokens",
        "inference.usage.output_tokens",
        "inference.usage.cache_read.input_tokens",
        "inference.usage.reasoning.output_tokens",
        "inference.operation.input_tokens",
        "inference.operation.output_tokens",
        "embeddings.duration",
        "embeddings.operation.input_tokens",
    }
    assert sum(point["count"] for point in counts["gen_ai.client.inference.duration"]) == 2
    assert sum(point["value"] for point in counts["gen_ai.client.inference.usage.input_tokens"]) == 143


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("tools", {"finish_reasons": ["tool_calls"]}),
        ("reasoning", {"input_tokens": 1310, "cached_tokens": 1024, "output_tokens": 402, "reasoning_tokens": 384}),
        ("refusal", {"finish_reasons": ["stop"]}),
        ("content-filter", {"finish_reasons": ["content_filter"]}),
        ("length", {"finish_reasons": ["length"]}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_facts_are_the_same_streamed_or_not(
    captured: Captured, client: OpenAI, scenario: str, expected: dict[str, Any], stream: bool
) -> None:
    result = ask(client, scenario, **(STREAM_WITH_USAGE if stream else {}))
    if stream:
        for _ in result:
            pass
    event = only_event(captured)
    assert {key: event[key] for key in expected} == expected
    assert event["input_tokens"] is not None
    if scenario == "refusal":
        assert event["output_messages"][0]["parts"] == [{"type": "text", "content": "I cannot help with that."}]


@pytest.mark.parametrize("stream", [False, True])
def test_usage_that_nobody_reported_is_unknown(captured: Captured, client: OpenAI, stream: bool) -> None:
    result = ask(client, "no-usage", stream=stream)
    if stream:
        list(result)
    event = only_event(captured)
    assert not {"input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"} & set(event)
    assert model_spans(captured)[0].attributes["amfs.usage.unknown"] is True


@pytest.mark.parametrize("stream", [False, True])
def test_requested_tools_are_named_and_the_call_is_seen_through_the_messages(
    captured: Captured, client: OpenAI, stream: bool
) -> None:
    result = ask(client, "text-and-tools", tools=TOOLS, stream=stream)
    if stream:
        list(result)
    asked = {"id": "call_look_up_order", "type": "function", "function": {"name": "look_up_order", "arguments": "{}"}}
    answer = {"role": "tool", "tool_call_id": "call_look_up_order", "content": "on its way"}
    ask(client, messages=[*HELLO, {"role": "assistant", "content": None, "tool_calls": [asked]}, answer])
    (trace,) = captured.close()
    first, seen, second = trace["events"]
    assert first["requested_tools"] == [
        {"call_id": "call_look_up_order", "tool_name": "look_up_order"},
        {"call_id": "call_courier", "tool_name": "courier_status"},
    ]
    assert (seen["kind"], seen["observed"], seen["tool_name"]) == ("tool_call", "messages", "look_up_order")
    assert seen["arguments"] == {"order_id": "48213", "with_history": True}
    assert seen["result"] == "on its way"
    assert second["input_messages"][2]["parts"][0]["response"] == "on its way"


def test_a_rate_limit_is_one_event_with_its_attempts(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["openai"])
    limited = Reply(failure=Failure(429, "Rate limit of project secret-1.", "requests", "rate_limit_exceeded"))
    model_server.queue(limited)
    with OpenAI(base_url=model_server.base_url, api_key="k", max_retries=1) as client:
        ask(client)
        model_server.queue(limited, limited)
        with pytest.raises(RateLimitError):
            ask(client)
    good, bad = model_events(captured)
    assert (good["status"], good["attempts"]) == ("ok", 2)
    assert (bad["status"], bad["error_type"], bad["attempts"]) == ("error", "openai.RateLimitError", 2)
    assert "secret-1" in bad["error_message"]
    assert len(model_server.exchanges) == 4
    spans = model_spans(captured)
    assert [span.status for span in spans] == ["unset", "error"]
    assert spans[1].attributes["error.type"] == "openai.RateLimitError"
    assert "secret-1" not in repr(spans)
    assert breaches(captured) == []


def test_embeddings_hold_counts_and_no_vectors(captured: Captured, client: OpenAI, model_server: ModelServer) -> None:
    vectors = client.embeddings.create(model="text-embedding-3-small", input=["a b", "c"]).data
    event = only_event(captured)
    assert (event["kind"], event["dimension_count"]) == ("embeddings", len(vectors[0].embedding))
    assert event["input_tokens"] == model_server.exchanges[0].json["usage"]["prompt_tokens"] == 3
    assert event["input_text"] == ["a b", "c"]
    assert "output_messages" not in event


def test_asynchronous_calls_leave_the_same(captured: Captured, aclient: AsyncOpenAI) -> None:
    async def calls() -> None:
        async with aclient:
            await aask(aclient, "text-and-tools", tools=TOOLS)
            await aclient.embeddings.create(model="text-embedding-3-small", input="a")

    asyncio.run(calls())
    chat, embedded = model_events(captured)
    assert (chat["finish_reasons"], chat["input_tokens"]) == (["tool_calls"], 143)
    assert embedded["kind"] == "embeddings"
    assert breaches(captured) == []


def test_responses(captured: Captured, client: OpenAI, model_server: ModelServer) -> None:
    assert hasattr(client, "responses") == HAS_RESPONSES
    if not HAS_RESPONSES:
        lacking("responses")
    respond(client, "text-and-tools", instructions="Be brief.", reasoning={"effort": "low"}, metadata={"team": "blue"})
    body = model_server.exchanges[0].json
    event = only_event(captured)
    assert (event["response_id"], event["response_model"]) == (body["id"], body["model"])
    assert event["finish_reasons"] == ["completed"]
    assert (event["input_tokens"], event["cached_tokens"], event["output_tokens"]) == (143, 64, 58)
    assert event["reasoning_level"] == "low"
    assert event["request_metadata"] == {"team": "blue"}
    assert event["system_instructions"] == [{"type": "text", "content": "Be brief."}]
    assert event["input_messages"] == [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]
    (said,) = event["output_messages"]
    assert [part["type"] for part in said["parts"]] == ["text", "tool_call", "tool_call"]
    assert [tool["tool_name"] for tool in event["requested_tools"]] == ["look_up_order", "courier_status"]
    assert breaches(captured) == []
    assert model_spans(captured)[0].attributes["openai.api.type"] == "responses"


@pytest.mark.parametrize(
    ("scenario", "reason", "status", "error_type"),
    [
        ("length", "max_output_tokens", "ok", None),
        ("content-filter", "content_filter", "ok", None),
        ("failed", "failed", "error", "server_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_responses_that_did_not_complete(
    captured: Captured,
    client: OpenAI,
    scenario: str,
    reason: str,
    status: str,
    error_type: str | None,
    stream: bool,
) -> None:
    assert hasattr(client, "responses") == HAS_RESPONSES
    if not HAS_RESPONSES:
        lacking("responses")
    result = respond(client, scenario, stream=stream)
    if stream:
        list(result)
    event = only_event(captured)
    assert (event["finish_reasons"], event["status"], event.get("error_type")) == ([reason], status, error_type)
    assert breaches(captured) == []


def test_responses_streamed_hold_what_the_last_event_says(captured: Captured, client: OpenAI) -> None:
    assert hasattr(client, "responses") == HAS_RESPONSES
    if not HAS_RESPONSES:
        lacking("responses")
    assert list(respond(client, "text-and-tools", stream=True))[-1].type == "response.completed"
    event = only_event(captured)
    assert (event["stream_exit"], event["input_tokens"]) == ("complete", 143)
    assert [part["type"] for part in event["output_messages"][0]["parts"]] == ["text", "tool_call", "tool_call"]


def test_responses_left_early_keep_what_came(captured: Captured, client: OpenAI) -> None:
    assert hasattr(client, "responses") == HAS_RESPONSES
    if not HAS_RESPONSES:
        lacking("responses")
    with respond(client, "text-and-tools", stream=True) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                break
    seen = only_event(captured)
    assert (seen["stream_exit"], seen["response_id"]) == ("closed_early", "resp_demo000001")
    text, call = seen["output_messages"][0]["parts"]
    assert text == {"type": "text", "content": "Let me look that up."}
    assert (call["name"], call["arguments"]) == ("look_up_order", '{"order_i')


def test_parse_is_one_event(captured: Captured, client: OpenAI, model_server: ModelServer) -> None:
    chat: Any = client.chat.completions
    assert hasattr(chat, "parse") == HAS_PARSE
    if not HAS_PARSE:
        lacking("chat.completions.parse")
    model_server.queue(Reply(text='{"said": "yes"}'), Reply(text='{"said": "no"}'))
    parsed = chat.parse(model="gpt-4o-mini", messages=HELLO, response_format=Answer)
    assert parsed.choices[0].message.parsed == Answer(said="yes")
    assert cast("Any", client).responses.parse(
        model="gpt-4o-mini", input="hello", text_format=Answer
    ).output_parsed == Answer(said="no")
    first, second = model_events(captured)
    assert first["output_type"] == second["output_type"] == "json"
    assert len(model_spans(captured)) == 2
    assert breaches(captured) == []


def test_stream_helpers_are_one_event(captured: Captured, client: OpenAI) -> None:
    chat: Any = client.chat.completions
    assert hasattr(chat, "stream") == HAS_STREAM_HELPER
    if not HAS_STREAM_HELPER:
        lacking("chat.completions.stream")
    with chat.stream(model="gpt-4o-mini", messages=HELLO) as stream:
        assert [event.type for event in stream][-1] == "content.done"
        assert stream.get_final_completion().choices[0].message.content == "You said: hello"
    with cast("Any", client).responses.stream(model="gpt-4o-mini", input="hello") as stream:
        stream.until_done()
    with chat.stream(model="gpt-4o-mini", messages=HELLO) as stream:
        next(stream)
    exits = [event["stream_exit"] for event in model_events(captured)]
    assert exits == ["complete", "complete", "closed_early"]


def test_raw_responses_keep_their_type_and_tell_all(captured: Captured, client: OpenAI) -> None:
    raw: Any = client.chat.completions.with_raw_response
    plain = raw.create(model="gpt-4o-mini", messages=HELLO)
    assert plain.headers["x-request-id"] == "req_demo000001"
    assert plain.parse().choices[0].finish_reason == "stop"
    streamed = raw.create(model="gpt-4o-mini", messages=HELLO, stream=True)
    stream = streamed.parse()
    assert sum(1 for _ in stream) == 5
    assert "parse" not in vars(streamed)
    first, second = model_events(captured)
    assert (first["input_tokens"], first["output_messages"][0]["parts"][0]["content"]) == (143, "You said: hello")
    assert (second["stream_exit"], second["chunks"]) == ("complete", 5)
    assert breaches(captured) == []


def test_streaming_responses_are_seen_however_they_are_read(captured: Captured, client: OpenAI) -> None:
    assert hasattr(client.chat.completions, "with_streaming_response") == HAS_STREAMING_RESPONSE
    if not HAS_STREAMING_RESPONSE:
        lacking("with_streaming_response")
    create: Any = client.chat.completions.with_streaming_response.create
    with create(model="gpt-4o-mini", messages=HELLO) as response:
        assert response.parse().choices[0].message.content == "You said: hello"
    with create(model="gpt-4o-mini", messages=HELLO) as response:
        assert b"You said" in b"".join(response.iter_bytes())
    with create(model="gpt-4o-mini", messages=HELLO) as response:
        assert response.headers["x-request-id"]
    with create(model="gpt-4o-mini", messages=HELLO, stream=True) as response:
        assert sum(1 for _ in response.parse()) == 5
    with create(model="gpt-4o-mini", messages=HELLO, stream=True) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data:")
    parsed, read, unread, streamed, partly = model_events(captured)
    assert (parsed["input_tokens"], parsed.get("stream_exit")) == (143, None)
    assert (read["stream_exit"], read.get("input_tokens")) == ("complete", None)
    assert unread["stream_exit"] == "closed_early"
    assert (streamed["stream_exit"], streamed["chunks"]) == ("complete", 5)
    assert partly["stream_exit"] == "closed_early"


def test_asynchronous_raw_responses(captured: Captured, aclient: AsyncOpenAI) -> None:
    async def calls() -> None:
        async with aclient:
            raw: Any = aclient.chat.completions.with_raw_response
            assert (await raw.create(model="gpt-4o-mini", messages=HELLO)).parse().choices
            stream = (await raw.create(model="gpt-4o-mini", messages=HELLO, stream=True)).parse()
            assert len([chunk async for chunk in stream]) == 5

    asyncio.run(calls())
    assert [event.get("input_tokens") for event in model_events(captured)] == [143, None]
    assert len(model_spans(captured)) == 2


def test_asynchronous_streaming_responses(captured: Captured, aclient: AsyncOpenAI) -> None:
    if not HAS_STREAMING_RESPONSE:
        lacking("with_streaming_response")

    async def calls() -> None:
        async with aclient:
            create: Any = aclient.chat.completions.with_streaming_response.create
            async with create(model="gpt-4o-mini", messages=HELLO) as response:
                assert (await response.parse()).choices
            async with create(model="gpt-4o-mini", messages=HELLO, stream=True) as response:
                assert len([chunk async for chunk in await response.parse()]) == 5

    asyncio.run(calls())
    assert [event.get("input_tokens") for event in model_events(captured)] == [143, None]
    assert len(model_spans(captured)) == 2


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://api.mistral.ai/v1", "mistral_ai"),
        ("https://api.x.ai/v1", "x_ai"),
        ("https://api.perplexity.ai", "perplexity"),
        ("https://api.moonshot.cn/v1", "moonshot_ai"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gcp.gemini"),
        ("https://mine.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://api.notdeepseek.com", "openai"),
        ("http://localhost:8000/v1", "openai"),
    ],
)
def test_who_answers_is_known_by_the_base_url(base_url: str, provider: str) -> None:
    from amfs_otel_instrumentation import openai as patch

    where = cast("Any", patch)._where(OpenAI(api_key="k", base_url=base_url))
    assert where["provider"] == provider
    assert where["server_port"] == {"https": 443, "http": 8000}[base_url.partition(":")[0]]


def test_azure_is_a_provider_of_its_own(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["openai"])
    endpoint = model_server.base_url.removesuffix("/v1")
    client = AzureOpenAI(azure_endpoint=endpoint, api_key="k", api_version="2024-10-21", max_retries=0)
    with client, pytest.raises(NotFoundError):  # our server knows no deployments
        ask(client)
    event = only_event(captured)
    assert (event["provider"], event["error_type"]) == ("azure.ai.openai", "openai.NotFoundError")
    assert breaches(captured) == []


def test_openais_own_attributes_are_for_openai_only() -> None:
    reply = SimpleNamespace(id="x", model="m", service_tier="default", system_fingerprint="fp", choices=[])
    assert chat_reply({"provider": "openai"}, reply)["service_tier"] == "default"
    assert not {"service_tier", "system_fingerprint"} & set(chat_reply({"provider": "groq"}, reply))


def test_messages_keep_media_as_digest_and_size(captured: Captured, client: OpenAI) -> None:
    image = base64.b64encode(bytes(6000)).decode()
    content = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]
    ask(client, messages=[{"role": "user", "content": content}])
    text, blob, uri, audio, file = only_event(captured)["input_messages"][0]["parts"]
    assert text == {"type": "text", "content": "what is this?"}
    digest = hashlib.sha256(bytes(6000)).hexdigest()
    assert blob == {
        "type": "blob",
        "modality": "image",
        "mime_type": "image/png",
        "content": f"sha256:{digest} (6000 bytes)",
    }
    assert uri == {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"}
    assert audio == {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "UklGRg=="}
    assert file == {"type": "file", "modality": "document", "file_id": "file-1"}


def test_what_the_caller_changes_afterwards_is_recorded_as_it_was(captured: Captured, client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "before"}]
    reply = ask(client, messages=messages)
    messages[0]["content"] = "after"
    messages.append({"role": "user", "content": "more"})
    reply.choices[0].message.content = "changed"
    event = only_event(captured)
    assert event["input_messages"] == [{"role": "user", "parts": [{"type": "text", "content": "before"}]}]
    assert event["output_messages"][0]["parts"][0]["content"] == "You said: before"


def test_by_default_the_ledger_keeps_no_message(captured: Captured, client: OpenAI) -> None:
    ask(client)
    captured.close()
    (trace,) = captured.traces(LedgerContent.DECISION)
    assert "hello" not in repr(trace)
    assert trace["events"][0]["model"] == "gpt-4o-mini"


def test_by_default_the_ledger_keeps_no_metadata(captured: Captured, client: OpenAI) -> None:
    if not HAS_METADATA:
        lacking("metadata")
    ask(client, metadata={"team": "blue"})
    captured.close()
    assert "blue" in repr(captured.traces(LedgerContent.ALL))
    assert "blue" not in repr(captured.traces(LedgerContent.DECISION))


def test_suppressed_and_uninstalled_calls_leave_nothing(captured: Captured, client: OpenAI) -> None:
    from opentelemetry import context

    token = context.attach(context.set_value("suppress_instrumentation", True))
    try:
        ask(client)
    finally:
        context.detach(token)
    capture.uninstall()
    ask(client)
    assert captured.close() == []
    assert captured.spans() == []


def test_a_public_method_that_calls_another_is_one_event(captured: Captured, model_server: ModelServer) -> None:
    """Base class and subclass both wrapped, or a surface built upon another one: one call, one event."""
    from openai.resources.chat.completions import Completions

    class Own(Completions):
        def create(self, **kwargs: Any) -> Any:
            return cast("Any", super()).create(**kwargs)

    import wrapt

    from amfs_otel_instrumentation import openai as patch

    instrumentor.instrument(["openai"])
    wrapper = patch.hooks_when_imported["openai.resources.chat.completions:Completions.create"]
    Own.create = wrapt.FunctionWrapper(Own.create, wrapper)  # type: ignore[method-assign]
    with OpenAI(base_url=model_server.base_url, api_key="k", max_retries=0) as client:
        assert Own(client).create(model=model(), messages=HELLO).choices
    assert only_event(captured)["input_tokens"] == 143
    assert len(model_spans(captured)) == 1


# -- the contract of all patches --------------------------------------------------------------------------------------


@asynccontextmanager
async def contract_calls(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    """Those that the contract is tried with."""
    way: Any = {"base_url": request.getfixturevalue("model_server").base_url, "api_key": "k", "max_retries": 0}
    with OpenAI(**way) as client:
        async with AsyncOpenAI(**way) as asynchronous:

            async def plain() -> Any:
                return ask(client).choices[0].message.content

            async def awaited() -> Any:
                return (await aask(asynchronous)).choices[0].message.content

            async def streamed() -> Any:
                return [chunk.choices[0].delta.content for chunk in ask(client, stream=True) if chunk.choices]

            async def responded() -> Any:
                return respond(client).output[0].content[0].text

            async def refused() -> Any:
                return ask(client, "rate-limited")

            yield plain, awaited, streamed, *((responded,) if HAS_RESPONSES else ()), refused


CONTRACT = Contract(contract_calls, ("_openai_facts", "_openai_folds"))
