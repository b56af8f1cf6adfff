"""Rows of ``list``: from the projection, from records that it does not know yet, filtered and sorted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from amfs_otel.graph.documents import Document
from amfs_otel.graph.explain import outcomes_of
from amfs_otel.graph.steps import steps_of
from amfs_otel.graph.texts import resolved, said
from amfs_otel.graph.times import rfc3339, rfc3339_of

DEFAULT_LIMIT = 50

KEYS = (
    "record_id",
    "trace_id",
    "agent_id",
    "session_id",
    "outcome_ref",
    "outcome",
    "started_at",
    "ended_at",
    "events",
    "status",
    "closed_by",
    "sequence_number",
    "continues",
)
"""The keys of a row, in the order in which they are printed."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Which decisions to list. None: any.

    Attributes:
        agent: Name of the agent.
        outcome: Type of the newest outcome.
        ref: A ref of one of its outcomes.
        since: Ended at or after this time (aware).
        until: Ended before this time (aware).
        limit: At most so many, the newest.
        session: The application's session or thread id, else ours.
    """

    agent: str | None = None
    outcome: str | None = None
    ref: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = DEFAULT_LIMIT
    session: str | None = None

    def parameters(self, ids: Sequence[str] | None = None) -> dict[str, Any]:
        """Parameters of ``reading_list``."""
        return {
            "agent": self.agent,
            "session": self.session,
            "outcome": self.outcome,
            "ref": self.ref,
            "since": self.since,
            "until": self.until,
            "ids": None if ids is None else list(ids),
            "limit": max(0, self.limit),
        }


def row_from_columns(columns: Sequence[Any]) -> dict[str, Any]:
    """A row of ``reading_list`` as `fits` takes it."""
    row = dict(zip(("record_id", "trace_id", "agent_id", "session_id"), columns[:4], strict=True))
    ref, outcome_type, started, ended, events, status, closed_by, place, recorded, captured, refs, continues = columns[
        4:
    ]
    row |= {"started_at": started and rfc3339_of(started), "ended_at": ended and rfc3339_of(ended)}
    row |= {"events": events, "status": status, "closed_by": closed_by, "sequence_number": place}
    row["continues"] = continues
    newest = (rfc3339_of(recorded) if recorded else "", outcome_type, ref)
    row["_outcomes"] = [newest] if recorded or ref or outcome_type else []
    row["_refs"] = set(refs or ())
    row["_captured"] = rfc3339_of(captured)
    return row


def list_row(document: Document) -> dict[str, Any]:
    """A row of a record that the projection does not know; it continues the trace that its own record names."""
    steps = steps_of(document)
    facts = document.facts
    found = [resolved(one).value for one in outcomes_of(document.record_id, steps)]
    names = resolved(
        {"agent": said(facts.get("agent")), "session": said(facts.get("session_id")) or document.session}
    ).value
    return {
        "record_id": document.record_id,
        "trace_id": document.trace,
        "agent_id": names["agent"],
        "session_id": names["session"],
        "started_at": rfc3339(facts.get("started_us")),
        "ended_at": rfc3339(facts.get("ended_us")),
        "events": len(steps),
        "status": said(facts.get("status")),
        "closed_by": said(facts.get("closed_by")),
        "sequence_number": document.sequence_number,
        "continues": document.named_by("continues"),
        "_outcomes": [(one["recorded_at"] or "", one["outcome_type"], one["outcome_ref"]) for one in found],
        "_refs": {one["outcome_ref"] for one in found},
        "_captured": document.captured_at or "",
    }


def fits(rows: Iterable[dict[str, Any]], wanted: ListFilter) -> list[dict[str, Any]]:
    """The rows that a filter lets through, newest first, with exactly the keys of ``list --json``."""
    kept = [row | _newest(row) for row in rows]
    kept = [row for row in kept if _fits(row, wanted)]
    kept.sort(key=lambda row: (row["_captured"], row["record_id"]), reverse=True)
    return [{key: row[key] for key in KEYS} for row in kept[: wanted.limit]]


def _newest(row: dict[str, Any]) -> dict[str, Any]:
    _, outcome_type, ref = max(row["_outcomes"], key=lambda one: one[0], default=("", None, None))
    return {"outcome": outcome_type, "outcome_ref": ref}


def _fits(row: dict[str, Any], wanted: ListFilter) -> bool:
    captured = row["_captured"]
    refs = row["_refs"] | {ref for _, _, ref in row["_outcomes"]}
    return (
        wanted.agent in (None, row["agent_id"])
        and wanted.session in (None, row["session_id"])
        and wanted.outcome in (None, row["outcome"])
        and (wanted.ref is None or wanted.ref in refs)
        and (wanted.since is None or captured >= _text(wanted.since))
        and (wanted.until is None or captured < _text(wanted.until))
    )


def _text(when: datetime) -> str:
    return rfc3339_of(when.astimezone(UTC))
