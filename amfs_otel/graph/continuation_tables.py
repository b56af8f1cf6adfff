"""Continuations in the store: the columns ``continues`` of ``decision``, and what is not projected yet beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from amfs_otel.graph.continuation import Place, Stop, continuations, evidence_of_continuation, place_of
from amfs_otel.graph.documents import Document
from amfs_otel.graph.graph_tables import GraphChanges
from amfs_otel.store.connect import Connection
from amfs_otel.store.queries import query


def stored_continuations(connection: Connection, log: str, documents: Sequence[Document]) -> dict[str, str | None]:
    """`continuations` of decisions of a log, in view of all that are projected; inside a snapshot.

    Args:
        connection: Its user needs SELECT only.
        log: Name of the log.
        documents: Decisions, projected or not; those that are not projected must be among them.
    """
    places = [place_of(one) or (None, None, one.record_id) for one in documents if one.kind == "decision"]
    if not places:
        return {}
    rows = connection.execute(query("reading_neighbours"), {"log": log, **_columns(places)}).fetchall()
    given = {record_id for _, _, record_id in places}
    named = {row[2]: row[4] for row in rows if row[4] in given}
    beside = [Stop(Place(*row[:3]), row[3], row[4]) for row in rows if row[0] is not None and row[1] is not None]
    return {**named, **continuations(documents, beside)}


@dataclass(slots=True)
class ContinuationChanges:
    """Collects where a batch changed sessions of one log, and joins again what stands there. See `continuations`."""

    log: str
    places: set[Place] = field(default_factory=set[Place])

    def touch(self, thread: str | None, started_at: datetime | None, record_id: str) -> None:
        """A decision came to this place, or went from it."""
        if thread is not None and started_at is not None:
            self.places.add(Place(thread, started_at, record_id))

    def write(self, connection: Connection, changes: GraphChanges) -> None:
        """Joins them, inside the caller's transaction; the edges go to `changes`."""
        if not self.places:
            return
        parameters = {"log": self.log, **_columns(sorted(self.places))}
        joined = connection.execute(query("projection_continuations"), parameters).fetchall()
        if joined:
            changes.forget(connection, [row[0] for row in joined], "continues")
        for later, earlier, started_at in joined:
            if earlier is not None:
                changes.add_evidence([evidence_of_continuation(later, earlier, started_at)])


def _columns(places: Sequence[Place | tuple[None, None, str]]) -> dict[str, list[Any]]:
    """Places as parameters; one without a session or a time has no neighbours."""
    return {
        "threads": [thread for thread, _, _ in places],
        "times": [started_at for _, started_at, _ in places],
        "ids": [record_id for _, _, record_id in places],
    }
