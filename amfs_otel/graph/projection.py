"""The projector: sealed records -> the derived tables, in the order of the log, exactly once.

It runs behind the sealer and takes a lock of its own. What a record adds, and the mark that it was dealt with, are
written in one transaction, so a crash at any point repeats nothing and misses nothing. A record that cannot be
projected is marked with the reason, counted and passed over: nothing stops the queue, and the record itself stays in
the ledger for `verify` to judge.
"""

from collections.abc import Mapping

import psycopg

from amfs_otel.chain.verification import StoredEntry
from amfs_otel.errors import FormatError
from amfs_otel.graph.graph_tables import GraphChanges
from amfs_otel.graph.loading import document_of, erased_parts
from amfs_otel.graph.record_projection import RecordProjection
from amfs_otel.store import read
from amfs_otel.store.connect import Connection, one_row, set_limits, translated

LOCK_CLASS = 0x616D6670
BATCH = 200
STATEMENT_S = 300

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))"
_WAIT_FOR_LOCK = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
_NEXT = "SELECT coalesce(max(sequence_number) + 1, 0) FROM amfs_otel.projected WHERE log = %s"
_MARK = "INSERT INTO amfs_otel.projected (log, sequence_number, record_id, kind, skipped) VALUES (%s, %s, %s, %s, %s)"
_TABLES = (
    "DELETE FROM amfs_otel.projected WHERE log = %s",
    "DELETE FROM amfs_otel.decision WHERE log = %s",
    "DELETE FROM amfs_otel.step WHERE log = %s",
    "DELETE FROM amfs_otel.outcome WHERE log = %s",
    "DELETE FROM amfs_otel.amendment WHERE log = %s",
    "DELETE FROM amfs_otel.erased WHERE log = %s",
    "DELETE FROM amfs_otel.edge_evidence WHERE log = %s",
    "DELETE FROM amfs_otel.edge WHERE log = %s",
    "DELETE FROM amfs_otel.node WHERE log = %s",
    "DELETE FROM amfs_otel.counter WHERE log = %s",
)

Erased = Mapping[str, Mapping[int, str]]
"""Record id → part number → the erasure record that named it."""

_UNFIT = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, FormatError)
"""What facts of an unknown or damaged shape can raise; a lost connection or a missing privilege is none of these."""
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)


def project(connection: Connection, log: str, *, limit: int = BATCH) -> int:
    """Projects the next entries of a log; call it again while it returns a count.

    Args:
        connection: In autocommit mode; its user needs the role sealer (or eraser).
        log: Name of the log.
        limit: At most so many entries.

    Returns:
        How many entries were dealt with; 0 when there are none, or at once when another process projects this log.

    Raises:
        StoreUnavailable: The connection broke; nothing was half done.
        StoreError: The server refused, for example for lack of a privilege.
    """
    with translated("projecting"), connection.transaction():
        set_limits(connection, statement_s=STATEMENT_S)
        if one_row(connection, _TRY_LOCK, (LOCK_CLASS, log)) != (True,):
            return 0
        return _project_batch(connection, log, limit)


def rebuild(connection: Connection, log: str) -> int:
    """Empties the projection of a log and projects its records anew. Other logs of the database are left alone.

    It waits for a projector that is at work. Readers see the projection grow again; meanwhile they answer from the
    records themselves.

    Returns:
        How many entries were projected.
    """
    with translated("emptying the projection"), connection.transaction():
        set_limits(connection, statement_s=STATEMENT_S, lock_s=60)
        connection.execute(_WAIT_FOR_LOCK, (LOCK_CLASS, log))
        for statement in _TABLES:
            connection.execute(statement, (log,))
    total = 0
    while count := project(connection, log):
        total += count
    return total


def _project_batch(connection: Connection, log: str, limit: int) -> int:
    row = one_row(connection, _NEXT, (log,))
    first = row[0] if row else 0
    entries = list(read.entries(connection, log, first, first + limit - 1, parts=True))
    erased = erased_parts(connection, [_id_of(stored) for stored in entries if stored.record is not None])
    try:
        with connection.transaction():
            changes = GraphChanges(log)
            for stored in entries:
                _take(connection, log, stored, erased, changes)
            changes.write(connection)
    except (*_UNFIT, *_REFUSED):
        # One of them is unfit: again, one by one, so that only that one is passed over.
        for stored in entries:
            _take_alone(connection, log, stored, erased)
    return len(entries)


def _take(connection: Connection, log: str, stored: StoredEntry, erased: Erased, changes: GraphChanges) -> None:
    """Projects one entry; raises where its record is unfit."""
    if stored.record is None:
        _mark(connection, log, stored, "record missing", changes)
        return
    document = document_of(stored.record, stored.entry, erased.get(_id_of(stored), {}))
    RecordProjection(connection, log, changes).project(document)
    _mark(connection, log, stored, None, changes)


def _take_alone(connection: Connection, log: str, stored: StoredEntry, erased: Erased) -> None:
    """Projects one entry with all that follows from it, or marks why not."""
    try:
        with connection.transaction():
            changes = GraphChanges(log)
            _take(connection, log, stored, erased, changes)
            changes.write(connection)
    except (*_UNFIT, *_REFUSED) as error:
        changes = GraphChanges(log)
        _mark(
            connection, log, stored, f"{type(error).__name__} {getattr(error, 'sqlstate', None) or ''}".strip(), changes
        )
        changes.write(connection)


def _mark(connection: Connection, log: str, stored: StoredEntry, skipped: str | None, changes: GraphChanges) -> None:
    columns = stored.columns or {}
    kind = columns.get("kind")
    place = stored.entry.sequence_number
    connection.execute(_MARK, (log, place, columns.get("record_id"), kind, skipped))
    changes.count({("log", f"records.{kind or 'missing'}"): 1})
    if skipped is not None:
        changes.count({("log", "records.skipped"): 1})


def _id_of(stored: StoredEntry) -> str:
    return str((stored.columns or {}).get("record_id"))
