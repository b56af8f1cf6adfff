"""`explanation`: the answer of ``explain --json``, a pure function of documents.

It is the same whether the documents come from the store or from a window that this process has just closed. Which
outcomes and amendments belong to a decision is for the caller to know (the projection, or the records of one session).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from amfs_otel.graph.altered import altered_records
from amfs_otel.graph.continuation import Continuation
from amfs_otel.graph.documents import Document
from amfs_otel.graph.inputs import inputs_of
from amfs_otel.graph.step_items import (
    agent_interaction,
    causal_entry,
    confidence_change,
    error_event,
    external_context,
    llm_call,
    outcome,
    query_event,
    statement,
    tool_call,
    write_event,
)
from amfs_otel.graph.steps import MODEL_KINDS, QUERY_KINDS, Step, causal_steps, created, is_write, steps_of
from amfs_otel.graph.texts import integer, items, members, real, resolved, said, shown
from amfs_otel.graph.times import rfc3339, span_ms
from amfs_otel.model import Kind

Earlier = Callable[[str, int], tuple[float, str] | None]
"""(``entity_path/key``, version) → the confidence in which that version was last seen and the id of the record that
saw it, or None."""


def explanation(
    document: Document,
    *,
    outcomes: Sequence[Document],
    amendments: Sequence[Document] = (),
    others: Sequence[str] = (),
    outcome_ref: str | None = None,
    earlier_than: Callable[[Document], Earlier] = lambda _: _nowhere,
    continuation: Continuation | None = None,
    before: Sequence[Document] = (),
) -> dict[str, Any]:
    """Returns what is known about one decision, with exactly the keys of ``explain --json``.

    Args:
        document: The decision (or an outcome record that judges no decision we know).
        outcomes: Outcome records that were attached to it, in any order; its own commit is added here.
        amendments: Amendment records of it, oldest first.
        others: Ids of older decisions with the same ref, newest first.
        outcome_ref: The ref that was asked for; default: that of its own commit, else of the newest outcome.
        earlier_than: Where to look for the confidence before a change in a record that the record itself did not read.
        continuation: Which traces it continues and is continued by; default: what its own record names.
        before: The trace that it continues, the one which that continues, and so on.
    """
    steps = steps_of(document, amendments)
    known = inputs_of(document, steps, before)
    joined = continuation or Continuation(document.named_by("continues"))
    judgements = _outcomes(document, steps, outcomes, earlier_than)
    own = next((item for item in judgements if item["record_id"] == document.record_id), None)
    main = own or (judgements[0] if judgements else {})
    causal = causal_steps(steps)
    answer = resolved(
        {
            **_identity(document),
            "outcome_ref": outcome_ref if outcome_ref is not None else main.get("outcome_ref"),
            "causal_chain_length": len(causal),
            "decision_summary": main.get("decision_summary"),
            "attributes": _attributes(steps),
            "other_traces": list(others),
            "continues": joined.continues,
            "continued_by": list(joined.continued_by),
            "coverage": {**members(document.facts.get("coverage")), **_kept(document)},
            "inputs": known.items,
            "causal_entries": [causal_entry(step) for step in causal],
            "external_contexts": _items(steps, external_context, Kind.CONTEXT),
            "query_events": _items(steps, query_event, *QUERY_KINDS),
            "write_events": _writes(steps),
            "tool_calls": _items(steps, tool_call, Kind.TOOL_CALL),
            "llm_calls": [llm_call(step, known.into(step)) for step in steps if step.kind in MODEL_KINDS],
            "agent_interactions": _items(steps, agent_interaction, Kind.AGENT_INTERACTION),
            "decisions": _items(steps, statement, Kind.STATEMENT),
            "error_events": [error_event(step) for step in steps if step.event.get("status") == "error"],
            "state_diff": _state_diff(steps, earlier_than(document)),
            "outcomes": judgements,
        },
        checked=True,
    )
    altered = [*altered_records((document, *amendments, *outcomes)), *answer.altered]
    return {**answer.value, "withheld": answer.withheld, "altered": altered}


def _nowhere(_entry: str, _version: int) -> None:
    return None


def _kept(document: Document) -> dict[str, int]:
    """How many texts of messages the record keeps; `show` has them all, `explain` few."""
    record = document.record
    kept = sum(record.classes[part.number - 1] == "m" and part.data is not None for part in record.parts)
    return {"kept_message_texts": kept} if kept else {}


def _identity(document: Document) -> dict[str, Any]:
    facts, record = document.facts, document.record
    return {
        "record_id": document.record_id,
        "kind": document.kind,
        "trace_id": document.trace,
        "agent_id": said(facts.get("agent")),
        "session_id": said(facts.get("session_id")) or document.session,
        "status": said(facts.get("status")),
        "closed_by": said(facts.get("closed_by")),
        "origin": dict(members(facts["origin"])) if "origin" in facts else None,
        "sequence_number": document.sequence_number,
        "content_hash": document.head.get("content_hash"),
        "parent_hash": document.parent_hash,
        "signature": record.signature.hex(),
        "signing_key_id": document.head.get("signing_key_id"),
        "session_started_at": rfc3339(facts.get("started_us")),
        "session_ended_at": rfc3339(facts.get("ended_us")),
        "session_duration_ms": span_ms(facts.get("started_us"), facts.get("ended_us")),
        "events": len(items(facts["events"])) if "events" in facts else None,
    }


def _attributes(steps: Sequence[Step]) -> Any:
    """The attributes of the application's session: an event carries all of them, whenever they have changed."""
    carried = (step.event.get("attributes") for step in reversed(steps))
    return next((one for one in carried if one is not None), None)


def _items(steps: Iterable[Step], item_of: Callable[[Step], dict[str, Any]], *kinds: Kind) -> list[dict[str, Any]]:
    return [item_of(step) for step in steps if step.kind in kinds]


def _writes(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [write_event(step, read) for step, read in writes_of(steps)]


def writes_of(steps: Iterable[Step]) -> list[tuple[Step, Mapping[str, Step]]]:
    """The writes of a window, each with the newest reads before it by entry."""
    read: dict[str, Step] = {}
    writes: list[tuple[Step, Mapping[str, Step]]] = []
    for step in steps:
        if step.kind == Kind.MEMORY_READ and step.event.get("found") is True and step.entry is not None:
            read[step.entry] = step
        elif is_write(step):
            writes.append((step, dict(read)))
    return writes


def _state_diff(steps: Sequence[Step], earlier: Earlier | None) -> dict[str, Any]:
    """What the window changed. Every finished write counts, those of transactions included."""
    made = [created(step.event) for step in steps if is_write(step) and step.event.get("status") == "ok"]
    return {
        "entries_created": made.count(True),
        "entries_updated": made.count(False),
        "confidence_changes": [change_of(step, earlier) for step in steps if step.kind == Kind.CONFIDENCE_CHANGE],
    }


def earlier_versions(steps: Iterable[Step]) -> Iterator[tuple[str, int]]:
    """What `change_of` will ask of `earlier`, for the confidence changes among these steps."""
    for step in steps:
        version = integer(step.event.get("version_after"))
        unknown = step.kind == Kind.CONFIDENCE_CHANGE and real(step.event.get("before")) is None
        if unknown and version is not None and step.entry is not None:
            yield step.entry, version - 1


def change_of(step: Step, earlier: Earlier | None) -> dict[str, Any]:
    """A confidence change; where the window did not read, `before` is what an earlier record saw."""
    change = confidence_change(step)
    after, version = change["after"], integer(change["version_after"])
    if change["before"] is None and earlier is not None and version is not None and step.entry is not None:
        seen = earlier(step.entry, version - 1)
        if seen is not None:
            change["before"], change["before_from"] = seen
            change["version_before"] = version - 1
    if change["direction"] is None and change["before"] is not None and after is not None:
        change["direction"] = _direction(change["before"], after)
    return change


def _direction(before: float, after: float) -> str:
    return "raised" if after > before else "lowered" if after < before else "unchanged"


def _outcomes(
    document: Document, steps: Sequence[Step], attached: Sequence[Document], earlier_than: Callable[[Document], Earlier]
) -> list[dict[str, Any]]:
    """All outcomes of a decision, newest first: its own commit and the records that came later."""
    found = outcomes_of(document.record_id, steps, earlier_than(document))
    for other in attached:
        if other.record_id != document.record_id:
            found += outcomes_of(other.record_id, steps_of(other), earlier_than(other))
    return sorted(found, key=lambda item: (item["recorded_at"] or "", item["record_id"]), reverse=True)


def outcomes_of(record_id: str, steps: Sequence[Step], earlier: Earlier | None = None) -> list[dict[str, Any]]:
    """The outcomes in one record, each with the confidence changes that it caused.

    A change belongs to the outcome that it names as parent, else to the last one before it.
    """
    found: dict[object, dict[str, Any]] = {}
    for step in steps:
        if step.kind == Kind.OUTCOME:
            found[step.event.get("id") or step.number] = {**outcome(step, record_id), "confidence_changes": []}
    if not found:
        return []
    current = next(iter(found.values()))
    for step in steps:
        if step.kind == Kind.OUTCOME:
            current = found[step.event.get("id") or step.number]
        elif step.kind == Kind.CONFIDENCE_CHANGE:
            found.get(step.event.get("parent"), current)["confidence_changes"].append(change_of(step, earlier))
    return list(found.values())


def own_ref(document: Document, steps: Sequence[Step] | None = None) -> str | None:
    """The outcome ref that a record itself commits: its newest outcome's. None without one, or where it is erased."""
    found = outcomes_of(document.record_id, steps_of(document) if steps is None else steps)
    ref = shown(found[-1]["outcome_ref"]) if found else None
    return ref if isinstance(ref, str) else None
