"""Reading the ledger, for verification and for showing it.

Everything is read in one REPEATABLE READ READ ONLY transaction, from the tables themselves (``FROM ONLY``: rows that
somebody put into an inheriting table are not ours) and with ``row_security = off``, so that a policy which hides rows
raises an error instead of shortening the log. Rows stream through server-side cursors; memory stays bounded whatever
the parts hold.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any, cast

import psycopg

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.findings import Finding
from amfs_otel.chain.record import Part, PartClass, Record
from amfs_otel.chain.verification import StoredEntry
from amfs_otel.store.connect import Connection
from amfs_otel.store.queries import query

INLINE_BYTES = 65536
"""Parts up to here come with their row; larger ones one by one."""
FETCH_ROWS = 512
LAST = 2**62
LAST_PART = 2**31 - 1
_numbers = count(1)

PartRow = tuple[int, bytes, bytes | None]
"""Number, salt and bytes of a part."""

BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL row_security = off"
ONE_PART = "SELECT bytes FROM ONLY amfs_otel.part WHERE record = %s::uuid AND number = %s"
LOOK_AT_TABLES = """
SELECT t.name, c.relkind::text, c.oid IS NOT NULL AND row_security_active(c.oid)
FROM unnest(ARRAY['record', 'part', 'entry']) WITH ORDINALITY AS t (name, position)
LEFT JOIN pg_namespace AS n ON n.nspname = 'amfs_otel'
LEFT JOIN pg_class AS c ON c.relname = t.name AND c.relnamespace = n.oid
ORDER BY t.position
"""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as the store holds it.

    Attributes:
        record: With the parts that are there.
        entry: Its place; ``None`` until it is sealed.
        stored_at: When the store took it, aware.
    """

    record: Record
    entry: Entry | None
    stored_at: datetime


@contextlib.contextmanager
def snapshot(connection: Connection) -> Generator[None]:
    """Read one state of the ledger inside the block, and write nothing."""
    with connection.transaction():
        connection.execute(BEGIN_READING)
        yield


def table_findings(connection: Connection) -> list[Finding]:
    """Say what would make reading the ledger worthless: no tables, other things in their place, hidden rows.

    Reads the catalogue only, so it needs no privilege on the tables.
    """
    rows = connection.execute(LOOK_AT_TABLES).fetchall()
    if all(kind is None for _, kind, _ in rows):
        return [
            Finding("EMPTY_STORE", "The database holds no ledger.", expected="amfs_otel.record, part, entry", got=None)
        ]
    found: list[Finding] = []
    for name, kind, hidden in rows:
        if kind != "r":
            message = f"amfs_otel.{name} is not a table, so what it shows is not what was recorded."
            found.append(Finding("NOT_A_TABLE", message, expected="r", got=kind))
        elif hidden:
            message = f"Row security hides rows of amfs_otel.{name} from this user."
            found.append(Finding("HIDDEN_ROWS", message, expected="no policy", got="row security is active"))
    return found


def entries(connection: Connection, log: str, first: int, last: int | None, *, parts: bool) -> Generator[StoredEntry]:
    """Give the entries of a range with their records, in order. Call it inside `snapshot`.

    Args:
        connection: Used by nothing else until the iterator is exhausted or closed, except for other reads.
        log: Name of the log.
        first: First sequence number.
        last: Last sequence number, inclusive; ``None`` is the head.
        parts: Read the parts too; else records come without any.
    """
    scope = {"log": log, "first": first, "last": LAST if last is None else last}
    for rows in _chunks(connection, "entries", scope):
        ids = [row[12] for row in rows if row[12] is not None] if parts else []
        groups = _PartGroups(connection, _streamed_parts(connection, ids))
        for row in rows:
            yield stored_entry(row, groups.of(row[12]))


def unsealed(connection: Connection, log: str) -> Iterator[tuple[Record, datetime]]:
    """Give the records that have no entry, with the time when they were stored. Call it inside `snapshot`."""
    for rows in _chunks(connection, "unsealed", {"log": log}):
        groups = _PartGroups(connection, _streamed_parts(connection, [row[4] for row in rows]))
        for row in rows:
            yield _record(row[:4], groups.of(row[4])), row[5]


def one_record(connection: Connection, log: str, record_id: str) -> StoredRecord | None:
    """Return one record of a log with its parts and its entry. Call it inside `snapshot`."""
    return next(iter(some_records(connection, log, [record_id])), None)


def some_records(
    connection: Connection, log: str, record_ids: Sequence[str], *, last_part: int = LAST_PART
) -> list[StoredRecord]:
    """Return records of a log with their entries and parts, in the order of the ids. Call it inside `snapshot`.

    Args:
        connection: As for `entries`.
        log: Name of the log.
        record_ids: Whole ids, each once; those that are not stored are passed over. All are held in memory.
        last_part: Read the parts up to this number only.
    """
    if not record_ids:
        return []
    rows = connection.execute(query("records"), {"log": log, "ids": list(record_ids)}, binary=True).fetchall()
    scope = {"ids": [row[4] for row in rows], "inline_bytes": INLINE_BYTES, "last_part": last_part}
    groups = _PartGroups(connection, iter(connection.execute(query("parts"), scope, binary=True).fetchall()))
    return [
        StoredRecord(
            _record(row[:4], groups.of(row[4])), Entry(row[6].encode(), row[7], row[8]) if row[6] else None, row[5]
        )
        for row in rows
    ]


def _chunks(connection: Connection, name: str, parameters: dict[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
    """Stream a query through a server-side cursor, some rows at a time."""
    with psycopg.ServerCursor(connection, f"amfs_otel_{next(_numbers)}") as cursor:
        cursor.execute(query(name), parameters, binary=True)
        rows = cursor.fetchmany(FETCH_ROWS)
        while rows:
            yield rows
            rows = cursor.fetchmany(FETCH_ROWS) if len(rows) == FETCH_ROWS else []


def _streamed_parts(connection: Connection, ids: list[str]) -> Iterator[tuple[Any, ...]]:
    scope = {"ids": ids, "inline_bytes": INLINE_BYTES, "last_part": LAST_PART}
    for rows in _chunks(connection, "parts", scope) if ids else ():
        yield from rows


class _PartGroups:
    """Cuts the rows of the parts of some records, in the order of their ids, into those of each record."""

    def __init__(self, connection: Connection, rows: Iterator[tuple[Any, ...]]) -> None:
        self._connection = connection
        self._rows = rows
        self._next = next(rows, None)

    def of(self, record_id: str) -> list[PartRow]:
        """Return the parts of the record. Ask in the order of the ids."""
        found: list[PartRow] = []
        while self._next is not None and self._next[0] == record_id:
            _, number, salt, data, length = self._next
            if data is None and length is not None:
                row = self._connection.execute(ONE_PART, (record_id, number), binary=True).fetchone()
                data = row[0] if row else None
            found.append((number, salt, data))
            self._next = next(self._rows, None)
        return found


def stored_entry(row: Sequence[Any], parts: Sequence[PartRow]) -> StoredEntry:
    """Return what a row of ``entries.sql`` or ``stream.sql`` shows; it has NULLs where the record is gone."""
    text, entry_hash, entry_mac, entry_log, sequence_number, parent_hash, placed = row[:7]
    header, digest, signature, flat, log, record_id, kind, session, trace = row[7:16]
    entry = Entry(text.encode(), entry_hash, entry_mac)
    columns: dict[str, object] = {
        "entry_log": entry_log,
        "sequence_number": sequence_number,
        "parent_hash": parent_hash,
        "record_hash": placed,
    }
    if header is None:
        return StoredEntry(entry, None, columns)
    columns.update(log=log, record_id=record_id, kind=kind, session=session, trace=trace)
    return StoredEntry(entry, _record((header, digest, signature, flat), parts), columns)


def _record(row: Sequence[Any], parts: Sequence[PartRow]) -> Record:
    header, digest, signature, flat = row
    commitments = tuple([flat[start : start + 32] for start in range(0, len(flat), 32)])
    return Record(header.encode(), digest, signature, commitments, _parts(header, parts) if parts else ())


def _parts(header: str, rows: Sequence[PartRow]) -> tuple[Part, ...]:
    # The letters only label the parts that are handed out; the verifier reads the header itself, strictly.
    classes = cast("Sequence[PartClass]", header.partition('"classes":"')[2].partition('"')[0])
    count = len(classes)
    return tuple(
        [Part(number, classes[number - 1] if 0 < number <= count else "m", salt, data) for number, salt, data in rows]
    )
