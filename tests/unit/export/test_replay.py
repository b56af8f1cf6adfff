"""A replayed trace is GenAI telemetry by the oracle, has one identity, and holds structure and names only."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

import pytest
from amfs_core.models import DecisionTrace, ExternalContext, QueryEvent, ToolCall, TraceEntry

from amfs_otel.errors import ConfigurationError
from amfs_otel.export.otlp import resource_named
from amfs_otel.export.replay import TraceExporter, configure_otel, spans_from_trace, told_trace
from tests.support.oracle import Rules, check_spans, failures
from tests.support.otlp_decode import span_from_readable
from tests.support.otlp_receiver import OtlpReceiver, refused_endpoint

T0 = datetime(2026, 11, 30, 10, tzinfo=UTC)
T0_NS = int(T0.timestamp()) * 10**9
T0_US = T0_NS // 1000
CANARY = "canary-7f3a"


@dataclass
class Document:
    head: dict
    facts: dict


class Text:
    def __str__(self):
        return CANARY


def document(**head):
    return Document(
        {"id": "0198-x", "session": "ef" * 16, "trace": "ab" * 16, "span": "cd" * 8, "content_hash": "1f" * 32, **head},
        {
            "schema": "amfs-otel/decision/1",
            "agent": "deploy-agent",
            "session_id": "thread-7",
            "origin": {"service": "deployer"},
            "started_us": T0_US,
            "ended_us": T0_US + 5_000,
            "closed_by": "commit",
            "status": "complete",
            "events": [
                {
                    "id": "01" * 8, "kind": "agent_run", "seq": 1, "status": "ok", "start_us": T0_US,
                    "end_us": T0_US + 4_000, "agent_name": "planner",
                },
                {
                    "id": "02" * 8, "parent": "01" * 8, "kind": "llm_call", "seq": 2, "status": "ok",
                    "start_us": T0_US + 100, "end_us": T0_US + 1_000, "operation": "chat", "provider": "openai",
                    "model": "gpt-5", "temperature": 0, "input_tokens": 100, "cached_tokens": 60,
                    "output_tokens": 20, "reasoning_tokens": 5, "finish_reasons": ["stop"], "response_id": "r1",
                    "response_model": "gpt-5", "server_address": "h", "server_port": 443,
                    "input_messages": Text(), "output_messages": CANARY,
                },
                {
                    "id": "03" * 8, "parent": "01" * 8, "kind": "tool_call", "seq": 3, "status": "error",
                    "error_type": "TimeoutError", "start_us": T0_US + 1_100, "end_us": T0_US + 1_200,
                    "tool_name": "deploy", "call_id": "c1", "arguments": CANARY,
                },
                {
                    "id": "04" * 8, "kind": "memory_read", "seq": 4, "status": "ok", "start_us": T0_US + 1_300,
                    "end_us": T0_US + 1_400, "operation": "read", "entity_path": "svc", "key": "retry",
                    "version": 2, "confidence": 0.9, "found": True, "value": CANARY,
                },
                {"id": "05" * 8, "kind": "tool_call", "seq": 5, "status": "ok", "tool_name": None, "observed": "messages"},
                {
                    "id": "06" * 8, "kind": "context", "seq": 6, "status": "ok", "start_us": T0_US + 1_500,
                    "label": "pagerduty", "source_name": "PagerDuty API", "summary": CANARY,
                },
                {
                    "id": "07" * 8, "kind": "outcome", "seq": 7, "status": "ok", "start_us": T0_US + 5_000,
                    "outcome_ref": "DEP-500", "outcome_type": "success", "decision_summary": CANARY,
                },
                {"id": "08" * 8, "kind": "levitation", "seq": 8},
            ],
        },
    )  # fmt: skip


def spans_of(trace):
    return [span_from_readable(span) for span in spans_from_trace(told_trace(trace), resource_named("s"))]


def breaches(spans):
    return failures(check_spans(spans, Rules(conversation_ids={"thread-7"})))


def test_a_record_becomes_a_tree_of_genai_spans():
    root, run, llm, tool, read, unnamed = spans = spans_of(document())
    assert breaches(spans) == []
    assert [span.name for span in spans] == [
        "invoke_agent deploy-agent",
        "invoke_agent planner",
        "chat gpt-5",
        "execute_tool deploy",
        "search_memory",
        "execute_tool unknown",
    ]
    assert {run.parent_id, read.parent_id, unnamed.parent_id} == {root.span_id}
    assert {llm.parent_id, tool.parent_id} == {run.span_id}
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert (root.start_ns, root.end_ns) == (T0_NS, T0_NS + 5_000_000)
    assert (llm.start_ns, llm.end_ns, llm.kind) == (T0_NS + 100_000, T0_NS + 1_000_000, "client")
    assert llm.attributes["gen_ai.request.temperature"] == 0.0
    assert llm.attributes["gen_ai.usage.cache_read.input_tokens"] == 60
    assert (tool.status, tool.attributes["error.type"]) == ("error", "TimeoutError")
    assert read.attributes["gen_ai.memory.record.id"] == "svc/retry"
    assert unnamed.start_ns == unnamed.end_ns == T0_NS
    assert root.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "deploy-agent",
        "gen_ai.conversation.id": "thread-7",
        "amfs.record.id": "0198-x",
        "amfs.session.id": "ef" * 16,
        "amfs.closed_by": "commit",
        "amfs.status": "complete",
    }
    assert [(event.name, event.attributes, event.time_ns) for event in root.events] == [
        (
            "amfs.context",
            {"amfs.context.label": "pagerduty", "amfs.context.source": "PagerDuty API"},
            T0_NS + 1_500_000,
        ),
        ("amfs.outcome", {"amfs.outcome.ref": "DEP-500", "amfs.outcome.type": "success"}, T0_NS + 5_000_000),
    ]


def test_no_text_leaves():
    for span in spans_of(document()):
        assert CANARY not in repr(span)


def test_one_content_has_one_identity_apart_from_the_original():
    first, again, other = (spans_of(document()), spans_of(document()), spans_of(document(content_hash="2f" * 32)))
    assert [span.span_id for span in first] == [span.span_id for span in again]
    assert first[0].trace_id == again[0].trace_id != other[0].trace_id
    assert first[0].trace_id != "ab" * 16
    assert first[0].links == (("ab" * 16, "cd" * 8),)
    assert len({span.span_id for span in first}) == len(first)


def test_without_a_content_hash_or_a_trace_ids_are_drawn():
    first, again = (spans_of(document(content_hash=None, trace=None, span="zz"))[0] for _ in range(2))
    assert first.trace_id != again.trace_id
    assert first.links == ()


UPSTREAM = DecisionTrace(
    id="t1",
    agent_id="deploy-agent",
    session_id="sess-a1b2",
    outcome_ref="DEP-500",
    outcome_type="success",
    decision_summary=CANARY,
    task_input=CANARY,
    tool_calls=[
        ToolCall(
            tool_name="deploy", arguments={"x": CANARY}, result_summary=CANARY, result_hash="", success=False,
            started_at=T0 + timedelta(seconds=2), duration_ms=250,
        )
    ],
    causal_entries=[
        TraceEntry(entity_path="svc", key="retry", version=3, confidence=0.9, value=CANARY, read_at=T0, duration_ms=1.5)
    ],
    external_contexts=[ExternalContext(label="pagerduty", summary=CANARY, source="PagerDuty API", recorded_at=T0)],
    query_events=[
        QueryEvent(operation="search", parameters={"query": CANARY}, result_count=4, occurred_at=T0 + timedelta(seconds=1))
    ],
    session_started_at=T0,
    session_ended_at=T0 + timedelta(seconds=3),
)  # fmt: skip


@pytest.mark.parametrize("trace", [UPSTREAM, UPSTREAM.model_dump(), UPSTREAM.model_dump(mode="json")])
def test_an_upstream_trace_is_read_as_object_and_as_mapping(trace):
    root, read, query, tool = spans = spans_of(trace)
    assert breaches(spans) == []
    assert [span.name for span in spans] == [
        "invoke_agent deploy-agent",
        "search_memory",
        "search_memory",
        "execute_tool deploy",
    ]
    assert (root.start_ns, root.end_ns) == (T0_NS, T0_NS + 3 * 10**9)
    assert (read.start_ns, read.end_ns) == (T0_NS, T0_NS + 1_500_000)
    assert query.attributes["gen_ai.memory.record.count"] == 4
    assert (tool.end_ns - tool.start_ns, tool.status) == (250_000_000, "error")
    assert [event.name for event in root.events] == ["amfs.context", "amfs.outcome"]
    assert root.events[1].attributes == {"amfs.outcome.ref": "DEP-500", "amfs.outcome.type": "success"}
    assert CANARY not in repr(spans)


class OutcomeType(Enum):
    INCIDENT = "critical_failure"


EXPLANATION = {
    "record_id": "0198-y",
    "agent_id": "review-agent",
    "session_id": "sess-2",
    "content_hash": "3f" * 32,
    "origin": {"service": "reviewer"},
    "outcome_ref": "INC-1",
    "outcomes": [{"outcome_ref": "INC-1", "outcome_type": OutcomeType.INCIDENT}],
    "session_started_at": "2026-11-30T10:00:00.000000Z",
    "session_ended_at": None,
    "llm_calls": [
        {
            "call_id": "r9", "model": "gpt-5", "provider": None, "input_tokens": None, "output_tokens": None,
            "latency_ms": 20.0, "finish_reason": "stop", "started_at": "2026-11-30T12:00:01+02:00", "status": "error",
            "error": CANARY,
        }
    ],
    "write_events": [
        {"entity_path": "svc", "key": "k", "version": 1, "value": CANARY, "written_at": "2026-11-30T10:00:02", "duration_ms": None}
    ],
    "decisions": [{"summary": CANARY, "confidence": 1, "recorded_at": "2026-11-30T10:00:03Z"}],
    "state_diff": {"confidence_changes": [{"before": 0.9, "after": 0.3, "direction": "lowered"}]},
    "tool_calls": None,
}  # fmt: skip


def test_an_explanation_is_read():
    root, llm, write = spans = spans_of(EXPLANATION)
    assert breaches(spans) == []
    assert (llm.start_ns, llm.end_ns - llm.start_ns) == (T0_NS + 10**9, 20_000_000)
    assert (llm.status, llm.attributes["error.type"]) == ("error", "_OTHER")
    assert llm.attributes["amfs.usage.unknown"] is True
    assert (write.name, write.start_ns) == ("upsert_memory", T0_NS + 2 * 10**9)
    assert sorted(event.name for event in root.events) == ["amfs.confidence_change", "amfs.outcome", "amfs.statement"]
    outcome = next(event for event in root.events if event.name == "amfs.outcome")
    assert outcome.attributes["amfs.outcome.type"] == "critical_failure"
    assert root.end_ns == T0_NS + 3 * 10**9
    assert CANARY not in repr(spans)


@pytest.mark.parametrize("nonsense", [None, 7, "trace", {}, [], object(), {"agent_id": 5}])
def test_what_is_no_trace_is_refused(nonsense):
    with pytest.raises(ConfigurationError, match="export_trace: this cannot be replayed"):
        told_trace(nonsense)


def test_damaged_values_do_no_harm():
    trace = {
        "agent_id": "a\ud800b",
        "session_started_at": "yesterday",
        "llm_calls": [{"input_tokens": 1 << 70, "latency_ms": float("nan"), "started_at": 3}],
        "tool_calls": [{"tool_name": Text(), "duration_ms": -5, "started_at": datetime(1, 1, 1, tzinfo=UTC)}],
    }  # fmt: skip
    spans = spans_of(trace)
    assert spans[0].name == "invoke_agent a?b"
    assert all(0 <= span.start_ns <= span.end_ns for span in spans)


@pytest.fixture
def unconfigured(monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "AMFS_OTEL_ENDPOINT",
                 "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SERVICE_NAME", "AMFS_OTEL_SERVICE_NAME"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    configure_otel()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_trace_is_exported_where_configure_otel_says(unconfigured, protocol):
    with OtlpReceiver() as receiver:
        configure_otel(endpoint=receiver.endpoint(protocol), service_name="told", protocol=protocol)
        assert TraceExporter().export_trace(UPSTREAM) is True
        spans = receiver.spans
    assert {span.resource["service.name"] for span in spans} == {"told"}
    assert len(spans) == 4


def test_host_and_port_alone_mean_plain_grpc(unconfigured):
    with OtlpReceiver() as receiver:
        configure_otel(endpoint=receiver.grpc_endpoint.removeprefix("http://"))
        assert TraceExporter().export_trace(document()) is True
        assert {span.resource["service.name"] for span in receiver.spans} == {"deployer"}


def test_the_environment_is_the_last_word(unconfigured):
    with OtlpReceiver() as receiver:
        unconfigured.setenv("AMFS_OTEL_ENDPOINT", receiver.grpc_endpoint)
        unconfigured.setenv("AMFS_OTEL_SERVICE_NAME", "fallback")
        assert TraceExporter().export_trace(UPSTREAM) is True
        assert {span.resource["service.name"] for span in receiver.spans} == {"fallback"}
        assert TraceExporter(refused_endpoint(), timeout_s=0.2).export_trace(UPSTREAM) is False


def test_arguments_win_over_configure_otel_and_that_over_the_environment(unconfigured):
    def endpoint(*args):
        return TraceExporter(*args)._endpoint

    assert endpoint() == "localhost:4317"
    unconfigured.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://environment")
    assert endpoint() == "http://environment"
    configure_otel("http://configured")
    assert endpoint() == "http://configured"
    assert endpoint("http://argument") == "http://argument"
