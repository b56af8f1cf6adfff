"""Spans and receipts sent to Jaeger directly, with collector-config/jaeger.yaml."""

from __future__ import annotations

import pytest

from tests.backends.servers import Jaeger, wait_until
from tests.backends.spans import AGENT_SPANS, record_hash_of, send_agent_trace, send_receipts, tracer_to

pytestmark = pytest.mark.backends


def test_attributes_parentage_and_receipt_arrive(jaeger: Jaeger) -> None:
    with tracer_to(jaeger.otlp_http, "direct-agent") as tracer:
        sent = send_agent_trace(tracer, failed=True)
    send_receipts(jaeger.otlp_http, [sent])
    trace = jaeger.await_trace(sent.trace_id, spans=4)

    root, chat, tool = (trace.span(name) for name in AGENT_SPANS)
    receipt = trace.span("amfs.record")
    assert root.parent_id is None
    assert {chat.parent_id, tool.parent_id, receipt.parent_id} == {root.span_id}
    assert (root.service, receipt.service) == ("direct-agent", "amfs-otel")
    assert {"direct-agent", "amfs-otel"} <= jaeger.api.services()
    assert chat.attributes["span.kind"] == "client"
    assert chat.attributes["gen_ai.request.temperature"] == 0.5
    assert chat.attributes["gen_ai.usage.input_tokens"] == 2**40
    assert chat.attributes["gen_ai.response.finish_reasons"] == '["stop","tool_calls"]'
    assert tool.attributes["otel.status_code"] == "ERROR"
    assert root.events[0]["event"] == "amfs.context"
    assert root.events[0]["amfs.context.label"] == "git-log"
    assert receipt.attributes["amfs.record_hash"] == record_hash_of(sent)
    assert receipt.resource["service.version"] == "1.2.3"


def test_search_by_service_and_tag(jaeger: Jaeger) -> None:
    with tracer_to(jaeger.otlp_http, "searched-agent") as tracer:
        first, second = send_agent_trace(tracer), send_agent_trace(tracer)
    send_receipts(jaeger.otlp_http, [first, second])
    wait_until(lambda: len(jaeger.api.traces("searched-agent")) == 2, "two traces")
    wait_until(
        lambda: all(
            jaeger.api.traces("amfs-otel", {"amfs.record_hash": record_hash_of(one)}) for one in (first, second)
        ),
        "receipts",
    )

    found = jaeger.api.traces("amfs-otel", {"amfs.record_hash": record_hash_of(second)})
    assert [trace.trace_id for trace in found] == [second.trace_id]
    assert jaeger.api.traces("searched-agent", {"amfs.record_hash": "0"}) == []


def test_unknown_trace_is_none(jaeger: Jaeger) -> None:
    assert jaeger.api.trace("0" * 31 + "1") is None
