"""The anthropic patch beside the spans that the SDK itself makes from 2.x on; older releases have none to give way."""

from typing import Any, cast

import anthropic
import pytest
from anthropic import Anthropic
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from amfs_otel import capture, instrumentor
from amfs_otel.demo.model_server import ModelServer
from tests.instrumentation.anthropic_calls import (
    EVERYTHING,
    HAS_NATIVE_SPANS,
    HELLO,
    MODEL,
    OVERLOADED,
    ask,
    breaches,
    model_events,
    model_spans,
    only_event,
    request,
)
from tests.instrumentation.recording import Captured


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_with_the_sdks_own_spans_on_or_off_there_is_one_event_and_one_span_of_ours(
    captured: Captured, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, enabled: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_OPEN_TELEMETRY", enabled)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", captured.provider)
    instrumentor.instrument(["anthropic"])
    model_server.queue(EVERYTHING, EVERYTHING, OVERLOADED)
    with Anthropic(base_url=model_server.origin, api_key="k", max_retries=0) as client:
        ask(client)
        list(ask(client, stream=True))
        with pytest.raises(anthropic.APIStatusError):
            ask(client)
        with client.messages.stream(**request()) as stream:
            next(iter(stream))
        assert len(model_events(captured)) == 4
    spans = model_spans(captured)
    assert [(span.scope, span.status) for span in spans] == [
        ("amfs_otel", status) for status in ("unset", "unset", "error", "unset")
    ]
    assert breaches(captured) == []
    for exchange, span in zip(model_server.exchanges, spans, strict=True):
        sent = exchange.headers.get("traceparent", "")
        assert (span.trace_id in sent and span.span_id in sent) == (HAS_NATIVE_SPANS and enabled == "true")


def test_the_sdks_own_spans_that_are_no_model_calls_stay(
    captured: Captured, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", captured.provider)
    instrumentor.instrument(["anthropic"])
    apart, elsewhere = InMemorySpanExporter(), TracerProvider()
    elsewhere.add_span_processor(SimpleSpanProcessor(apart))
    own: dict[str, Any] = {"tracer_provider": elsewhere, "conversation_id": "conversation-7"}
    more: dict[str, Any] = {"open_telemetry": own} if HAS_NATIVE_SPANS else {}
    with (
        Anthropic(base_url=model_server.origin, api_key="k", max_retries=0) as client,
        pytest.raises(anthropic.NotFoundError),
    ):
        cast("Any", client.beta.messages).count_tokens(model=MODEL, messages=HELLO)
    with Anthropic(base_url=model_server.origin, api_key="k", max_retries=0, **more) as client:
        ask(client)
    event = only_event(captured)
    native = ["anthropic.messages.create"] if HAS_NATIVE_SPANS else []
    assert [span.name for span in apart.get_finished_spans()] == native
    assert event.get("conversation_id") == ("conversation-7" if HAS_NATIVE_SPANS else None)
    names = [span.name for span in captured.spans() if span.name.startswith(("anthropic", "chat"))]
    assert names == [*(["anthropic.messages.count_tokens"] if HAS_NATIVE_SPANS else []), f"chat {MODEL}"]


def test_switched_off_or_suppressed_the_sdk_is_as_without_us(
    captured: Captured, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", captured.provider)
    instrumentor.instrument(["anthropic"])
    capture.uninstall()
    with Anthropic(base_url=model_server.origin, api_key="k", max_retries=0) as client:
        ask(client)
        instrumentor.uninstrument(["anthropic"])
        ask(client)
    native = ["anthropic.messages.create"] * 2 if HAS_NATIVE_SPANS else []
    assert [span.name for span in captured.spans()] == native
