"""One record -> the rows of the projection. Pure; `projection` writes them.

Everything in a row comes from the record and the amendments of it, except an outcome's decision, a change's earlier
confidence and the paused trace that a decision continues, which only the tables know; the projector fills these in.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from amfs_otel.graph.continuation import thread_of
from amfs_otel.graph.documents import Document
from amfs_otel.graph.edges import fits_index
from amfs_otel.graph.explain import Earlier, change_of, outcomes_of, writes_of
from amfs_otel.graph.inputs import Inputs, inputs_of
from amfs_otel.graph.step_items import ITEM_OF_KIND, bare_event, llm_call, write_event
from amfs_otel.graph.steps import MODEL_KINDS, Step, causal_steps, is_write
from amfs_otel.graph.texts import flag, integer, items, members, real, resolved, shown, word
from amfs_otel.graph.times import moment, span_ms
from amfs_otel.model import Kind

Row = dict[str, Any]

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """What one decision or outcome record adds, outcomes' decisions aside.

    Attributes:
        decision: Row of ``decision``, None for an outcome record.
        steps: Rows of ``step``.
        outcomes: Rows of ``outcome`` without their decision.
        events: The steps themselves, for edges.
        causal: Entries that the decision rests on, in order.
    """

    decision: Row | None
    steps: list[Row]
    outcomes: list[Row]
    events: Sequence[Step]
    causal: list[str]


def rows_of(document: Document, steps: Sequence[Step], earlier: Earlier | None = None) -> Rows:
    """Returns the rows of a sealed decision or outcome record.

    Args:
        document: The record, with its entry.
        steps: Its steps, amendments laid over them.
        earlier: Where to look for the confidence before a change that the window itself did not read.
    """
    causal = causal_steps(steps)
    written = {step.number: read for step, read in writes_of(steps)}
    causal_numbers = {step.number for step in causal}
    # The rows hold only what model calls took in, and few of them did.
    took = any(step.event.get("answered_tools") for step in steps)
    inputs = inputs_of(document, steps) if took else Inputs()
    rows = [
        _step_row(document, step, _item(step, written.get(step.number), inputs, earlier), step.number in causal_numbers)
        for step in steps
    ]
    return Rows(
        decision=_decision_row(document, steps, rows) if document.kind == "decision" else None,
        steps=rows,
        outcomes=_outcome_rows(document, steps, earlier),
        events=steps,
        causal=[step.entry for step in causal if step.entry is not None],
    )


def captured_at(document: Document) -> datetime:
    """When the record was closed; the epoch where its header says nothing readable."""
    try:
        return datetime.fromisoformat(document.captured_at or "").astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def _item(step: Step, read_before: Any, inputs: Inputs, earlier: Earlier | None) -> dict[str, Any]:
    if step.kind == Kind.MEMORY_WRITE:
        return write_event(step, read_before)
    if step.kind in MODEL_KINDS:
        return llm_call(step, inputs.into(step))
    if step.kind == Kind.CONFIDENCE_CHANGE:
        return change_of(step, earlier)
    return ITEM_OF_KIND.get(step.kind, bare_event)(step)


class Sight(NamedTuple):
    """The entry that a step touched, as it was read or written; after a confidence change, as it became."""

    entry: str | None
    version: int | None
    confidence: float | None


def sight_of(step: Step) -> Sight:
    """What a step shows of an entry; None where it does not say, or where no column can hold it."""
    changed = step.kind == Kind.CONFIDENCE_CHANGE
    entry = step.entry
    return Sight(
        entry if entry is not None and fits_index(entry) else None,
        _count(step.event.get("version_after" if changed else "version")),
        _real(step.event.get("after" if changed else "confidence")),
    )


def _step_row(document: Document, step: Step, item: dict[str, Any], causal: bool) -> Row:
    event = step.event
    plain = resolved(item)
    detail, withheld = plain.value, plain.withheld
    seen = sight_of(step)
    return {
        "log": document.head.get("log"),
        "record_id": document.record_id,
        "sequence_number": document.sequence_number,
        "number": step.number,
        "event_id": _short(event.get("id")),
        "kind": step.kind[:64],
        "source": _short(event.get("source")),
        "agent_id": _short(step.agent),
        "status": _short(event.get("status")),
        "error_type": _short(event.get("error_type")),
        "started_at": moment(event.get("start_us")),
        "ended_at": moment(event.get("end_us")),
        "duration_ms": step.duration_ms,
        "entry": seen.entry,
        "version": seen.version,
        "confidence": seen.confidence,
        "causal": causal,
        "tool_name": _short(event.get("tool_name")),
        "model": _short(event.get("model")),
        "provider": _short(event.get("provider")),
        "input_tokens": _count(event.get("input_tokens")),
        "output_tokens": _count(event.get("output_tokens")),
        "cost_usd": detail.get("cost_usd") if step.kind in MODEL_KINDS else None,
        "cost_source": detail.get("cost_source") if step.kind in MODEL_KINDS else None,
        "detail": {**detail, "infrastructure": True} if step.is_infrastructure else detail,
        "withheld": [one["path"] for one in withheld],
        "amended_by": step.amended_by,
    }


def _decision_row(document: Document, steps: Sequence[Step], rows: Sequence[Row]) -> Row:
    facts = document.facts
    start, end = facts.get("started_us"), facts.get("ended_us")
    continues = document.named_by("continues")
    priced = [row["cost_usd"] for row in rows if row["cost_usd"] is not None]
    names = resolved({"agent_id": facts.get("agent"), "session_id": facts.get("session_id")})
    return {
        "log": document.head.get("log"),
        "record_id": document.record_id,
        "sequence_number": document.sequence_number,
        "trace_id": document.trace,
        "session": document.session,
        "agent_id": _short(facts.get("agent")),
        "session_id": _short(facts.get("session_id") or document.session),
        "opened_by": _short(facts.get("opened_by")),
        "closed_by": _short(facts.get("closed_by")),
        "status": _short(facts.get("status")),
        "inferred": flag(facts.get("inferred")),
        "started_at": moment(start),
        "ended_at": moment(end),
        "captured_at": captured_at(document),
        "duration_ms": span_ms(start, end),
        "events": len(steps),
        "errors": sum(step.event.get("status") == "error" for step in steps),
        "reads": sum(row["causal"] for row in rows),
        "writes": sum(is_write(step) for step in steps),
        "llm_calls": sum(step.kind in MODEL_KINDS for step in steps),
        "tool_calls": sum(step.kind == Kind.TOOL_CALL for step in steps),
        "input_tokens": min(_LARGEST, sum(row["input_tokens"] or 0 for row in rows)),
        "output_tokens": min(_LARGEST, sum(row["output_tokens"] or 0 for row in rows)),
        "cost_usd": sum(priced) if priced else None,
        "service": _short(members(facts.get("origin")).get("service")),
        "thread": thread_of(document),
        "continues": continues,
        "continues_by": "refs" if continues is not None else None,
        "withheld": [one["path"] for one in names.withheld],
    }


def _outcome_rows(document: Document, steps: Sequence[Step], earlier: Earlier | None) -> list[Row]:
    rows: list[Row] = []
    for found in outcomes_of(document.record_id, steps, earlier):
        plain = resolved(found)
        item = plain.value
        when = item["recorded_at"]
        rows.append(
            {
                "log": document.head.get("log"),
                "record_id": document.record_id,
                "number": item["step"],
                "sequence_number": document.sequence_number,
                "outcome_ref": _short(item["outcome_ref"]),
                "outcome_type": _short(item["outcome_type"]),
                "decision_summary": _text(item["decision_summary"]),
                "source": _short(item["source"]),
                "score": _real(item["score"]),
                "recorded_at": datetime.fromisoformat(when) if when else captured_at(document),
                "confidence_changes": item["confidence_changes"],
                "withheld": [one["path"] for one in plain.withheld],
            }
        )
    return rows


COUNTED = (
    "events",
    "errors",
    "reads",
    "writes",
    "llm_calls",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "cost_usd",
)
"""Columns of ``decision`` that are summed per agent and for the log."""


def counts_of(decision: Row) -> dict[tuple[str, str], float]:
    """What a decision adds to the counters: (subject, name) → value."""
    counts: dict[tuple[str, str], float] = {}
    agent = decision["agent_id"]
    for subject in ("log", *([f"agent:{agent}"] if agent is not None else [])):
        counts[subject, "decisions"] = 1
        for name in COUNTED:
            if decision[name]:
                counts[subject, name] = float(decision[name])
    return counts


def json_of_rows(rows: Sequence[Row]) -> str:
    """Rows as the JSON that ``json_populate_recordset`` takes: no NUL, no lone surrogate, no NaN."""
    text = json.dumps(rows, ensure_ascii=False, default=_iso)
    if "NaN" in text or "Infinity" in text or "\\u0000" in text:
        text = json.dumps(_storable(json.loads(text, parse_constant=lambda _: None)), ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _iso(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def _storable(value: Any) -> Any:
    """`value` without the one character that PostgreSQL cannot hold."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in members(value).items()}
    return [_storable(item) for item in items(value)] if isinstance(value, list) else value


def _short(value: Any) -> str | None:
    """A name as an indexed column takes it; None where it is withheld or too long for one."""
    text = word(value)
    return text if text is not None and fits_index(text) else None


def _text(value: Any) -> str | None:
    value = shown(value)
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(value: Any) -> int | None:
    number = integer(value)
    return number if number is not None and -_LARGEST <= number <= _LARGEST else None


def _real(value: Any) -> float | None:
    number = real(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None
