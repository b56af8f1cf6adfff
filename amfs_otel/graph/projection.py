"""The projector: sealed records -> the derived tables, in the order of the log, exactly once.

It runs behind the sealer and takes a lock of its own. What a record adds, and the mark that it was dealt with, are
written in one transaction, so a crash at any point repeats nothing and misses nothing. A record that cannot be
projected is marked with the reason, counted and passed over: nothing stops the queue, and the record itself stays in
the ledger for `verify` to judge.
"""

import contextlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import psycopg

from amfs_otel.chain.verification import StoredEntry
from amfs_otel.errors import FormatError
from amfs_otel.graph.batch_projection import BatchProjection
from amfs_otel.graph.continuation_tables import ContinuationChanges
from amfs_otel.graph.graph_tables import GraphChanges
from amfs_otel.graph.loading import document_of, erased_parts
from amfs_otel.store import read
from amfs_otel.store.connect import Connection, one_row, set_limits, translated

LOCK_CLASS = 0x616D6670
BATCH = 200
BATCH_BYTES = 8 << 20
STATEMENT_S = 300

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))"
_WAIT_FOR_LOCK = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
_NEXT = "SELECT coalesce(max(sequence_number) + 1, 0) FROM amfs_otel.projected WHERE log = %s"
_MARK = (
    "INSERT INTO amfs_otel.projected (log, sequence_number, record_id, kind, skipped)"
    " SELECT %s, * FROM unnest(%s::bigint[], %s::uuid[], %s::text[], %s::text[])"
)
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
    entries = _next_entries(connection, log, limit)
    # An erasure looks at what is projected before it, so it is not in one step with what comes before; nor is an
    # amendment: what it completes must not be seen by records that came before it.
    for _, some in groupby(entries, key=_step_of):
        _take(connection, log, list(some))
    return len(entries)


def _step_of(stored: StoredEntry) -> tuple[str, int]:
    """Entries with the same key may be projected in one step."""
    kind = str((stored.columns or {}).get("kind"))
    if kind not in ("erasure", "amendment"):
        return "others", 0
    return kind, stored.entry.sequence_number if kind == "amendment" else 0


def _next_entries(connection: Connection, log: str, limit: int) -> list[StoredEntry]:
    """The next entries: at most `limit`, and no more once their parts take `BATCH_BYTES`."""
    row = one_row(connection, _NEXT, (log,))
    first = row[0] if row else 0
    entries: list[StoredEntry] = []
    size_bytes = 0
    with contextlib.closing(read.entries(connection, log, first, first + limit - 1, parts=True)) as stored:
        for one in stored:
            entries.append(one)
            size_bytes += sum(len(part.data or b"") for part in one.record.parts) if one.record is not None else 0
            if size_bytes >= BATCH_BYTES:
                break
    return entries


def _take(connection: Connection, log: str, entries: Sequence[StoredEntry]) -> None:
    """Projects entries with all that follows from them; one that is unfit is marked with the reason."""
    try:
        with connection.transaction():
            _project_all(connection, log, entries)
    except (*_UNFIT, *_REFUSED) as error:
        if len(entries) > 1:
            # One of them is unfit: by halves, so that only that one is passed over.
            half = len(entries) // 2
            _take(connection, log, entries[:half])
            _take(connection, log, entries[half:])
            return
        reason = f"{type(error).__name__} {getattr(error, 'sqlstate', None) or ''}".strip()
        changes = GraphChanges(log)
        _mark(connection, log, entries, {entries[0].entry.sequence_number: reason}, changes)
        changes.write(connection)


def _project_all(connection: Connection, log: str, entries: Sequence[StoredEntry]) -> None:
    """Projects entries; raises where a record is unfit."""
    erased = erased_parts(connection, [_id_of(stored) for stored in entries if stored.record is not None])
    documents = [
        document_of(stored.record, stored.entry, erased.get(_id_of(stored), {}))
        for stored in entries
        if stored.record is not None
    ]
    changes, sessions = GraphChanges(log), ContinuationChanges(log)
    BatchProjection(connection, log, changes, sessions).project(documents)
    sessions.write(connection, changes)
    missing = {stored.entry.sequence_number: "record missing" for stored in entries if stored.record is None}
    _mark(connection, log, entries, missing, changes)
    changes.write(connection)


def _mark(
    connection: Connection,
    log: str,
    entries: Sequence[StoredEntry],
    skipped: Mapping[int, str],
    changes: GraphChanges,
) -> None:
    """Notes that entries were dealt with; `skipped` says by sequence number why one was passed over."""
    columns: list[list[Any]] = [[], [], [], []]
    for stored in entries:
        place, known = stored.entry.sequence_number, stored.columns or {}
        row = (place, known.get("record_id"), known.get("kind"), skipped.get(place))
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        changes.count({("log", f"records.{known.get('kind') or 'missing'}"): 1})
        if place in skipped:
            changes.count({("log", "records.skipped"): 1})
    connection.execute(_MARK, (log, *columns))


def _id_of(stored: StoredEntry) -> str:
    return str((stored.columns or {}).get("record_id"))
