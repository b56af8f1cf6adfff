"""The oracle's self-test: clean telemetry has no finding, each planted fault has exactly the one that names it."""

import json
from dataclasses import replace

import pytest

from tests.support.oracle import (
    Rules,
    _registered,
    check_logs,
    check_metrics,
    check_spans,
    failures,
    reference,
)
from tests.support.otlp_decode import LogEvent, Metric, Span, SpanEvent

CHAT = Span(
    name="chat gpt-5",
    kind="client",
    attributes={
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.request.temperature": 0.0,
        "gen_ai.response.model": "gpt-5-2026",
        "gen_ai.response.id": "resp-1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "server.address": "127.0.0.1",
        "server.port": 8080,
        "amfs.record.id": "0198",
        "amfs.session.id": "ab" * 16,
    },
    trace_id="c" * 32,
    span_id="d" * 16,
)
TOOL = Span(
    name="execute_tool deploy",
    attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "deploy", "gen_ai.tool.call.id": "call_1"},
)
MEMORY = Span(
    name="search_memory",
    attributes={
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.record.id": "svc/k",
        "gen_ai.memory.record.count": 1,
        "server.address": "db",
        "server.port": 5432,
    },
)
AGENT = Span(
    name="invoke_agent deploy-agent",
    attributes={
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "deploy-agent",
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.response.finish_reasons": ["stop"],
    },
    events=(SpanEvent("amfs.context", {"amfs.context.label": "pagerduty"}),),
)
MCP = Span(
    name="tools/call deploy",
    kind="client",
    attributes={
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "deploy",
        "mcp.protocol.version": "2025-06-18",
        "network.transport": "pipe",
    },
)
RECEIPT = Span(name="amfs.record", attributes={"amfs.log": "default", "amfs.sequence_number": 1})
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]


def changed(span: Span, attributes: dict | None = None, without: str = "", **fields) -> Span:
    kept = {key: value for key, value in span.attributes.items() if key != without}
    return replace(span, attributes={**kept, **(attributes or {})}, **fields)


@pytest.mark.parametrize("span", [CHAT, TOOL, MEMORY, AGENT, MCP, RECEIPT], ids=lambda span: span.name)
def test_a_clean_span_has_no_finding(span):
    assert check_spans([span]) == []


FAULTS = {
    "status OK": (changed(CHAT, status="ok"), "status_ok", "status"),
    "error.type without error": (changed(CHAT, {"error.type": "X"}), "error_type_iff_error", "error.type"),
    "error without error.type": (changed(TOOL, status="error"), "error_type_iff_error", "error.type"),
    "unknown operation": (
        changed(RECEIPT, {"gen_ai.operation.name": "think"}),
        "operation_known",
        "gen_ai.operation.name",
    ),
    "no operation": (changed(RECEIPT, {"gen_ai.agent.name": "a"}), "required", "gen_ai.operation.name"),
    "wrong name": (changed(CHAT, name="chat"), "span_name", "name"),
    "wrong tool name": (changed(TOOL, name="deploy"), "span_name", "name"),
    "wrong kind": (changed(TOOL, kind="client"), "span_kind", "kind"),
    "wrong memory kind": (changed(MEMORY, kind="server"), "span_kind", "kind"),
    "required missing": (changed(CHAT, without="gen_ai.provider.name"), "required", "gen_ai.provider.name"),
    "required by the provider": (
        changed(CHAT, without="gen_ai.request.model", name="chat"),
        "required",
        "gen_ai.request.model",
    ),
    "int for a double": (changed(CHAT, {"gen_ai.request.temperature": 0}), "types", "gen_ai.request.temperature"),
    "bool for an int": (changed(CHAT, {"gen_ai.request.seed": True}), "types", "gen_ai.request.seed"),
    "string for a list": (
        changed(CHAT, {"gen_ai.response.finish_reasons": "stop"}),
        "types",
        "gen_ai.response.finish_reasons",
    ),
    "string for an int": (changed(CHAT, {"server.port": "80"}), "types", "server.port"),
    "invented gen_ai key": (changed(CHAT, {"gen_ai.agent.mood": "good"}), "undeclared", "gen_ai.agent.mood"),
    "foreign key": (changed(CHAT, {"decision.id": "x"}), "undeclared", "decision.id"),
    "on the wrong span": (changed(TOOL, {"gen_ai.request.model": "m"}), "misplaced", "gen_ai.request.model"),
    "legacy key": (changed(CHAT, {"gen_ai.system": "openai"}), "legacy", "gen_ai.system"),
    "legacy event": (changed(CHAT, events=(SpanEvent("gen_ai.choice", {}),)), "legacy", "gen_ai.choice"),
    "content on a span": (
        changed(CHAT, {"gen_ai.input.messages": json.dumps(MESSAGES)}),
        "content_off_by_default",
        "gen_ai.input.messages",
    ),
    "content on an event": (
        changed(AGENT, events=(SpanEvent("amfs.context", {"gen_ai.memory.query.text": "q"}),)),
        "content_off_by_default",
        "gen_ai.memory.query.text",
    ),
    "cache exclusive": (changed(CHAT, {"gen_ai.usage.input_tokens": 40}), "cache_subset", "gen_ai.usage.input_tokens"),
    "reasoning exclusive": (
        changed(CHAT, {"gen_ai.usage.output_tokens": 4}),
        "cache_subset",
        "gen_ai.usage.output_tokens",
    ),
    "conversation is the trace": (
        changed(CHAT, {"gen_ai.conversation.id": "c" * 32}),
        "conversation_id",
        "gen_ai.conversation.id",
    ),
    "conversation is our session": (
        changed(CHAT, {"gen_ai.conversation.id": "ab" * 16}),
        "conversation_id",
        "gen_ai.conversation.id",
    ),
    "address without port": (changed(CHAT, without="server.port"), "port_needs_address", "server.port"),
    "operation on another MCP method": (
        changed(
            MCP, {"mcp.method.name": "resources/read"}, without="gen_ai.tool.name", name="resources/read"
        ),
        "mcp_by_method",
        "gen_ai.operation.name",
    ),
    "no operation on tools/call": (
        changed(MCP, without="gen_ai.operation.name"),
        "mcp_by_method",
        "gen_ai.operation.name",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_the_one_failure(fault):
    span, rule, key = FAULTS[fault]
    assert [(f.rule, f.key) for f in failures(check_spans([span]))] == [(rule, key)]


def test_a_missing_recommended_attribute_is_a_warning():
    [finding] = check_spans([changed(CHAT, without="gen_ai.response.id")])
    assert (finding.rule, finding.key, finding.level) == ("recommended_core", "gen_ai.response.id", "warning")


def test_an_unknown_provider_is_information():
    [finding] = check_spans([changed(CHAT, {"gen_ai.provider.name": "acme"})])
    assert (finding.rule, finding.level) == ("enum", "information")


def test_an_unknown_mcp_method_is_information():
    span = changed(MCP, {"mcp.method.name": "x/y"}, without="gen_ai.operation.name", name="x/y deploy")
    assert [(f.rule, f.level) for f in check_spans([span])] == [("mcp_by_method", "information")]


def test_the_switches_allow_what_they_name_and_nothing_else():
    dual = changed(CHAT, {"gen_ai.system": "openai"})
    content = changed(CHAT, {"gen_ai.input.messages": json.dumps(MESSAGES)})
    assert check_spans([dual], Rules(dual=True)) == []
    assert check_spans([content], Rules(content=True)) == []
    assert failures(check_spans([dual], Rules(content=True)))
    assert failures(check_spans([content], Rules(dual=True)))


def test_a_conversation_id_must_be_one_that_the_application_has():
    span = changed(CHAT, {"gen_ai.conversation.id": "thread-7"})
    assert check_spans([span]) == []
    assert check_spans([span], Rules(conversation_ids={"thread-7"})) == []
    assert [f.rule for f in check_spans([span], Rules(conversation_ids=set()))] == ["conversation_id"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gen_ai.input.messages", "hi"),
        ("gen_ai.input.messages", "{}"),
        ("gen_ai.input.messages", json.dumps([{"role": "user", "content": "hi"}])),
        ("gen_ai.input.messages", json.dumps([{"role": "user", "parts": [{"type": "text"}]}])),
        ("gen_ai.output.messages", json.dumps([{"parts": []}])),
        ("gen_ai.system_instructions", json.dumps(["be good"])),
        ("gen_ai.tool.definitions", json.dumps([{"type": "function", "function": {"name": "x"}}])),
    ],
)
def test_content_of_another_shape_is_found(key, value):
    found = failures(check_spans([changed(CHAT, {key: value})], Rules(content=True)))
    assert found
    assert {(f.rule, f.key) for f in found} == {("message_shape", key)}


def test_the_older_profile_has_its_own_legacy_list():
    span = changed(AGENT, {"gen_ai.workflow.name": "w"})
    assert [f.rule for f in failures(check_spans([span]))][:1] == ["legacy"]
    assert "legacy" not in [f.rule for f in check_spans([span], Rules(profile="genai-2026-08-03"))]


DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
POINT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
METRIC = Metric("gen_ai.client.inference.duration", "histogram", "s", ((POINT, (1, 0.5)),), DURATION)


def test_clean_metrics_have_no_failure():
    tokens = Metric(
        "gen_ai.client.inference.usage.input_tokens",
        "counter",
        "{token}",
        (({**POINT, "gen_ai.token.modality": "unknown"}, 5),),
    )
    ours = Metric("amfs.spool.size", "gauge", "By", (({}, 1),))
    assert check_metrics([METRIC, tokens, ours]) == []


LEGACY_METRIC = replace(METRIC, name="gen_ai.client.operation.duration")


@pytest.mark.parametrize(
    ("metric", "rule", "key"),
    [
        (replace(METRIC, name="gen_ai.client.cost"), "undeclared", "gen_ai.client.cost"),
        (replace(METRIC, unit="ms"), "unit", METRIC.name),
        (replace(METRIC, instrument="gauge"), "instrument", METRIC.name),
        (replace(METRIC, points=(({"gen_ai.operation.name": "chat"}, 1),)), "required", "gen_ai.provider.name"),
        (replace(METRIC, points=(({**POINT, "gen_ai.response.id": "x"}, 1),)), "misplaced", "gen_ai.response.id"),
        (replace(METRIC, points=(({**POINT, "server.address": "h"}, 1),)), "port_needs_address", "server.port"),
        (replace(METRIC, points=(({**POINT, "server.port": 1.5}, 1),)), "types", "server.port"),
        (LEGACY_METRIC, "legacy", "gen_ai.client.operation.duration"),
        (Metric("amfs.spool.size", "gauge", "By", (({"path": "/x"}, 1),)), "undeclared", "path"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_metric_fault_is_the_one_failure(metric, rule, key):
    assert [(f.rule, f.key) for f in failures(check_metrics([metric]))] == [(rule, key)]


def test_buckets_are_compared():
    metric = Metric("gen_ai.invoke_agent.tool_calls", "histogram", "{tool_call}", (({}, (1, 1)),), (1.0, 2.0))
    assert [f.rule for f in failures(check_metrics([metric]))] == ["buckets"]


def test_a_legacy_metric_is_allowed_only_under_the_switch():
    metric = replace(LEGACY_METRIC, points=((POINT, (1, 1)),))
    assert check_metrics([metric], Rules(dual=True)) == []
    tool = replace(LEGACY_METRIC, points=(({"gen_ai.operation.name": "search_memory"}, (1, 1)),))
    assert check_metrics([tool]) == []


def test_log_events():
    exception = LogEvent("gen_ai.client.inference.exception", {"exception.type": "X", "exception.message": "m"})
    assert check_logs([exception, LogEvent("", {"anything": 1})]) == []
    assert [f.rule for f in check_logs([LogEvent("gen_ai.choice", {})])] == ["legacy"]
    assert [f.rule for f in check_logs([LogEvent("gen_ai.thing", {})])] == ["undeclared"]
    details = LogEvent("gen_ai.client.inference.operation.details", {"gen_ai.operation.name": "chat"})
    assert [(f.rule, f.key) for f in check_logs([details])] == [("required", "gen_ai.provider.name")]


def test_every_rule_of_the_reference_has_a_planted_fault():
    planted = {rule for _, rule, _ in FAULTS.values()}
    elsewhere = {"recommended_core", "message_shape"}
    assert {rule["id"] for rule in reference()["rules"]} == (planted | elsewhere) - {"misplaced"}


def test_every_attribute_of_a_span_or_metric_is_registered():
    profile = reference()["profiles"]["genai-0.1.0"]
    named = {key for part in ("spans", "metrics", "events") for entry in profile[part] for key in entry["attributes"]}
    assert {key for key in named if _registered(key) is None} == set()
