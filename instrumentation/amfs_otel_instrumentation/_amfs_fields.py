"""The pure half of the AMFS patch: arguments and return values → fields of events (docs/trace-document.md).

Everything here runs in the agent's thread on values that may be hostile. No method of an application's value is
called: types are compared, texts are shared or bounded, containers are copied with `capture.snapshot`. Entries are the
SDK's own pydantic models, whose fields it has validated.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, cast

from amfs_otel.capture import name, snapshot

RESULT_LIMIT = 20
"""Results of a query that are named; all are counted."""

INFRASTRUCTURE = frozenset({"_langgraph_checkpoints", "_langchain_chat", "_autogen_memory", "crewai"})
"""First segments of paths under which the published framework integrations keep their own state."""

REMOTE_ADAPTERS = frozenset({"amfs_adapter_http", "amfs_postgres", "amfs_s3"})

_ENTRY = ("entity_path", "key")
_POSITIONAL: dict[str, tuple[str, ...]] = {
    "read": _ENTRY,
    "recall": _ENTRY,
    "read_from": ("agent_id", *_ENTRY),
    "write": (*_ENTRY, "value"),
    "semantic_search": ("text",),
    "retrieve": ("query",),
    "my_entries": ("entity_path",),
    "list": ("entity_path",),
    "info": ("entity_path",),
    "tree": ("max_depth",),
    "briefing": ("entity_path", "agent_id", "limit", "branch", "credit_reuse", "compact", "since", "environment"),
    "record_context": ("label", "summary"),
    "record_action": ("tool_name", "arguments"),
    "commit_outcome": ("outcome_ref", "outcome_type", "causal_entry_keys"),
    "explain": ("outcome_ref",),
    **dict.fromkeys(("room_join", "room_leave", "room_discuss"), ("room_id",)),
    **dict.fromkeys(("negotiate_create", "negotiate_propose", "negotiate_respond"), ("room_id",)),
}
_NAMES = frozenset({"entity_path", "entity_paths", "agent_id", "pattern_ref", "branch"})
_NUMBERS = frozenset(
    {
        "abstain", "compact", "credit_reuse", "depth", "include_artifacts", "include_priors", "include_superseded",
        "limit", "max_confidence", "max_depth", "min_confidence", "min_similarity",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What a read gave: version, confidence, value, and the record of the window in which it was read."""

    version: int | None
    confidence: float | None
    value: Any
    record_id: str


def arguments_from_call(operation: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name."""
    return {**dict(zip(_POSITIONAL.get(operation, ()), args, strict=False)), **kwargs}


def start_ns_from_duration(milliseconds: Any) -> int:
    """When something began that is reported now and took so long; now where that cannot be true."""
    now_ns = time.time_ns()
    known = type(milliseconds) in (int, float) and 0 <= milliseconds < 86_400_000
    return now_ns - int(milliseconds * 1_000_000) if known else now_ns


def _place(memory: Any, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    path, branch = name(arguments.get("entity_path")), arguments.get("branch")
    fields: dict[str, Any] = {
        "operation": operation,
        "entity_path": path,
        "key": name(arguments.get("key")),
        "branch": name(branch if type(branch) is str and branch else memory.branch),
        "namespace": name(memory.namespace),
    }
    if path is not None and path.partition("/")[0] in INFRASTRUCTURE:
        fields["infrastructure"] = True
    if type(memory.adapter).__module__.partition(".")[0] in REMOTE_ADAPTERS:
        fields["remote"] = True
    return fields


def read_from_arguments(memory: Any, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a read when it starts."""
    fields = _place(memory, operation, arguments)
    if operation == "read_from":
        fields["other_agent_id"] = name(arguments.get("agent_id"))
    return fields


def read_from_entry(entry: Any) -> dict[str, Any]:
    """What a read gave; a refused read gives nothing, as it gave the agent nothing."""
    if entry is None:
        return {"found": False}
    return {
        "found": True,
        "version": _number(entry.version),
        "confidence": _number(entry.confidence),
        "memory_type": _word(entry.memory_type),
        "evidence_status": _word(getattr(entry, "evidence_status", None)),
        "written_by": name(entry.provenance.agent_id),
        "value": snapshot(entry.value),
    }


def _version(entry: Any) -> dict[str, Any]:
    return {"entity_path": name(entry.entity_path), "key": name(entry.key), "version": _number(entry.version)}


def interaction_from_read(memory: Any, entry: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The meeting of two agents in a `read_from`."""
    agents = {"this_agent_id": name(memory.agent_id), "other_agent_id": name(arguments.get("agent_id"))}
    return {"direction": "read_from", **agents, **_version(entry)}


def query_from_arguments(memory: Any, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a query when it starts: numbers and names one by one, all other parameters as one text."""
    parameters: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in arguments.items():
        if value is None:
            continue
        if key in ("query", "text"):
            parameters["query"] = snapshot(value)
        elif key in _NAMES:
            parameters[key] = [name(item) for item in value] if type(value) in (list, tuple) else name(value)
        elif key in _NUMBERS and type(value) in (bool, int, float):
            parameters[key] = value
        elif key == "since" and type(value) is datetime:
            parameters[key] = value.isoformat()
        else:
            others[key] = snapshot(value)
    if others:
        parameters["other_parameters"] = others
    fields = _place(memory, operation, arguments)
    del fields["entity_path"], fields["key"]
    return {**fields, "parameters": parameters}


def query_result_from_return(result: Any) -> dict[str, Any]:
    """How many results a query gave, and the first of them."""
    if isinstance(result, list):
        found = cast("list[Any]", result)
        return {"result_count": len(found), "results": [*_results(found[:RESULT_LIMIT])]}
    if isinstance(result, dict):
        return {"result_count": len(cast("dict[Any, Any]", result))}
    return {"result_count": _number(getattr(result, "entry_count", None))}


def _results(found: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for item in found:
        entry, score = _scored(item)
        if entry is not None:
            yield {**_version(entry), "confidence": _number(entry.confidence), "score": _number(score)}


def _scored(item: Any) -> tuple[Any, Any]:
    """Entry and score of a result: an entry, a scored entry or a pair of both; digests and names have neither."""
    if type(item) is tuple:
        entry, score = cast("tuple[Any, Any]", item)
    else:
        entry, score = getattr(item, "entry", item), getattr(item, "score", None)
    return (entry, score) if hasattr(entry, "provenance") else (None, None)


def reads_from_return(operation: str, result: Any, booked: frozenset[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a `retrieve` or `briefing` put into the causal chain: the entry and what its read gave.

    Args:
        operation: Name of the call.
        result: What it returned.
        booked: Entries that the tracker counted as read meanwhile.
    """
    if operation == "retrieve":
        for item in cast("list[Any]", result)[:1]:
            entry, _ = _scored(item)
            if entry is not None and entry.entry_key in booked:
                yield entry.entry_key, read_from_entry(entry)
    elif operation == "briefing":
        yield from _surfaced(result, booked)


def _surfaced(digests: Any, booked: frozenset[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    named: set[str] = set()
    for digest in cast("list[Any]", digests):
        summary: Any = getattr(digest, "summary", None)
        for facts in dicts_from_list(summary.get("hot_context") if type(summary) is dict else None):  # pyright: ignore[reportUnknownMemberType]
            entry_key = f"{name(facts.get('entity_path'))}/{name(facts.get('key'))}"
            if entry_key in booked and entry_key not in named:
                named.add(entry_key)
                fields = {
                    "found": True,
                    "version": _number(facts.get("version")),
                    "confidence": _number(facts.get("confidence")),
                    "memory_type": _word(facts.get("memory_type")),
                    "evidence_status": _word(facts.get("evidence_status")),
                    "written_by": name(facts.get("agent")),
                    "value": snapshot(facts.get("value")),
                }
                yield entry_key, fields


def write_from_arguments(memory: Any, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a write when it starts; the value too, so that a failed write says what it was about."""
    fields = _place(memory, operation, arguments)
    if "value" in arguments:
        fields["value"] = snapshot(arguments["value"])
    refs = arguments.get("pattern_refs")
    if type(refs) in (list, tuple):
        fields["pattern_refs"] = [name(ref) for ref in cast("list[Any]", refs)]
    return fields


def write_from_entry(entry: Any, arguments: Mapping[str, Any], seen: Seen | None) -> dict[str, Any]:
    """What a write made of the entry that was `seen` in the same window."""
    fields = _written(entry)
    if entry.value is not arguments.get("value"):
        # A conflict handler chose another value.
        fields["value"] = snapshot(entry.value)
    if seen is not None and seen.version == fields["previous_version"]:
        fields["previous_value"] = seen.value
    return fields


def _written(entry: Any) -> dict[str, Any]:
    version = _number(entry.version)
    return {
        "version": version,
        "previous_version": version - 1 if version is not None and version > 1 else None,
        "created": version == 1,
        "confidence": _number(entry.confidence),
        "memory_type": _word(entry.memory_type),
        "shared": _number(entry.shared),
        "commit_id": name(entry.commit_id),
    }


def transaction_from_commit(commit: Any) -> dict[str, Any]:
    """What a transaction committed."""
    return {
        "commit_id": name(commit.id),
        "commit_parents": [name(parent) for parent in commit.parent_ids],
        "entry_count": len(commit.entries),
        "summary": commit.message or None,
    }


def writes_from_transaction(memory: Any, entries: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The writes of a transaction."""
    for entry in entries:
        arguments = {"entity_path": entry.entity_path, "key": entry.key, "branch": entry.branch, "value": entry.value}
        refs = [name(ref) for ref in entry.provenance.pattern_refs] or None
        place = write_from_arguments(memory, "transaction", arguments)
        yield {**place, "pattern_refs": refs, **_written(entry)}


def context_from_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A `record_context`."""
    return {
        "label": name(arguments.get("label")),
        "summary": arguments.get("summary"),
        "source_name": name(arguments.get("source")),
        "automatic": False,
        "recorded_us": time.time_ns() // 1000,
    }


def action_from_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A `record_action`, or one of the `tool_calls` of a commit: a call that the application reports."""
    success, result = arguments.get("success", True), arguments.get("result", arguments.get("result_summary"))
    return {
        "tool_name": name(arguments.get("tool_name")) or "",
        "arguments": snapshot(arguments.get("arguments")),
        "result": None if result == "" else snapshot(result),
        "source_name": name(arguments.get("source")),
        "success": success if type(success) is bool else None,
        "action_key": name(arguments.get("action_key")),
        "observed": "reported",
    }


def model_call_from_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A `record_llm_call`, or one of the `llm_calls` of a commit: a call that the application reports."""
    return {
        "operation": "chat",
        "provider": name(record.get("provider")) or None,
        "model": name(record.get("model")),
        "call_id": name(record.get("call_id")),
        "input_tokens": _number(record.get("input_tokens")),
        "output_tokens": _number(record.get("output_tokens")),
        "reported_cost_usd": _number(record.get("cost_usd")),
        "observed": "reported",
    }


def attempt_from_record(record: Any, seen: Mapping[str, Seen]) -> dict[str, Any]:
    """A `record_attempt`: what was tried and failed."""
    return {
        "attempt_number": _number(record.attempt),
        "outcome_type": _word(record.outcome_type),
        "success": False,
        "causal_keys": [_entry_name(key, seen.get(key)) for key in record.causal_entry_keys],
        "action_indices": list(record.action_indices),
        "lesson": record.summary,
    }


def room_act_from_arguments(memory: Any, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """An act in a room of agents; its texts stay with the room."""
    room = name(arguments.get("room_id"))
    return {"direction": operation, "this_agent_id": name(memory.agent_id), "store_id": room}


def outcome_from_arguments(arguments: Mapping[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """The fields of an outcome, without what it is credited to; `attributes` are those that the session gathered."""
    own: Any = arguments.get("attributes")
    gathered: dict[str, Any] = {**attributes, **own} if type(own) is dict else attributes
    weight, covariates = arguments.get("causal_confidence"), arguments.get("covariates")
    others = {"causal_confidence": _number(weight), "covariates": snapshot(covariates)}
    return {
        "outcome_ref": name(arguments.get("outcome_ref")),
        "outcome_type": _word(arguments.get("outcome_type")),
        "decision_summary": arguments.get("decision_summary"),
        "source_name": name(arguments.get("verified_by")),
        "situation": arguments.get("situation"),
        "evidence": snapshot(arguments.get("evidence")),
        "attributes": snapshot(gathered) if gathered else None,
        "other_parameters": others if weight is not None or covariates is not None else None,
        "input_text": arguments.get("task_input"),
        "result": arguments.get("response_text"),
    }


def causal_keys_from_call(
    arguments: Mapping[str, Any], tracked: Iterable[str], seen: Mapping[str, Seen]
) -> list[dict[str, Any]]:
    """The entries that an outcome is credited to (named ones, else `tracked`), with the version that a read showed."""
    named: Any = arguments.get("causal_entry_keys")
    keys: Iterable[Any] = tracked if named is None else named if type(named) in (list, tuple) else ()
    return [_entry_name(key, seen.get(key) if type(key) is str else None) for key in keys]


def _entry_name(entry_key: Any, seen: Seen | None) -> dict[str, Any]:
    path, _, key = (name(entry_key) or "").rpartition("/")
    fields = {"entity_path": path, "key": key}
    return fields if seen is None else {**fields, "version": seen.version}


def changes_from_entries(entries: Any, seen: Mapping[str, Seen]) -> list[dict[str, Any]]:
    """What an outcome did to the confidence of each entry: as read against the version that the commit made."""
    return [_change(entry, seen.get(entry.entry_key)) for entry in entries if hasattr(entry, "provenance")]


def _change(entry: Any, seen: Seen | None) -> dict[str, Any]:
    before, after, version = seen.confidence if seen else None, _number(entry.confidence), _number(entry.version)
    read = seen.version if seen else None
    return {
        "entity_path": name(entry.entity_path),
        "key": name(entry.key),
        "before": before,
        "after": after,
        "version_before": read,
        "version_after": version,
        "direction": _direction(before, after, _word(getattr(entry, "evidence_status", None)) == "discredited"),
        "raced": None if read is None else version != read + 1,
    }


def _direction(before: float | None, after: float | None, discredited: bool) -> str | None:
    """`None` where nobody read the entry before: only the store may know."""
    if discredited and (before is None or after is None or after <= before):
        return "discredited"
    if before is None or after is None:
        return None
    return "raised" if after > before else "lowered" if after < before else "unchanged"


def _number(value: Any) -> Any:
    return value if type(value) in (int, float, bool) else None


def _word(value: Any) -> str | None:
    """The text of an enumeration's member, or a name."""
    return name(value.value if issubclass(cast("type[Any]", type(value)), Enum) else value)


def dicts_from_list(value: Any) -> list[dict[str, Any]]:
    """The dicts in a list, for what the SDK itself reads with care."""
    items = cast("list[Any]", value) if type(value) is list else []
    return [item for item in items if type(item) is dict]
