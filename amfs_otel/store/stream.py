"""Streaming a log out of the store, for verification.

The server sends while we hash: one COPY for each stretch of the log, each row an entry with its record and its parts.
As everywhere in `read`, rows come from the tables themselves and in one snapshot; memory holds some MiB, or one record.
"""

from collections.abc import Generator, Iterable, Iterator
from operator import itemgetter
from typing import Any

from amfs_otel.chain.verification import StoredEntry
from amfs_otel.store import read
from amfs_otel.store.connect import Connection, one_row
from amfs_otel.store.queries import query

STRETCH = 2048
"""So many sequence numbers a COPY: what may be sent in vain where a reader stops early, or sorted by the server."""

BATCH, BATCH_BYTES = 256, 1 << 20
"""So many entries, or entries with so many bytes in their parts, are put together at a time."""

_NEXT = "SELECT min(sequence_number) FROM ONLY amfs_otel.entry WHERE log = %s AND sequence_number BETWEEN %s AND %s"
_ENTRY_TYPES = ["text", "bytea", "bytea", "text", "int8", "bytea", "bytea"]
_RECORD_TYPES = ["text", "bytea", "bytea", "bytea", "text", "text", "text", "text", "text"]
_PART_TYPES = ["bool", "int8", "int4[]", "bytea[]", "bytea[]"]

_Row = tuple[Any, ...]


def streamed_entries(
    connection: Connection, log: str, first: int, last: int | None, *, parts: bool
) -> Generator[StoredEntry]:
    """Give the entries of a range with their records, in order. Call it inside `read.snapshot`.

    Args:
        connection: Used by nothing else until the iterator is exhausted or closed.
        log: Name of the log.
        first: First sequence number.
        last: Last sequence number, inclusive; ``None`` is the head.
        parts: Read the parts too; else records come without any.
    """
    # It would keep each row that the server makes, in case one came again; none does.
    connection.execute("SET LOCAL enable_memoize = off")
    end = read.LAST if last is None else last
    while (start := _next(connection, log, first, end)) is not None:
        first = start + STRETCH
        yield from _stretch(connection, {"log": log, "first": start, "last": min(end, first - 1), "parts": parts})


def _next(connection: Connection, log: str, first: int, last: int) -> int | None:
    """The first sequence number of the range that an entry has: where many are missing, nothing is asked for them."""
    row = one_row(connection, _NEXT, (log, first, last))
    return row[0] if row else None


def _stretch(connection: Connection, scope: dict[str, Any]) -> Generator[StoredEntry]:
    statement = f"COPY ({query('stream')}) TO STDOUT (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement, scope | {"inline_bytes": read.INLINE_BYTES}) as copy:
        copy.set_types([*_ENTRY_TYPES, *_RECORD_TYPES, *_PART_TYPES])
        rows = iter(copy.rows())
        try:
            for batch in _batches(rows):
                yield from batch
        finally:
            # A COPY that is cancelled would take the snapshot with it; the rest of a stretch is read to its end.
            for _ in rows:
                pass


def _batches(rows: Iterable[_Row]) -> Iterator[list[StoredEntry]]:
    """Put together what rows say of each entry, many at a time: reading and checking by turns costs the caches dear."""
    batch: list[tuple[_Row, list[read.PartRow]]] = []
    size_bytes = 0
    for row in rows:
        more, length, *arrays = row[16:]
        parts = list(zip(*arrays, strict=True)) if arrays[0] is not None else []
        if more:
            batch[-1][1].extend(parts)
        else:
            if len(batch) == BATCH or size_bytes >= BATCH_BYTES:
                yield [_entry(*one) for one in batch]
                batch, size_bytes = [], 0
            batch.append((row, parts))
        size_bytes += length or 0
    yield [_entry(*one) for one in batch]


def _entry(row: _Row, parts: list[read.PartRow]) -> StoredEntry:
    if len(parts) > len(row[18] or ()):
        parts.sort(key=itemgetter(0))
    return read.stored_entry(row, parts)
