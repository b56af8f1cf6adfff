"""What each kind of step becomes in ``explain --json``: one function per key, reading `docs/trace-document.md`.

A field is read by its name, everywhere in the same way (`fields`): a value of another type than the field's is unknown,
a `Text` is handed on as it stands. `texts.resolved` then turns an answer into plain JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from amfs_otel.graph.pricing import cost_of
from amfs_otel.graph.steps import Step, created
from amfs_otel.graph.texts import Text, flag, integer, items, members, real, said, summarised
from amfs_otel.graph.times import rfc3339
from amfs_otel.model import Kind

Item: TypeAlias = dict[str, Any]

SUMMARY_CHARACTERS = 2000
"""How much of a tool's result ``result_summary`` shows."""


def _as_it_is(value: Any) -> Any:
    return value


def _list(value: Any) -> list[Any] | None:
    """A list of names or texts, None where there is none."""
    return [one if isinstance(one, str | Text) else None for one in items(value)] if isinstance(value, list) else None


_READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("value", "previous_value", "summary", "decision_summary", "parameters", "arguments"), _as_it_is),
    **dict.fromkeys(("pattern_refs", "alternatives", "inputs"), _list),
    **dict.fromkeys(("version", "previous_version", "version_before", "version_after", "result_count"), integer),
    **dict.fromkeys(("input_tokens", "cached_tokens", "cache_write_tokens"), integer),
    **dict.fromkeys(("output_tokens", "reasoning_tokens"), integer),
    **dict.fromkeys(("confidence", "before", "after", "score", "temperature"), real),
    **dict.fromkeys(("automatic", "synthetic", "raced", "stream"), flag),
}
"""How a field is read, by its name; all others are strings."""


def fields(event: Mapping[str, Any], *names: str) -> Item:
    """Fields of an event, or of an item of a list in it, under their own names; None where unknown."""
    return {name: _READERS.get(name, said)(event.get(name)) for name in names}


def located(step: Step, item: Item) -> Item:
    """`item` with what every item carries: where it comes from."""
    item |= {"step": step.number, "event_id": said(step.event.get("id")), "span_id": said(step.event.get("span"))}
    if step.event.get("agent") is not None:
        item["agent_id"] = step.agent
    if step.event.get("status") not in (None, "ok"):
        item["step_status"] = step.event.get("status")
    if step.amended_by is not None:
        item["amended_by"] = step.amended_by
    return item


def causal_entry(step: Step) -> Item:
    """``causal_entries``: a memory entry as the agent saw it."""
    entry = fields(step.event, "entity_path", "key", "version", "value", "confidence", "memory_type", "written_by")
    entry |= {"read_at": step.at, "duration_ms": step.duration_ms}
    return located(step, entry | fields(step.event, "operation", "evidence_status"))


def external_context(step: Step) -> Item:
    """``external_contexts``: something consulted outside memory."""
    item = fields(step.event, "label", "summary", "automatic")
    item["source"] = said(step.event.get("source_name"))
    item["recorded_at"] = rfc3339(step.event.get("recorded_us")) or step.at
    return located(step, item)


def query_event(step: Step) -> Item:
    """``query_events``: a search, list or retrieval, with what it asked and what it found."""
    results = step.event.get("results")
    item = fields(step.event, "operation", "parameters", "result_count")
    item["operation"] = item["operation"] or step.kind
    item["duration_ms"] = step.duration_ms
    item["results"] = [_query_result(members(one)) for one in items(results)] if isinstance(results, list) else None
    item["queried_at"] = step.started_at
    return located(step, item)


def _query_result(result: Mapping[str, Any]) -> Item:
    known = (name for name in ("score", "confidence", "document_id") if result.get(name) is not None)
    return fields(result, "entity_path", "key", "version", *known)


def write_event(step: Step, read_before: Mapping[str, Step] | None = None) -> Item:
    """``write_events``: a version of an entry that this window made.

    Args:
        step: The write.
        read_before: Entry → its newest read in the window before this write; gives the previous value where the
            write itself does not hold it.
    """
    event = step.event
    item = fields(
        event, "entity_path", "key", "version", "value", "previous_version", "previous_value", "confidence",
        "memory_type", "pattern_refs", "synthetic",
    )  # fmt: skip
    earlier = (read_before or {}).get(step.entry or "")
    if item["previous_value"] is None and earlier is not None and _is_previous(earlier, event):
        item["previous_value"] = earlier.event.get("value")
    item |= {"written_at": step.at, "duration_ms": step.duration_ms, "written_by": step.agent}
    return located(step, item | {"created": created(event)})


def _is_previous(read: Step, write: Mapping[str, Any]) -> bool:
    version = integer(read.event.get("version"))
    return version is not None and version == integer(write.get("previous_version"))


def tool_call(step: Step) -> Item:
    """``tool_calls``: a function that ran, or that the messages show to have run."""
    event = step.event
    result = event.get("result")
    item = fields(event, "call_id", "tool_name", "arguments", "observed")
    item |= {
        "result_summary": summarised(result, SUMMARY_CHARACTERS),
        "result_hash": getattr(result, "commitment", None),
        "started_at": step.started_at,
        "duration_ms": step.duration_ms,
        "source": said(event.get("source_name")) or said(event.get("source")),
        "success": _succeeded(event),
    }
    return located(step, item)


def _succeeded(event: Mapping[str, Any]) -> bool | None:
    told = flag(event.get("success"))
    return told if told is not None else {"ok": True, "error": False}.get(str(event.get("status")))


def llm_call(step: Step, inputs: Sequence[Item] = ()) -> Item:
    """``llm_calls``: one call of a model; money is derived here, the record holds only what a provider reported.

    Args:
        step: The call.
        inputs: Where what it took in comes from; see `inputs.Inputs.into`.
    """
    event = step.event
    cost_usd, cost_source = cost_of(event)
    reasons = items(event.get("finish_reasons"))
    item = fields(
        event, "model", "provider", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens",
        "temperature", "status", "error_type", "operation", "response_model", "response_id", "cache_write_tokens",
        "stream", "stream_exit",
    )  # fmt: skip
    item |= {
        "call_id": said(event.get("id")),
        "cost_usd": cost_usd,
        "cost_source": cost_source,
        "latency_ms": step.duration_ms,
        "finish_reason": said(reasons[0]) if reasons else None,
        "error": said(event.get("error_message")) or item["error_type"],
        "started_at": step.started_at,
        "inputs": list(inputs),
    }
    return located(step, item)


def agent_interaction(step: Step) -> Item:
    """``agent_interactions``: one agent met another through memory."""
    names = ("direction", "this_agent_id", "other_agent_id", "entity_path", "key", "version")
    return located(step, fields(step.event, *names) | {"occurred_at": step.at})


def statement(step: Step) -> Item:
    """``decisions``: what `record_decision` said."""
    stated = fields(step.event, "summary", "alternatives", "inputs", "confidence")
    return located(step, stated | {"recorded_at": step.at})


def error_event(step: Step) -> Item:
    """``error_events``: a step that failed, of whatever kind."""
    event = step.event
    item = {"kind": step.kind, "message": said(event.get("error_message")), "occurred_at": step.at}
    known = (name for name in ("entity_path", "key", "tool_name", "model") if event.get(name) is not None)
    return located(step, item | fields(event, "error_type", "operation", *known))


def confidence_change(step: Step) -> Item:
    """``state_diff.confidence_changes``: an outcome moved a confidence; what it was before, the window had read."""
    names = ("entity_path", "key", "before", "after", "version_before", "version_after", "direction", "raced")
    item = fields(step.event, *names, "before_from")
    if item["before"] is not None:
        item["before_from"] = item["before_from"] or "read"
    return located(step, item)


def outcome(step: Step, record_id: str) -> Item:
    """``outcomes``: what was said about how a decision ended. ``confidence_changes`` are added by the caller."""
    item = fields(step.event, "outcome_ref", "outcome_type", "decision_summary", "score")
    item |= {"source": said(step.event.get("source_name")), "recorded_at": step.at}
    return located(step, {"record_id": record_id} | item)


def bare_event(step: Step) -> Item:
    """Any event, all its own fields: what ``show`` prints, and the detail of kinds that `explain` does not name."""
    known = {"id", "kind", "seq", "start_us", "end_us", "status", "parent", "trace", "span", "agent"}
    return located(step, {key: value for key, value in step.event.items() if key not in known})


ITEM_OF_KIND: Mapping[str, Callable[[Step], Item]] = {
    Kind.MEMORY_READ: causal_entry,
    Kind.CONTEXT: external_context,
    Kind.MEMORY_QUERY: query_event,
    Kind.RETRIEVAL: query_event,
    Kind.TOOL_CALL: tool_call,
    Kind.AGENT_INTERACTION: agent_interaction,
    Kind.STATEMENT: statement,
}
"""The item of each kind, for the kinds that need nothing but the step itself."""
