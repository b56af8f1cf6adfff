"""What each kind of step becomes in ``explain --json``: one function per key, reading `docs/trace-document.md`.

Values are handed on as they stand, `Text` objects included; `texts.resolved` turns an answer into plain JSON.
"""

from collections.abc import Callable, Mapping
from typing import Any

from amfs_otel.graph.pricing import cost_of
from amfs_otel.graph.steps import Step, created
from amfs_otel.graph.texts import Text, flag, integer, items, members, real, said, summarised
from amfs_otel.graph.times import rfc3339
from amfs_otel.model import Kind

SUMMARY_CHARACTERS = 2000
"""How much of a tool's result ``result_summary`` shows."""


def _located(step: Step, item: dict[str, Any]) -> dict[str, Any]:
    """`item` with what every item carries: where it comes from."""
    item |= {"step": step.number, "event_id": said(step.event.get("id")), "span_id": said(step.event.get("span"))}
    if step.event.get("agent") is not None:
        item["agent_id"] = step.agent
    if step.event.get("status") not in (None, "ok"):
        item["step_status"] = step.event.get("status")
    if step.amended_by is not None:
        item["amended_by"] = step.amended_by
    return item


def causal_entry(step: Step) -> dict[str, Any]:
    """``causal_entries``: a memory entry as the agent saw it."""
    event = step.event
    return _located(
        step,
        {
            "entity_path": said(event.get("entity_path")),
            "key": said(event.get("key")),
            "version": integer(event.get("version")),
            "value": event.get("value"),
            "confidence": real(event.get("confidence")),
            "memory_type": said(event.get("memory_type")),
            "written_by": said(event.get("written_by")),
            "read_at": step.at,
            "duration_ms": step.duration_ms,
            "operation": said(event.get("operation")),
            "evidence_status": said(event.get("evidence_status")),
        },
    )


def _list(value: Any) -> list[Any] | None:
    """A list of names or texts, None where there is none."""
    return [one if isinstance(one, str | Text) else None for one in items(value)] if isinstance(value, list) else None


def external_context(step: Step) -> dict[str, Any]:
    """``external_contexts``: something consulted outside memory."""
    event = step.event
    return _located(
        step,
        {
            "label": said(event.get("label")),
            "summary": event.get("summary"),
            "source": said(event.get("source_name")),
            "recorded_at": rfc3339(event.get("recorded_us")) or step.at,
            "automatic": flag(event.get("automatic")),
        },
    )


def query_event(step: Step) -> dict[str, Any]:
    """``query_events``: a search or list, with what it asked and what it found."""
    event = step.event
    results = event.get("results")
    return _located(
        step,
        {
            "operation": said(event.get("operation")) or step.kind,
            "parameters": event.get("parameters"),
            "result_count": integer(event.get("result_count")),
            "duration_ms": step.duration_ms,
            "results": [_query_result(result) for result in items(results)] if isinstance(results, list) else None,
            "queried_at": step.started_at,
        },
    )


def _query_result(result: Any) -> dict[str, Any]:
    facts = members(result)
    known = {key: real(facts.get(key)) for key in ("score", "confidence") if facts.get(key) is not None}
    names = {key: said(facts.get(key)) for key in ("entity_path", "key")}
    return names | {"version": integer(facts.get("version"))} | known


def write_event(step: Step, read_before: Mapping[str, Step] | None = None) -> dict[str, Any]:
    """``write_events``: a version of an entry that this window made.

    Args:
        step: The write.
        read_before: Entry → its newest read in the window before this write; gives the previous value where the
            write itself does not hold it.
    """
    event = step.event
    earlier = (read_before or {}).get(step.entry or "")
    previous = event.get("previous_value")
    if previous is None and earlier is not None and _is_previous(earlier, event):
        previous = earlier.event.get("value")
    return _located(
        step,
        {
            "entity_path": said(event.get("entity_path")),
            "key": said(event.get("key")),
            "version": integer(event.get("version")),
            "value": event.get("value"),
            "previous_version": integer(event.get("previous_version")),
            "previous_value": previous,
            "confidence": real(event.get("confidence")),
            "memory_type": said(event.get("memory_type")),
            "pattern_refs": _list(event.get("pattern_refs")),
            "written_at": step.at,
            "duration_ms": step.duration_ms,
            "written_by": step.agent,
            "created": created(event),
            "synthetic": flag(event.get("synthetic")),
        },
    )


def _is_previous(read: Step, write: Mapping[str, Any]) -> bool:
    version = integer(read.event.get("version"))
    return version is not None and version == integer(write.get("previous_version"))


def tool_call(step: Step) -> dict[str, Any]:
    """``tool_calls``: a function that ran, or that the messages show to have run."""
    event = step.event
    result = event.get("result")
    return _located(
        step,
        {
            "call_id": said(event.get("call_id")),
            "tool_name": said(event.get("tool_name")),
            "arguments": event.get("arguments"),
            "result_summary": summarised(result, SUMMARY_CHARACTERS),
            "result_hash": getattr(result, "commitment", None),
            "started_at": step.started_at,
            "duration_ms": step.duration_ms,
            "source": said(event.get("source_name")) or said(event.get("source")),
            "success": _succeeded(event),
            "observed": said(event.get("observed")),
        },
    )


def _succeeded(event: Mapping[str, Any]) -> bool | None:
    said = flag(event.get("success"))
    return said if said is not None else {"ok": True, "error": False}.get(str(event.get("status")))


def llm_call(step: Step) -> dict[str, Any]:
    """``llm_calls``: one call of a model; money is derived here, the record holds only what a provider reported."""
    event = step.event
    cost_usd, cost_source = cost_of(event)
    reasons = items(event.get("finish_reasons"))
    return _located(
        step,
        {
            "call_id": said(event.get("id")),
            "model": said(event.get("model")),
            "provider": said(event.get("provider")),
            "input_tokens": integer(event.get("input_tokens")),
            "cached_tokens": integer(event.get("cached_tokens")),
            "output_tokens": integer(event.get("output_tokens")),
            "reasoning_tokens": integer(event.get("reasoning_tokens")),
            "cost_usd": cost_usd,
            "cost_source": cost_source,
            "latency_ms": step.duration_ms,
            "temperature": real(event.get("temperature")),
            "finish_reason": said(reasons[0]) if reasons else None,
            "status": said(event.get("status")),
            "error": said(event.get("error_message")) or said(event.get("error_type")),
            "error_type": said(event.get("error_type")),
            "operation": said(event.get("operation")),
            "response_model": said(event.get("response_model")),
            "response_id": said(event.get("response_id")),
            "cache_write_tokens": integer(event.get("cache_write_tokens")),
            "stream": flag(event.get("stream")),
            "started_at": step.started_at,
        },
    )


def agent_interaction(step: Step) -> dict[str, Any]:
    """``agent_interactions``: one agent met another through memory."""
    event = step.event
    return _located(
        step,
        {
            "direction": said(event.get("direction")),
            "this_agent_id": said(event.get("this_agent_id")),
            "other_agent_id": said(event.get("other_agent_id")),
            "entity_path": said(event.get("entity_path")),
            "key": said(event.get("key")),
            "version": integer(event.get("version")),
            "occurred_at": step.at,
        },
    )


def statement(step: Step) -> dict[str, Any]:
    """``decisions``: what `record_decision` said."""
    event = step.event
    return _located(
        step,
        {
            "summary": event.get("summary"),
            "alternatives": _list(event.get("alternatives")),
            "inputs": _list(event.get("inputs")),
            "confidence": real(event.get("confidence")),
            "recorded_at": step.at,
        },
    )


def error_event(step: Step) -> dict[str, Any]:
    """``error_events``: a step that failed, of whatever kind."""
    event = step.event
    item = {
        "kind": step.kind,
        "error_type": said(event.get("error_type")),
        "message": said(event.get("error_message")),
        "occurred_at": step.at,
        "operation": said(event.get("operation")),
    }
    for name in ("entity_path", "key", "tool_name", "model"):
        if event.get(name) is not None:
            item[name] = said(event[name])
    return _located(step, item)


def confidence_change(step: Step) -> dict[str, Any]:
    """``state_diff.confidence_changes``: an outcome moved an entry's confidence."""
    event = step.event
    return _located(
        step,
        {
            "entity_path": said(event.get("entity_path")),
            "key": said(event.get("key")),
            "before": real(event.get("before")),
            "after": real(event.get("after")),
            "version_before": integer(event.get("version_before")),
            "version_after": integer(event.get("version_after")),
            "direction": said(event.get("direction")),
            "raced": flag(event.get("raced")),
            "before_from": said(event.get("before_from")),
        },
    )


def outcome(step: Step, record_id: str) -> dict[str, Any]:
    """``outcomes``: what was said about how a decision ended. ``confidence_changes`` are added by the caller."""
    event = step.event
    return _located(
        step,
        {
            "record_id": record_id,
            "outcome_ref": said(event.get("outcome_ref")),
            "outcome_type": said(event.get("outcome_type")),
            "decision_summary": event.get("decision_summary"),
            "source": said(event.get("source_name")),
            "score": real(event.get("score")),
            "recorded_at": step.at,
        },
    )


def bare_event(step: Step) -> dict[str, Any]:
    """Any event, all its own fields: what ``show`` prints, and the detail of kinds that `explain` does not name."""
    known = {"id", "kind", "seq", "start_us", "end_us", "status", "parent", "trace", "span", "agent"}
    return _located(step, {key: value for key, value in step.event.items() if key not in known})


ITEM_OF_KIND: Mapping[str, Callable[[Step], dict[str, Any]]] = {
    Kind.MEMORY_READ: causal_entry,
    Kind.CONTEXT: external_context,
    Kind.MEMORY_QUERY: query_event,
    Kind.RETRIEVAL: query_event,
    Kind.MEMORY_WRITE: write_event,
    Kind.TOOL_CALL: tool_call,
    Kind.LLM_CALL: llm_call,
    Kind.EMBEDDINGS: llm_call,
    Kind.AGENT_INTERACTION: agent_interaction,
    Kind.STATEMENT: statement,
    Kind.CONFIDENCE_CHANGE: confidence_change,
}
"""The item of each kind, for the kinds that need nothing but the step itself."""
