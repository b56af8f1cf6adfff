"""Which records belong together, in one state of the store: outcomes, amendments, continuations of decisions.

The projection says it for the records that it knows; for those that wait for it, their own facts do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amfs_otel.errors import AmfsOtelError, FormatError
from amfs_otel.graph.continuation import Continuation, continuation_in, place_of
from amfs_otel.graph.continuation_tables import stored_continuations
from amfs_otel.graph.documents import Document
from amfs_otel.graph.explain import Earlier
from amfs_otel.graph.loading import load
from amfs_otel.graph.unprojected import Unprojected
from amfs_otel.store.connect import Connection, one_row
from amfs_otel.store.queries import query

LAST = 2**62
CONTINUED = 8
"""So many traces that one continues are looked at for calls of tools whose results it took in."""

PENDING = (
    "SELECT record_id::text FROM amfs_otel.outcome WHERE log = %s AND outcome_ref = %s AND decision_id IS NULL"
    " ORDER BY sequence_number DESC"
)
"""Outcome records that wait for a decision with their ref."""

_JUDGED = "SELECT decision_id::text FROM amfs_otel.outcome WHERE record_id = %s::uuid AND decision_id IS NOT NULL"
_LINKED = (
    "SELECT 'outcomes', decision_id::text, record_id::text, min(sequence_number) AS place FROM amfs_otel.outcome"
    " WHERE decision_id = ANY (%(ids)s::uuid[]) AND record_id <> decision_id GROUP BY decision_id, record_id"
    " UNION ALL"
    " SELECT 'amendments', decision_id::text, record_id::text, sequence_number FROM amfs_otel.amendment"
    " WHERE decision_id = ANY (%(ids)s::uuid[]) ORDER BY place"
)


@dataclass(frozen=True, slots=True)
class _Links:
    """Ids of the projected records that belong to a decision, oldest first."""

    outcomes: list[str]
    amendments: list[str]


class Related:
    """Looks up what belongs to a record. Lives as long as the snapshot that it reads in.

    Args:
        connection: In a snapshot.
        log: Name of the log.
        waiting: The records that the projection does not know.
    """

    def __init__(self, connection: Connection, log: str, waiting: Unprojected) -> None:
        self.waiting = waiting
        self._connection = connection
        self._log = log
        self._linked: dict[str, _Links] = {}
        self._loaded: dict[str, Document] = {}

    def decisions_of_ref(self, ref: str) -> Sequence[str]:
        """Decisions with `ref`, the newest first; those that are not projected are newer than those that are."""
        rows = self._connection.execute(query("reading_decisions_of_ref"), {"log": self._log, "ref": ref}).fetchall()
        late = list(self.waiting.decisions_of_ref(ref))
        projected = [row[0] for row in rows]
        newest = [one for one in reversed(late) if self.waiting.get(one) is not None]
        named = [one for one in reversed(late) if one not in newest and one not in projected]
        return list(dict.fromkeys([*newest, *projected, *named]))

    def judged_by(self, outcome: Document) -> str | None:
        """The decision that an outcome record judges, None while it is pending."""
        named = outcome.named_by("outcome_of")
        if named is not None:
            return named
        if self.waiting.get(outcome.record_id) is None:
            row = one_row(self._connection, _JUDGED, (outcome.record_id,))
            return row[0] if row else None
        for ref in self.waiting.refs.get(outcome.record_id, ()):
            decisions = self.decisions_of_ref(ref)
            if decisions:
                return decisions[0]
        return None

    def outcomes_of(self, decision: Document) -> list[Document]:
        """Outcome records that judge a decision."""
        ids = list(self._links_of(decision.record_id).outcomes)
        for ref in self.waiting.refs.get(decision.record_id, ()):
            ids += [row[0] for row in self._connection.execute(PENDING, (self._log, ref)).fetchall()]
        late = [one for one in self.waiting.of_kind("outcome") if self.judged_by(one) == decision.record_id]
        return self.load_all(ids) + late

    def amendments_of(self, record_id: str) -> list[Document]:
        """Amendments of a record, oldest first."""
        late = [one for one in self.waiting.of_kind("amendment") if one.named_by("amends") == record_id]
        return self.load_all(self._links_of(record_id).amendments) + late

    def continuations(self, *documents: Document) -> dict[str, str | None]:
        """Which trace each of these decisions, and each that waits, continues; see `continuation.continuations`."""
        return self._joined([*self.waiting.of_kind("decision"), *documents])

    def continuation_of(self, document: Document) -> Continuation:
        """Which traces a decision continues and is continued by."""
        place = place_of(document)
        near = [
            one
            for one in self.waiting.of_kind("decision")
            if one.named_by("continues") == document.record_id
            or (place is not None and (its := place_of(one)) is not None and its.thread == place.thread)
        ]
        return continuation_in(self._joined([*near, document]), document.record_id)

    def _joined(self, decisions: Sequence[Document]) -> dict[str, str | None]:
        distinct = {one.record_id: one for one in decisions}
        return stored_continuations(self._connection, self._log, list(distinct.values())) if distinct else {}

    def before(self, continuation: Continuation) -> list[Document]:
        """The trace that one continues, the one which that continues, and so on, as far as they are stored."""
        found: list[Document] = []
        record_id = continuation.continues
        while record_id is not None and len(found) < CONTINUED and record_id not in {one.record_id for one in found}:
            try:
                stored = self.waiting.get(record_id) or next(
                    iter(load(self._connection, self._log, [record_id], self.waiting.erased)), None
                )
            except FormatError:
                stored = None  # verify names it; what came after it can be explained without it
            if stored is None:
                break
            found.append(stored)
            record_id = self.continuation_of(stored).continues
        return found

    def _links_of(self, record_id: str) -> "_Links":
        if record_id not in self._linked:
            self._link([record_id])
        return self._linked[record_id]

    def _link(self, record_ids: Sequence[str]) -> None:
        """Looks up at once which projected records belong to these."""
        self._linked |= {one: _Links([], []) for one in record_ids}
        rows = self._connection.execute(_LINKED, {"ids": list(record_ids)}).fetchall()
        for kind, decision, record_id, _ in rows:
            links = self._linked[decision]
            (links.outcomes if kind == "outcomes" else links.amendments).append(record_id)

    def load(self, record_id: str) -> Document:
        """The document of a record.

        Raises:
            AmfsOtelError: It is not stored.
            FormatError: It cannot be read.
        """
        return self.load_all([record_id])[0]

    def load_linked(self, record_ids: Sequence[str]) -> list[Document]:
        """The documents of projected decisions, read at once with all that belongs to them, and without any text."""
        self._link(record_ids)
        others = [one for links in self._linked.values() for one in (*links.outcomes, *links.amendments)]
        return self.load_all([*record_ids, *others], texts=False)[: len(record_ids)]

    def load_all(self, record_ids: Sequence[str], *, texts: bool = True) -> list[Document]:
        """`load` for several, in this order. Once read without `texts`, a record stays so for this state."""
        unknown = [
            one for one in dict.fromkeys(record_ids) if one not in self._loaded and self.waiting.get(one) is None
        ]
        found = load(self._connection, self._log, unknown, self.waiting.erased, texts=texts)
        self._loaded |= {document.record_id: document for document in found}
        documents: list[Document] = []
        for record_id in record_ids:
            document = self.waiting.get(record_id) or self._loaded.get(record_id)
            if document is None:
                raise AmfsOtelError("the record is referred to and not stored", where=record_id, hint="Run verify.")
            documents.append(document)
        return documents

    def earlier_than(self, document: Document) -> Earlier:
        """Where to look for the confidence in an entry before a record."""
        place = document.sequence_number

        def earlier(entry: str, version: int) -> tuple[float, str] | None:
            scope = {"entries": [entry], "versions": [version], "places": [LAST if place is None else place]}
            row = self._connection.execute(query("projection_earlier"), {"log": self._log, **scope}).fetchone()
            return None if row is None else (row[3], row[4])

        return earlier
