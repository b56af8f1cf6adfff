"""`Reader`: list, resolve, explain, show and tree, from the store.

The projection says which records belong together; the records themselves say what happened. What is not projected yet
is read from the ledger beside it, so an answer is never behind the store: a record that is not sealed has
``sequence_number`` null, and ``coverage.unprojected`` counts what the projection does not know. Every answer is read in
one REPEATABLE READ READ ONLY transaction: SELECT is all that a user needs, and nothing is written, not even a
transaction id.
"""

import contextlib
import re
from collections.abc import Generator, Sequence
from difflib import get_close_matches
from typing import Any

from amfs_otel.graph.continuation import continuation_in
from amfs_otel.graph.explain import explanation
from amfs_otel.graph.finding import NAMED, Ambiguous, NothingFound, Pieces, described
from amfs_otel.graph.listing import ListFilter, fits, list_row, row_from_columns
from amfs_otel.graph.related import PENDING, Related
from amfs_otel.graph.showing import shown_record
from amfs_otel.graph.tree import branch, tree
from amfs_otel.graph.unprojected import NEWEST, Unprojected, unprojected
from amfs_otel.store.connect import Connection, one_row, translated
from amfs_otel.store.postgres import Store
from amfs_otel.store.queries import query
from amfs_otel.store.read import snapshot

__all__ = ["Ambiguous", "ListFilter", "NothingFound", "Reader"]

# Named here, because inside `Reader` the name `list` is its method.
Items = list[dict[str, Any]]
Names = list[str]

BRANCHES = 100
RECENT_NAMES = 5000

_RECENT_REFS = (
    "SELECT outcome_ref FROM amfs_otel.outcome WHERE log = %s AND outcome_ref IS NOT NULL"
    " ORDER BY recorded_at DESC NULLS LAST LIMIT %s"
)
_RECENT_ENTRIES = "SELECT name FROM amfs_otel.node WHERE log = %s AND kind = 'entry' ORDER BY id DESC LIMIT %s"
_NEWEST = (
    "SELECT record_id::text, captured_at FROM amfs_otel.decision WHERE log = %s"
    " ORDER BY captured_at DESC, record_id DESC LIMIT 1"
)
_AT_PLACE = (
    "SELECT record_id::text FROM amfs_otel.projected WHERE log = %s AND sequence_number = %s AND record_id IS NOT NULL"
)
_PLACE = re.compile(r"[0-9]{1,18}")
_AROUND = (
    "(SELECT s.record_id::text FROM amfs_otel.step AS s JOIN amfs_otel.decision AS d USING (record_id)"
    " WHERE s.log = %(log)s AND s.entry = %(entry)s AND (s.causal OR s.kind = 'memory_write')"
    " GROUP BY s.record_id, s.sequence_number ORDER BY s.sequence_number DESC LIMIT %(limit)s)"
    " UNION ALL"
    " (SELECT record_id::text FROM amfs_otel.step"
    " WHERE log = %(log)s AND kind = 'statement' AND detail -> 'inputs' ? %(entry)s::text"
    " GROUP BY record_id, sequence_number ORDER BY sequence_number DESC LIMIT %(limit)s)"
)


class Reader:
    """Answers questions about one log.

    Not thread-safe; opens no connection of its own and closes none.

    Args:
        source: A store, or a connection in autocommit mode.
        log: Name of the log; default: the store's.
    """

    def __init__(self, source: Store | Connection, log: str | None = None) -> None:
        self._connection = source.connection if isinstance(source, Store) else source
        self._store = source if isinstance(source, Store) else None
        self._log = log or (source.log if isinstance(source, Store) else "default")
        self._state: Related | None = None

    def list(self, filters: ListFilter | None = None) -> Items:
        """Decisions, newest first, with the keys of ``list --json``."""
        wanted = filters or ListFilter()
        with self._reading() as related:
            rows = {row["record_id"]: row for row in self._projected_rows(wanted.parameters())}
            late = list(related.waiting.of_kind("outcome"))
            touched = {document.record_id: related.judged_by(document) for document in late}
            ids = sorted({judged for judged in touched.values() if judged is not None})
            if ids:
                only = ListFilter(limit=len(ids)).parameters(ids)
                rows |= {row["record_id"]: row for row in self._projected_rows(only)}
            rows |= {document.record_id: list_row(document) for document in related.waiting.of_kind("decision")}
            for record_id, earlier in related.continuations().items():
                if record_id in rows:
                    rows[record_id]["continues"] = earlier
            for document in late:
                row = rows.get(touched[document.record_id] or "")
                if row is not None:
                    row["_outcomes"] += list_row(document)["_outcomes"]
        return fits(rows.values(), wanted)

    def explain(self, text: str) -> dict[str, Any]:
        """What is known about a decision, with the keys of ``explain --json``.

        Args:
            text: An outcome ref, an id (or a unique piece of one), an OpenTelemetry trace id, or ``last``.

        Raises:
            NothingFound: Nothing fits; `nearest` names refs like it.
            Ambiguous: Several records fit; `candidates` names them.
            FormatError: The record cannot be read.
        """
        with self._reading():
            record_id = self.resolve(text)  # which may have looked at more
            related = self._related
            document = related.load(record_id)
            if document.kind == "outcome" and (judged := related.judged_by(document)) is not None:
                document = related.load(judged)
            decisions = related.decisions_of_ref(text)
            continuation = related.continuation_of(document)
            answer = explanation(
                document,
                outcomes=related.outcomes_of(document),
                amendments=related.amendments_of(document.record_id),
                others=[one for one in decisions if one != document.record_id],
                outcome_ref=text if decisions and document.record_id in decisions else None,
                earlier_than=related.earlier_than,
                continuation=continuation,
                before=related.before(continuation),
            )
            answer["coverage"]["unprojected"] = related.waiting.count
            return answer

    def show(self, text: str) -> dict[str, Any]:
        """One record with all its events, with the keys of ``show --json``; `text` and errors as for `explain`."""
        with self._reading():
            record_id = self.resolve(text)
            related = self._related
            document = related.load(record_id)
            continuation = related.continuation_of(document)
            return shown_record(
                document, related.amendments_of(document.record_id), continuation, related.before(continuation)
            )

    def tree(self, entry: str) -> dict[str, Any]:
        """Who read an entry, what else they consulted and wrote, and how it ended: the answer of ``tree --json``.

        Args:
            entry: ``entity_path/key``.

        Raises:
            NothingFound: No decision read it, relied on it or wrote it; `nearest` names entries like it.
        """
        with self._reading() as related:
            ids = self._around(entry)
            documents = [*related.load_linked(ids), *related.waiting.of_kind("decision")]
            joined = related.continuations(*documents)
            branches = [
                branch(
                    entry,
                    document,
                    outcomes=related.outcomes_of(document),
                    amendments=related.amendments_of(document.record_id),
                    continuation=continuation_in(joined, document.record_id),
                )
                for document in documents
            ]
            found = [one for one in branches if one is not None]
            if not found:
                names = self._connection.execute(_RECENT_ENTRIES, (self._log, RECENT_NAMES)).fetchall()
                nearest = get_close_matches(entry, [row[0] for row in names], n=3, cutoff=0.4)
                raise NothingFound("no decision read, wrote or relied on this entry", entry, nearest)
            return tree(entry, found)

    def _around(self, entry: str) -> Names:
        """Ids of projected decisions that read or wrote an entry, or named it as an input; the newest of each."""
        scope = {"log": self._log, "entry": entry, "limit": BRANCHES}
        return list(dict.fromkeys(row[0] for row in self._connection.execute(_AROUND, scope).fetchall()))

    def resolve(self, text: str) -> str:
        """The record that a person means.

        In this order: ``last``; an outcome ref (its newest decision); a whole id; the beginning or end of exactly one
        record id or OpenTelemetry trace id; the number of an entry.

        Raises:
            NothingFound: Nothing fits; `nearest` names refs like it.
            Ambiguous: Several records fit; `candidates` names them.
        """
        with self._reading():
            found = self._resolved(text)
            if found is None and self._waiting_is_partial():
                self._state = self._related_to(None)
                found = self._resolved(text)
            if found is None:
                raise NothingFound("no record has this ref or id", text, self.nearest_refs(text))
            return found

    def nearest_refs(self, ref: str, count: int = 3) -> Names:
        """Refs of recent outcomes that look like `ref`, the best first."""
        with self._reading() as related:
            rows = self._connection.execute(_RECENT_REFS, (self._log, RECENT_NAMES)).fetchall()
            waiting = related.waiting
            late = [one for document in reversed(waiting.documents) for one in waiting.refs.get(document.record_id, ())]
            refs = list(dict.fromkeys([*late, *(row[0] for row in rows)]))
        return get_close_matches(ref, refs, n=count, cutoff=0.5)

    @contextlib.contextmanager
    def _reading(self) -> Generator[Related]:
        """One state of the store for everything inside; calls inside share it."""
        if self._state is not None:
            yield self._state
            return
        reading = self._store.reading() if self._store is not None else self._snapshot()
        with reading:
            self._state = self._related_to(NEWEST)
            try:
                yield self._state
            finally:
                self._state = None

    @contextlib.contextmanager
    def _snapshot(self) -> Generator[None]:
        with translated("reading"), snapshot(self._connection):
            yield

    def _related_to(self, newest: int | None) -> Related:
        return Related(self._connection, self._log, unprojected(self._connection, self._log, newest))

    @property
    def _related(self) -> Related:
        assert self._state is not None
        return self._state

    @property
    def _known(self) -> Unprojected:
        return self._related.waiting

    def _waiting_is_partial(self) -> bool:
        """Whether unsealed records may lie before the newest ones that were looked at."""
        counted = "SELECT count(*) FROM (SELECT FROM amfs_otel.record WHERE log = %s LIMIT %s) AS counted"
        row = one_row(self._connection, counted, (self._log, NEWEST + 1))
        return row is not None and row[0] > NEWEST

    def _resolved(self, text: str) -> str | None:
        if text == "last":
            return self._last()
        decisions = self._related.decisions_of_ref(text)
        if decisions:
            return decisions[0]
        pending = [one for one, refs in self._known.refs.items() if text in refs]
        pending += [row[0] for row in self._connection.execute(PENDING, (self._log, text)).fetchall()]
        return pending[0] if pending else self._by_piece(text) or self._by_place(text)

    def _last(self) -> str | None:
        row = one_row(self._connection, _NEWEST, (self._log,))
        newest = [(document.captured_at or "", document.record_id) for document in self._known.of_kind("decision")]
        if row is not None:
            newest.append((row[1].strftime("%Y-%m-%dT%H:%M:%S.%fZ"), row[0]))
        return max(newest)[1] if newest else None

    def _by_piece(self, text: str) -> str | None:
        pieces = Pieces.of(text)
        if pieces is None:
            return None
        rows = self._connection.execute(query("reading_ids"), {"log": self._log, **pieces.parameters()}).fetchall()
        found = {row[0] for row in rows}
        found |= {one.record_id for one in self._known.documents if pieces.fit(one.record_id, one.trace)}
        if len(found) > 1:
            ids = sorted(found, reverse=True)
            raise Ambiguous(text, ids, self._described(ids[:NAMED]))
        return next(iter(found), None)

    def _by_place(self, text: str) -> str | None:
        """The record of the entry with this number."""
        if not _PLACE.fullmatch(text):
            return None
        known = (one.record_id for one in self._known.documents if one.sequence_number == int(text))
        row = one_row(self._connection, _AT_PLACE, (self._log, int(text)))
        return row[0] if row else next(known, None)

    def _described(self, record_ids: Sequence[str]) -> Names:
        """Each id's end, as `list` shows it, with the agent and the time where it is a decision."""
        only = ListFilter(limit=len(record_ids)).parameters(record_ids)
        rows = {row["record_id"]: row for row in self._projected_rows(only)}
        rows |= {one.record_id: list_row(one) for one in self._known.of_kind("decision")}
        return [described(one, rows.get(one)) for one in record_ids]

    def _projected_rows(self, parameters: dict[str, Any]) -> Items:
        rows = self._connection.execute(query("reading_list"), {"log": self._log, **parameters}).fetchall()
        return [row_from_columns(row) for row in rows]
