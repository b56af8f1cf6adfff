"""The oracle: checks telemetry against the table of facts about the GenAI conventions.

`check_spans`, `check_metrics` and `check_logs` take what the receiver decoded and return every breach as a `Finding`.
A test asserts an exact list, normally empty; each entry of a longer list needs its reason in the test. It knows nothing
of `amfs_otel`: names come from `tests/reference/genai_semconv.json` alone, plus the prefix `amfs.`.

Levels: a `failure` breaks a rule; a `warning` concerns a fact that upstream has not settled (`status` notes) or a
recommended attribute that is missing; `information` is an unknown value of an open enumeration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.message_shapes import shape_faults
from tests.support.otlp_decode import LogEvent, Metric, Span

REFERENCE = Path(__file__).parents[1] / "reference" / "genai_semconv.json"
PROFILE = "genai-0.1.0"
BASE_PROFILE = "genai-2026-08-03"
"""The older profile: it knows units and buckets of the metrics that are legacy now."""
OWN_PREFIX = "amfs."
GUARDED_PREFIXES = ("gen_ai.", "mcp.", "openai.")
INFERENCE_FAMILY = ("gen_ai.client.inference", "gen_ai.client.embeddings")


@dataclass(frozen=True, order=True)
class Finding:
    """One breach: the rule's id in the reference, what it concerns, and where."""

    rule: str
    key: str
    subject: str
    message: str
    level: str = "failure"


@dataclass(frozen=True)
class Rules:
    """What is expected of one run.

    Attributes:
        profile: Which profile of the reference.
        dual: Whether legacy names are emitted beside the current ones.
        content: Whether content capture is on.
        conversation_ids: The ids that the application really has; None = any that is not visibly made up.
    """

    profile: str = PROFILE
    dual: bool = False
    content: bool = False
    conversation_ids: Collection[str] | None = None


@cache
def reference() -> dict[str, Any]:
    return json.loads(REFERENCE.read_text(encoding="utf-8"))


def failures(findings: Iterable[Finding]) -> list[Finding]:
    """Those that break a rule."""
    return [finding for finding in findings if finding.level == "failure"]


def check_spans(spans: Iterable[Span], rules: Rules | None = None) -> list[Finding]:
    """Checks every span; give it those of the scopes that are ours."""
    chosen = rules or Rules()
    return sorted(finding for span in spans for finding in _span_findings(span, chosen))


def _span_findings(span: Span, rules: Rules) -> Iterable[Finding]:
    definition = _definition_of(span, rules)
    yield from _status(span)
    yield from _keys(span.name, span.attributes, rules)
    yield from _types(span.name, span.attributes)
    yield from _cache_subset(span)
    yield from _conversation(span, rules)
    for event in span.events:
        if event.name in reference()["legacy"]["events"] and not rules.dual:
            yield Finding("legacy", event.name, span.name, "a legacy event")
        yield from _keys(span.name, event.attributes, rules)
        yield from _types(span.name, event.attributes)
    if definition is None:
        yield from _operation(span)
    else:
        yield from _mcp(span)
        yield from _against_definition(span, definition, rules)


def _definition_of(span: Span, rules: Rules) -> dict[str, Any] | None:
    """The span type: by MCP method, else by operation and kind, else by operation."""
    known = reference()["profiles"][rules.profile]["spans"]
    operation = span.attributes.get("gen_ai.operation.name")
    if "mcp.method.name" in span.attributes:
        candidates = [entry for entry in known if entry["id"].startswith("mcp.")]
    else:
        candidates = [e for e in known if operation in e["operations"] and not e["id"].startswith("mcp.")]
    fitting = [entry for entry in candidates if span.kind in entry["allowed_kinds"]]
    return next(iter(fitting or candidates), None)


def _operation(span: Span) -> Iterable[Finding]:
    operation = span.attributes.get("gen_ai.operation.name")
    if operation is not None:
        yield Finding("operation_known", "gen_ai.operation.name", span.name, f"unknown operation {operation!r}")
    elif any(key.startswith(GUARDED_PREFIXES) for key in span.attributes):
        yield Finding("required", "gen_ai.operation.name", span.name, "GenAI attributes without an operation")


def _mcp(span: Span) -> Iterable[Finding]:
    method = span.attributes.get("mcp.method.name")
    if method is None:
        return
    is_tool = method == "tools/call"
    if ("gen_ai.operation.name" in span.attributes) != is_tool:
        yield Finding("mcp_by_method", "gen_ai.operation.name", span.name, "belongs on tools/call and only there")
    if method not in reference()["attributes"]["mcp.method.name"]["enum"]:
        yield Finding("mcp_by_method", "mcp.method.name", span.name, f"unknown method {method!r}", "information")


def _status(span: Span) -> Iterable[Finding]:
    if span.status == "ok":
        yield Finding("status_ok", "status", span.name, "instrumentation never sets OK")
    if ("error.type" in span.attributes) != (span.status == "error"):
        yield Finding("error_type_iff_error", "error.type", span.name, f"status is {span.status}")


def _keys(subject: str, attributes: Mapping[str, Any], rules: Rules) -> Iterable[Finding]:
    table, legacy = reference()["attributes"], reference()["legacy"]["attributes"]
    for key in attributes:
        if key in legacy and rules.profile in legacy[key]["applies_to"]:
            if not rules.dual:
                yield Finding("legacy", key, subject, f"replaced by {legacy[key]['replaced_by']}")
        elif not key.startswith(OWN_PREFIX) and _registered(key) is None:
            yield Finding("undeclared", key, subject, "neither in the registry nor under our prefix")
        if table.get(key, {}).get("sensitive") and not rules.content:
            yield Finding("content_off_by_default", key, subject, "content although capture is off")


def _registered(key: str) -> dict[str, Any] | None:
    table = reference()["attributes"]
    if key in table:
        return table[key]
    return next((e for e in table.values() if "key_pattern" in e and re.match(e["key_pattern"], key)), None)


def _against_definition(span: Span, definition: dict[str, Any], rules: Rules) -> Iterable[Finding]:
    attributes, identity = span.attributes, definition["id"]
    if span.kind not in definition["allowed_kinds"]:
        yield Finding("span_kind", "kind", span.name, f"{identity} is {definition['allowed_kinds']}, not {span.kind}")
    yield from _span_name(span, definition, rules)
    declared = _declared(span, definition, rules)
    exempt = reference()["recommended_exempt"]
    for key, entry in declared.items():
        if key in attributes:
            continue
        if entry["level"] == "required":
            level = "information" if "treat absence as information" in entry.get("condition", "") else "failure"
            yield Finding("required", key, span.name, f"required on {identity}", level)
        elif entry["level"] == "recommended" and "condition" not in entry and key not in exempt:
            yield Finding("recommended_core", key, span.name, f"recommended on {identity}", "warning")
    for key in attributes:
        if _registered(key) is not None and key not in declared and not key.startswith("gen_ai.prompt.variable."):
            yield Finding("misplaced", key, span.name, f"not an attribute of {identity}")
    if identity in INFERENCE_FAMILY and "server.address" in attributes and "server.port" not in attributes:
        yield Finding("port_needs_address", "server.port", span.name, "server.address stands alone")


def _declared(span: Span, definition: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Attributes of the span type with what its provider and its refinements add."""
    profile = reference()["profiles"][rules.profile]
    declared = dict(definition["attributes"])
    for refinement in profile.get("span_refinements", ()):
        if refinement["refines"] == definition["id"]:
            for key, entry in refinement["attributes"].items():
                declared.setdefault(key, {**entry, "level": "opt_in"})
    provider = span.attributes.get("gen_ai.provider.name")
    for refinement in profile.get("provider_refinements", ()):
        if refinement["provider"] == provider and refinement["refines"] == definition["id"]:
            for key, entry in refinement["attributes"].items():
                softer = {**entry, "condition": "provider"} if entry["level"] == "recommended" else entry
                declared[key] = softer
    return declared


def _span_name(span: Span, definition: dict[str, Any], rules: Rules) -> Iterable[Finding]:
    refinements = reference()["profiles"][rules.profile].get("span_refinements", ())
    extra = [t for r in refinements if r["refines"] == definition["id"] for t in r["name_templates"]]
    own = [name for t in definition["name_templates"] if (name := _rendered(t, span.attributes)) is not None]
    allowed = {*own[:1], *(name for t in extra if (name := _rendered(t, span.attributes)) is not None)}
    if allowed and span.name not in allowed:
        yield Finding("span_name", "name", span.name, f"expected one of {sorted(allowed)}")


def _rendered(template: str, attributes: Mapping[str, Any]) -> str | None:
    names = re.findall(r"{([^}]+)}", template)
    if any(name not in attributes for name in names):
        return None
    return re.sub(r"{([^}]+)}", lambda match: str(attributes[match.group(1)]), template)


_CHECKED_ELSEWHERE = ("gen_ai.operation.name", "mcp.method.name", "error.type")
_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "int": (int,), "double": (float,), "boolean": (bool,)}


def _types(subject: str, attributes: Mapping[str, Any]) -> Iterable[Finding]:
    for key, value in attributes.items():
        entry = _registered(key)
        if entry is None:
            continue
        if not _has_type(value, entry["type"]):
            yield Finding("types", key, subject, f"{entry['type']} expected, {type(value).__name__} sent")
        elif entry.get("json_schema"):
            for fault in shape_faults(entry["json_schema"], value, reference()["messages"]):
                yield Finding("message_shape", key, subject, fault)
        elif "enum" in entry and key not in _CHECKED_ELSEWHERE and value not in entry["enum"]:
            yield Finding("enum", key, subject, f"{value!r} is not among the known values", "information")


def _has_type(value: Any, wanted: str) -> bool:
    if wanted == "any":
        return isinstance(value, (str, list, dict))
    if wanted.endswith("[]"):
        return isinstance(value, list) and all(_has_type(item, wanted[:-2]) for item in value)
    if isinstance(value, bool) and wanted != "boolean":
        return False
    return isinstance(value, _TYPES[wanted])


def _cache_subset(span: Span) -> Iterable[Finding]:
    def count(*keys: str) -> int:
        return sum(v for key in keys if isinstance(v := span.attributes.get(f"gen_ai.usage.{key}"), int))

    for total, parts in (
        ("input_tokens", ("cache_read.input_tokens", "cache_write.input_tokens")),
        ("output_tokens", ("reasoning.output_tokens",)),
        ("input_tokens", tuple(f"{m}.input_tokens" for m in ("text", "image", "audio"))),
        ("output_tokens", tuple(f"{m}.output_tokens" for m in ("text", "image", "audio"))),
    ):
        if f"gen_ai.usage.{total}" in span.attributes and count(*parts) > count(total):
            yield Finding("cache_subset", f"gen_ai.usage.{total}", span.name, f"less than {' + '.join(parts)}")


def _conversation(span: Span, rules: Rules) -> Iterable[Finding]:
    value = span.attributes.get("gen_ai.conversation.id")
    if value is None:
        return
    ours = {v for key, v in span.attributes.items() if key.startswith(OWN_PREFIX)}
    made_up = value in (span.trace_id, span.span_id, span.parent_id) or value in ours
    if made_up or (rules.conversation_ids is not None and value not in rules.conversation_ids):
        yield Finding("conversation_id", "gen_ai.conversation.id", span.name, "not an id that the application has")


def check_metrics(metrics: Iterable[Metric], rules: Rules | None = None) -> list[Finding]:
    """Checks name, instrument, unit, buckets and the attributes of every point. Metrics under `amfs.` are ours."""
    chosen = rules or Rules()
    return sorted(finding for metric in metrics for finding in _metric_findings(metric, chosen))


def _metric_findings(metric: Metric, rules: Rules) -> Iterable[Finding]:
    if metric.name.startswith(OWN_PREFIX):
        for attributes, _ in metric.points:
            for key in attributes:
                if not key.startswith(OWN_PREFIX):
                    yield Finding("undeclared", key, metric.name, "our own metrics carry our own attributes only")
        return
    definition = _metric_definition(metric, rules)
    if definition is None:
        yield Finding("undeclared", metric.name, metric.name, "no such metric")
        return
    if _is_legacy_metric(metric, rules) and not rules.dual:
        yield Finding("legacy", metric.name, metric.name, "a legacy metric")
    for what, sent, wanted in (
        ("instrument", metric.instrument, definition["instrument"]),
        ("unit", metric.unit, definition["unit"]),
        ("buckets", metric.buckets, tuple(float(b) for b in definition.get("bucket_boundaries") or ())),
    ):
        if sent != wanted:
            level = "warning" if what == "buckets" and definition.get("buckets_status") else "failure"
            yield Finding(what, metric.name, metric.name, f"{wanted} expected, {sent} sent", level)
    if definition.get("status"):
        yield Finding("unsettled", metric.name, metric.name, definition["status"], "warning")
    for attributes, _ in metric.points:
        yield from _point(metric, attributes, definition)


def _metric_definition(metric: Metric, rules: Rules) -> dict[str, Any] | None:
    for profile in (rules.profile, BASE_PROFILE):
        for definition in reference()["profiles"][profile]["metrics"]:
            if definition["name"] == metric.name:
                return definition
    return None


def _is_legacy_metric(metric: Metric, rules: Rules) -> bool:
    legacy = reference()["legacy"]["metrics"]
    if rules.profile in legacy.get(metric.name, {}).get("applies_to", ()):
        return True
    qualified = legacy.get(f"{metric.name}@inference", {})
    operations = {"chat", "generate_content", "text_completion", "embeddings"}
    measured = {attributes.get("gen_ai.operation.name") for attributes, _ in metric.points}
    return rules.profile in qualified.get("applies_to", ()) and bool(measured & operations)


def _point(metric: Metric, attributes: Mapping[str, Any], definition: dict[str, Any]) -> Iterable[Finding]:
    yield from _types(metric.name, attributes)
    declared = definition["attributes"]
    for key, entry in declared.items():
        if entry["level"] == "required" and key not in attributes:
            yield Finding("required", key, metric.name, "required on every point")
    for key in attributes:
        if key not in declared:
            yield Finding("misplaced", key, metric.name, "not an attribute of this metric")
    if "server.address" in attributes and "server.port" in declared and "server.port" not in attributes:
        yield Finding("port_needs_address", "server.port", metric.name, "server.address stands alone")


def check_logs(logs: Iterable[LogEvent], rules: Rules | None = None) -> list[Finding]:
    """Checks log-based events; records without an event name are not ours."""
    chosen = rules or Rules()
    return sorted(finding for event in logs if event.name for finding in _log_findings(event, chosen))


def _log_findings(event: LogEvent, rules: Rules) -> Iterable[Finding]:
    if event.name.startswith(OWN_PREFIX):
        return
    if event.name in reference()["legacy"]["events"]:
        if not rules.dual:
            yield Finding("legacy", event.name, event.name, "a legacy event")
        return
    known = {entry["name"]: entry for entry in reference()["profiles"][rules.profile]["events"]}
    if event.name not in known:
        yield Finding("undeclared", event.name, event.name, "no such event")
        return
    yield from _keys(event.name, event.attributes, rules)
    yield from _types(event.name, event.attributes)
    declared = known[event.name]["attributes"]
    for key, entry in declared.items():
        if entry["level"] == "required" and key not in event.attributes:
            yield Finding("required", key, event.name, "required on this event")
    for key in event.attributes:
        if _registered(key) is not None and key not in declared:
            yield Finding("misplaced", key, event.name, "not an attribute of this event")
