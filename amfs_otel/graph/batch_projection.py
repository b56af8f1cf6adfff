"""Projecting records of one log, many at a time, and projecting others again because of them.

=============  =================================================================================================
decision       its rows and edges; outcomes that name it or wait for its ref are attached (again)
outcome        attached to the decision that its record names, else to the newest with its ref, else pending
amendment      its decision is projected again, with the amendment laid over the step
erasure        the records that lose parts are projected again, from what is left
others         nothing
=============  =================================================================================================

Projecting again means: take away all that the record gave, then project it as if for the first time. So the tables
depend on the records alone, never on the order in which late facts came, nor on how they fell into batches.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amfs_otel.graph.continuation import evidence_of_continuation
from amfs_otel.graph.continuation_tables import ContinuationChanges
from amfs_otel.graph.documents import Document
from amfs_otel.graph.earlier import EarlierSights
from amfs_otel.graph.edges import evidence_of_outcome, evidence_of_steps
from amfs_otel.graph.graph_tables import GraphChanges
from amfs_otel.graph.loading import load
from amfs_otel.graph.rows import COUNTED, Row, Rows, captured_at, counts_of, json_of_rows, rows_of
from amfs_otel.graph.steps import steps_of
from amfs_otel.graph.texts import items, members, word
from amfs_otel.store.connect import Connection
from amfs_otel.store.queries import query

AGAIN = 100
"""So many records at most are projected again at a time: all of one time are held in memory."""

_INSERT_AMENDMENTS = (
    "INSERT INTO amfs_otel.amendment (log, record_id, sequence_number, decision_id)"
    " SELECT %s, record_id, sequence_number, decision_id"
    " FROM unnest(%s::uuid[], %s::bigint[], %s::uuid[]) AS given (record_id, sequence_number, decision_id)"
    " ORDER BY record_id ON CONFLICT DO NOTHING"
)
_AMENDMENTS = (
    "SELECT decision_id::text, record_id::text FROM amfs_otel.amendment WHERE decision_id = ANY (%s::uuid[])"
    " ORDER BY sequence_number"
)
_AMENDED = "SELECT DISTINCT decision_id::text FROM amfs_otel.amendment WHERE record_id = ANY (%s::uuid[])"
_JUDGED = (
    "SELECT DISTINCT d.record_id::text FROM amfs_otel.outcome AS o"
    " JOIN amfs_otel.decision AS d ON d.record_id = o.decision_id WHERE o.record_id = ANY (%s::uuid[])"
)
_ARE_PROJECTED = (
    "SELECT record_id::text FROM amfs_otel.projected"
    " WHERE record_id = ANY (%s::uuid[]) AND kind IN ('decision', 'outcome') AND skipped IS NULL"
    " ORDER BY sequence_number"
)
_CAUSAL = (
    "SELECT record_id::text, entry FROM amfs_otel.step"
    " WHERE record_id = ANY (%s::uuid[]) AND causal AND entry IS NOT NULL ORDER BY record_id, number"
)


class BatchProjection:
    """Projects records of one log into the tables, inside the caller's transaction.

    Args:
        connection: In a transaction that may be rolled back to before these records.
        log: Name of the log.
        changes: Collects what goes to graph and counters.
        sessions: Collects where traces may continue each other.
    """

    def __init__(self, connection: Connection, log: str, changes: GraphChanges, sessions: ContinuationChanges) -> None:
        self._connection = connection
        self._log = log
        self._changes = changes
        self._sessions = sessions

    def project(self, documents: Sequence[Document]) -> None:
        """Projects records that are not in the tables.

        Args:
            documents: In the order of the log; erasures only among themselves, for they look at what is projected.

        Raises:
            FormatError: A record that must be projected again cannot be read.
            ValueError, TypeError, LookupError: The facts are of a shape that no mapping foresees.
        """
        of_kind: dict[str, list[Document]] = {"decision": [], "outcome": [], "amendment": [], "erasure": []}
        for document in documents:
            of_kind.get(document.kind, []).append(document)
        amended = self._amend(of_kind["amendment"])
        self._traces([*of_kind["decision"], *of_kind["outcome"]])
        self._again(amended)
        for erasure in of_kind["erasure"]:
            self._erase(erasure)

    # -- decisions and outcomes ----------------------------------------------------------------------------------

    def _traces(self, documents: Sequence[Document]) -> None:
        """Projects decisions and outcome records: the former first, for what they hold themselves counts first."""
        if not documents:
            return
        found = self._rows_of(documents)
        self._insert(found)
        attached = self._attached(found)
        causal = self._causal_of(found, attached)
        for document, rows in found:
            self._trace_evidence(document, rows)
            for row in rows.outcomes:
                decision = attached.get((document.record_id, row["number"]), row["decision_id"])
                entries = [] if decision is None else causal[decision]
                self._outcome_evidence(document, rows, row, decision or document.record_id, entries)
        self._again(self._waiting(found))

    def _rows_of(self, documents: Sequence[Document]) -> list[tuple[Document, Rows]]:
        amendments = self._amendments_of([document.record_id for document in documents])
        steps = [(one, steps_of(one, amendments.get(one.record_id, ()))) for one in documents]
        sights = EarlierSights(self._connection, self._log, steps)
        found = [(one, rows_of(one, its, sights.before(one.sequence_number))) for one, its in steps]
        for document, rows in found:
            named = document.named_by("outcome_of")
            own = document.record_id if rows.decision is not None else named
            by = "own" if rows.decision is not None else "refs" if named is not None else None
            for row in rows.outcomes:
                row |= {"decision_id": own, "attached_by": by}
        return found

    def _insert(self, found: Sequence[tuple[Document, Rows]]) -> None:
        rows: dict[str, list[Row]] = {
            "decisions": [rows.decision for _, rows in found if rows.decision is not None],
            "steps": [row for _, rows in found for row in rows.steps],
            "outcomes": [row for _, rows in found for row in rows.outcomes],
        }
        self._connection.execute(query("projection_rows"), {name: json_of_rows(some) for name, some in rows.items()})

    def _attached(self, found: Sequence[tuple[Document, Rows]]) -> dict[tuple[str, int], str]:
        """Attaches outcomes that name no decision but have a ref: (record id, number) → the decision they judge."""
        loose = [one.record_id for one, rows in found for row in rows.outcomes if row["attached_by"] is None]
        if not loose:
            return {}
        parameters = {"log": self._log, "ids": sorted(set(loose))}
        rows = self._connection.execute(query("projection_attach"), parameters).fetchall()
        return {(record_id, number): decision for record_id, number, decision in rows}

    def _causal_of(
        self, found: Sequence[tuple[Document, Rows]], attached: Mapping[tuple[str, int], str]
    ) -> dict[str, list[str]]:
        """Entries that the judged decisions rest on."""
        causal = {one.record_id: rows.causal for one, rows in found if rows.decision is not None}
        named = {row["decision_id"] for _, rows in found for row in rows.outcomes if row["decision_id"] is not None}
        elsewhere = sorted({*attached.values(), *named} - causal.keys())
        causal |= {decision: [] for decision in elsewhere}
        if elsewhere:
            for record_id, entry in self._connection.execute(_CAUSAL, (elsewhere,)).fetchall():
                causal[record_id].append(entry)
        return causal

    def _trace_evidence(self, document: Document, rows: Rows) -> None:
        """What a decision shows by itself."""
        if rows.decision is None:
            return
        when = captured_at(document)
        self._changes.add_evidence(evidence_of_steps(document.record_id, rows.events, when))
        self._changes.count(counts_of(rows.decision))
        started_at, earlier = rows.decision["started_at"], rows.decision["continues"]
        self._sessions.touch(rows.decision["thread"], started_at, document.record_id)
        if earlier is not None:
            self._changes.add_evidence([evidence_of_continuation(document.record_id, earlier, started_at or when)])

    def _outcome_evidence(self, document: Document, rows: Rows, row: Row, decision: str, causal: Sequence[str]) -> None:
        step = next(step for step in rows.events if step.number == row["number"])
        when = captured_at(document)
        self._changes.add_evidence(evidence_of_outcome(document.record_id, decision, step, causal, when))

    def _waiting(self, found: Sequence[tuple[Document, Rows]]) -> list[str]:
        """Other outcome records that hang on these decisions, or waited for one of the refs that these come to have."""
        refs = {row["outcome_ref"] for _, rows in found for row in rows.outcomes if row["decision_id"] is not None}
        parameters = {
            "log": self._log,
            "ids": [one.record_id for one, _ in found],
            "decisions": [one.record_id for one, rows in found if rows.decision is not None],
            "refs": sorted(refs - {None}),
        }
        return [row[0] for row in self._connection.execute(query("projection_waiting"), parameters).fetchall()]

    # -- projecting again ----------------------------------------------------------------------------------------

    def _again(self, record_ids: Sequence[str]) -> None:
        """Projects decisions and outcome records again that are in the tables."""
        for start in range(0, len(record_ids), AGAIN):
            ids = list(record_ids[start : start + AGAIN])
            documents = load(self._connection, self._log, ids)
            self._remove(ids)
            self.project(documents)

    def _remove(self, record_ids: Sequence[str]) -> None:
        columns = ("agent_id", *COUNTED)
        for record_id, thread, started_at, *counted in self._connection.execute(
            query("projection_removal"), {"ids": record_ids}
        ).fetchall():
            self._changes.count(counts_of(dict(zip(columns, counted, strict=True))), sign=-1)
            self._sessions.touch(thread, started_at, record_id)
        self._changes.forget(self._connection, record_ids)

    # -- amendments and erasures ---------------------------------------------------------------------------------

    def _amend(self, amendments: Iterable[Document]) -> list[str]:
        """Notes amendments; returns the projected records that they amend."""
        named = [(one, decision) for one in amendments if (decision := one.named_by("amends")) is not None]
        if not named:
            return []
        ids, places = [one.record_id for one, _ in named], [one.sequence_number for one, _ in named]
        decisions = [decision for _, decision in named]
        self._connection.execute(_INSERT_AMENDMENTS, (self._log, ids, places, decisions))
        return self._projected(decisions)

    def _amendments_of(self, record_ids: Sequence[str]) -> dict[str, list[Document]]:
        pairs = self._connection.execute(_AMENDMENTS, (record_ids,)).fetchall()
        documents = load(self._connection, self._log, [amendment for _, amendment in pairs])
        loaded = {document.record_id: document for document in documents}
        found: dict[str, list[Document]] = {}
        for decision, amendment in pairs:
            if amendment in loaded:
                found.setdefault(decision, []).append(loaded[amendment])
        return found

    def _projected(self, record_ids: Sequence[str]) -> list[str]:
        return [row[0] for row in self._connection.execute(_ARE_PROJECTED, (list(record_ids),)).fetchall()]

    def _erase(self, document: Document) -> None:
        by_age: Mapping[str, Any] = members(document.head.get("erase_range"))
        scope = {
            "log": self._log,
            "id": document.record_id,
            "erases": json_of_rows(items(document.head.get("erases"))),
            "before": word(by_age.get("before")),
            "letters": word(by_age.get("class")) or "",
        }
        affected = self._connection.execute(query("projection_erasure"), scope).fetchall()
        ids: dict[str, list[str]] = {"decision": [], "outcome": [], "amendment": []}
        for record_id, kind in affected:
            ids.get(kind, []).append(record_id)
        # What occurred together in a decision may be known through one of these outcomes alone.
        others = [*self._ids(_JUDGED, ids["outcome"]), *self._projected(self._ids(_AMENDED, ids["amendment"]))]
        self._again(ids["outcome"])
        self._again(list(dict.fromkeys([*ids["decision"], *others])))

    def _ids(self, statement: Any, record_ids: Sequence[str]) -> list[str]:
        return [row[0] for row in self._connection.execute(statement, (list(record_ids),)).fetchall()]
