"""Projecting one record, and projecting others again because of it.

=============  =================================================================================================
decision       its rows and edges; outcomes that name it or wait for its ref are attached (again)
outcome        attached to the decision that its record names, else to the newest with its ref, else pending
amendment      its decision is projected again, with the amendment laid over the step
erasure        the records that lose parts are projected again, from what is left
others         nothing
=============  =================================================================================================

Projecting again means: take away all that the record gave, then project it as if for the first time. So the tables
depend on the records alone, never on the order in which late facts came.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from amfs_otel.graph.documents import Document
from amfs_otel.graph.edges import evidence_of_outcome, evidence_of_steps
from amfs_otel.graph.graph_tables import GraphChanges
from amfs_otel.graph.loading import load
from amfs_otel.graph.rows import COUNTED, Row, Rows, captured_at, counts_of, json_of_rows, rows_of
from amfs_otel.graph.texts import items, members, word
from amfs_otel.store.connect import Connection, one_row
from amfs_otel.store.queries import query

_INSERT_AMENDMENT = (
    "INSERT INTO amfs_otel.amendment (log, record_id, sequence_number, decision_id)"
    " VALUES (%s, %s::uuid, %s, %s::uuid) ON CONFLICT DO NOTHING"
)
_AMENDMENTS = "SELECT record_id::text FROM amfs_otel.amendment WHERE decision_id = %s::uuid ORDER BY sequence_number"
_AMENDED = "SELECT decision_id::text FROM amfs_otel.amendment WHERE record_id = %s::uuid"
_JUDGED = (
    "SELECT DISTINCT d.record_id::text FROM amfs_otel.outcome AS o"
    " JOIN amfs_otel.decision AS d ON d.record_id = o.decision_id WHERE o.record_id = %s::uuid"
)
_IS_PROJECTED = "SELECT kind FROM amfs_otel.projected WHERE record_id = %s::uuid AND skipped IS NULL"
_CAUSAL = "SELECT entry FROM amfs_otel.step WHERE record_id = %s::uuid AND causal AND entry IS NOT NULL ORDER BY number"


class RecordProjection:
    """Projects records of one log into the tables, inside the caller's transaction.

    Args:
        connection: In a transaction that may be rolled back to before this record.
        log: Name of the log.
        changes: Collects what goes to graph and counters.
    """

    def __init__(self, connection: Connection, log: str, changes: GraphChanges) -> None:
        self._connection = connection
        self._log = log
        self._changes = changes

    def project(self, document: Document) -> None:
        """Projects a record that was not projected before.

        Raises:
            FormatError: A record that must be projected again cannot be read.
            ValueError, TypeError, LookupError: The facts are of a shape that no mapping foresees.
        """
        match document.kind:
            case "decision":
                self._decision(document)
            case "outcome":
                self._outcome(document)
            case "amendment":
                self._amendment(document)
            case "erasure":
                self._erasure(document)
            case _:
                pass

    def _again(self, record_id: str, kind: str) -> None:
        document = load(self._connection, self._log, record_id)
        if document is None:
            return
        if kind == "amendment":
            row = one_row(self._connection, _AMENDED, (record_id,))
            if row is not None:
                self._again(row[0], "decision")
            return
        self._remove(record_id)
        self.project(document)

    def _remove(self, record_id: str) -> None:
        row = self._connection.execute(query("projection_removal"), {"id": record_id}).fetchone()
        if row is not None:
            self._changes.count(counts_of(dict(zip(("agent_id", *COUNTED), row, strict=True))), sign=-1)
        self._changes.forget(self._connection, record_id)

    def _decision(self, document: Document) -> None:
        rows = rows_of(document, self._amendments_of(document.record_id), self._earlier_than(document))
        assert rows.decision is not None
        attached = {"decision_id": document.record_id, "attached_by": "own"}
        self._insert([rows.decision], rows.steps, [row | attached for row in rows.outcomes])
        when = captured_at(document)
        self._changes.add_evidence(evidence_of_steps(document.record_id, rows.events, when))
        for row in rows.outcomes:
            self._outcome_evidence(document, rows, row, document.record_id, rows.causal)
        self._changes.count(counts_of(rows.decision))
        self._attach(document.record_id, [row["outcome_ref"] for row in rows.outcomes])

    def _outcome(self, document: Document) -> None:
        rows = rows_of(document, (), self._earlier_than(document))
        named = document.named_by("outcome_of")
        outcomes = [row | self._decision_of(row, named) for row in rows.outcomes]
        self._insert([], rows.steps, outcomes)
        for row in outcomes:
            decision = row["decision_id"]
            causal = [] if decision is None else self._causal_of(decision)
            self._outcome_evidence(document, rows, row, decision or document.record_id, causal)
        if named is not None:
            self._attach(document.record_id, [row["outcome_ref"] for row in outcomes])

    def _decision_of(self, row: Row, named: str | None) -> dict[str, str | None]:
        """Which decision an outcome judges, and how that is known."""
        if named is not None:
            return {"decision_id": named, "attached_by": "refs"}
        if row["outcome_ref"] is None:
            return {"decision_id": None, "attached_by": None}
        scope = {"log": self._log, "ref": row["outcome_ref"], "sequence_number": row["sequence_number"]}
        found = self._connection.execute(query("projection_decision_of_ref"), scope).fetchone()
        return {"decision_id": found[0] if found else None, "attached_by": "ref" if found else None}

    def _attach(self, record_id: str, refs: Sequence[str | None]) -> None:
        """Looks again at the outcome records that hang on a decision, or waited for one of these refs."""
        scope = {"log": self._log, "id": record_id, "refs": [ref for ref in refs if ref is not None]}
        for (waiting,) in self._connection.execute(query("projection_waiting"), scope).fetchall():
            self._again(waiting, "outcome")

    def _amendment(self, document: Document) -> None:
        decision = document.named_by("amends")
        if decision is None:
            return
        place = (self._log, document.record_id, document.sequence_number, decision)
        self._connection.execute(_INSERT_AMENDMENT, place)
        projected = one_row(self._connection, _IS_PROJECTED, (decision,))
        if projected is not None:
            self._again(decision, projected[0])

    def _erasure(self, document: Document) -> None:
        by_age: Mapping[str, Any] = members(document.head.get("erase_range"))
        scope = {
            "log": self._log,
            "id": document.record_id,
            "erases": json_of_rows(items(document.head.get("erases"))),
            "before": word(by_age.get("before")),
            "letters": word(by_age.get("class")) or "",
        }
        affected = self._connection.execute(query("projection_erasure"), scope).fetchall()
        for record_id, kind in affected:
            if kind == "outcome":
                # What occurred together in a decision may be known through this outcome alone.
                judged = self._connection.execute(_JUDGED, (record_id,)).fetchall()
                self._again(record_id, kind)
                for (decision,) in judged:
                    self._again(decision, "decision")
            elif kind in ("decision", "amendment"):
                self._again(record_id, kind)

    def _outcome_evidence(self, document: Document, rows: Rows, row: Row, decision: str, causal: Sequence[str]) -> None:
        step = next(step for step in rows.events if step.number == row["number"])
        when = captured_at(document)
        self._changes.add_evidence(evidence_of_outcome(document.record_id, decision, step, causal, when))

    def _amendments_of(self, record_id: str) -> list[Document]:
        rows = self._connection.execute(_AMENDMENTS, (record_id,)).fetchall()
        found = [load(self._connection, self._log, row[0]) for row in rows]
        return [document for document in found if document is not None]

    def _causal_of(self, record_id: str) -> list[str]:
        return [row[0] for row in self._connection.execute(_CAUSAL, (record_id,)).fetchall()]

    def _earlier_than(self, document: Document) -> Any:
        def earlier(entry: str, version: int) -> tuple[float, str] | None:
            scope = {"log": self._log, "entry": entry, "version": version, "sequence_number": document.sequence_number}
            return self._connection.execute(query("projection_earlier"), scope).fetchone()

        return earlier

    def _insert(self, decisions: Sequence[Row], steps: Sequence[Row], outcomes: Sequence[Row]) -> None:
        rows = {"decisions": decisions, "steps": steps, "outcomes": outcomes}
        self._connection.execute(query("projection_rows"), {name: json_of_rows(some) for name, some in rows.items()})
