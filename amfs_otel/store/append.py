"""Storing records: insert now, seal later (level *stored*). No chain lock is taken and nothing is read back."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import psycopg

from amfs_otel.chain.record import Record
from amfs_otel.errors import FormatError
from amfs_otel.store.connect import Connection, one_row, reason_of, set_limits

COPY_RECORDS = "COPY amfs_otel.record (header, record_hash, signature, commitments) FROM STDIN (FORMAT BINARY)"
COPY_PARTS = "COPY amfs_otel.part (record, number, salt, bytes) FROM STDIN (FORMAT BINARY)"

# One statement, so one round trip and one commit.
INSERT_ONE = "SELECT amfs_otel.store_record(%s, %b, %b, %b, %s::uuid, %b::int4[], %b::bytea[], %b::bytea[])"
FIND_ONE = "SELECT record_hash, signature FROM amfs_otel.record WHERE id = %s::uuid"

REFUSED_CLASSES = ("22", "23", "54")
"""SQLSTATE classes that say the record itself cannot be stored: its data, a constraint, a limit of the server."""

CIRCLES = (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable)
CIRCLES_MET = 4
"""By one record at most: each time, whoever was in the way has stored it or goes on."""

Outcome = Literal["stored", "already", "refused"]


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one record.

    Attributes:
        record_id: Its id; empty where the header is too damaged to hold one.
        outcome: ``stored`` now, ``already`` there with the same hash and signature, or ``refused``: it never will be.
        reason: Why it was refused, one line, no content.
    """

    record_id: str
    outcome: Outcome
    reason: str | None = None


def append(connection: Connection, records: Sequence[Record]) -> list[Appended]:
    """Store records and their parts; the same records again change nothing.

    Several go in one transaction by COPY. If that meets one that is there or cannot be stored, they are repeated one by
    one, so that each has its own outcome.

    Args:
        connection: In autocommit mode.
        records: In any order; any number, though a batch is held in the server's transaction.

    Returns:
        One outcome per record, in order.

    Raises:
        psycopg.Error: What is not a single record's fault: connection, privileges, schema, disk.
    """
    if len(records) > 1:
        try:
            _copy(connection, records)
        except (psycopg.Error, FormatError, ValueError) as error:
            # Others storing some of the same records in another order: a batch may wait for them, or they for it, in a
            # circle. One by one the circles are short.
            survivable = not isinstance(error, psycopg.Error) or isinstance(error, CIRCLES)
            if not survivable and not _is_about_the_record(error):
                raise
        else:
            return [Appended(record.record_id, "stored") for record in records]
    return [_append_one(connection, record) for record in records]


def _copy(connection: Connection, records: Sequence[Record]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        set_limits(connection)
        with cursor.copy(COPY_RECORDS) as copy:
            copy.set_types(["text", "bytea", "bytea", "bytea"])
            for record in records:
                copy.write_row(
                    (record.header.decode(), record.record_hash, record.signature, b"".join(record.commitments))
                )
        with cursor.copy(COPY_PARTS) as copy:
            copy.set_types(["uuid", "int4", "bytea", "bytea"])
            for record in records:
                record_id = UUID(record.record_id)
                for number, salt, data in _part_rows(record):
                    copy.write_row((record_id, number, salt, data))


def _part_rows(record: Record) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Give the rows of the parts that are there; an erased part has no row."""
    for part in record.parts:
        if part.salt is not None:
            yield part.number, part.salt, part.data


def _append_one(connection: Connection, record: Record) -> Appended:
    try:
        record_id, header = str(UUID(record.record_id)), record.header.decode()
    except (FormatError, ValueError):
        return Appended("", "refused", "the header cannot be read")
    rows = list(_part_rows(record))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    values = (header, record.record_hash, record.signature, b"".join(record.commitments), record_id, *columns)
    try:
        _insert(connection, values)
    except psycopg.errors.UniqueViolation:
        return _compared(connection, record)
    except psycopg.Error as error:
        if not _is_about_the_record(error):
            raise
        return Appended(record_id, "refused", reason_of(error))
    return Appended(record_id, "stored")


def _insert(connection: Connection, values: Sequence[object]) -> None:
    """Insert one record and its parts, again where the server chose it to end a circle with another's batch."""
    for _ in range(CIRCLES_MET):
        with contextlib.suppress(*CIRCLES):
            connection.execute(INSERT_ONE, values)
            return
    connection.execute(INSERT_ONE, values)


def _compared(connection: Connection, record: Record) -> Appended:
    """Compare a record with what stands under its id. Hash and signature equal: it is that very record."""
    there = one_row(connection, FIND_ONE, (record.record_id,))
    if there is None:
        return Appended(record.record_id, "refused", "parts stand under this record id, but no record")
    if there == (record.record_hash, record.signature):
        return Appended(record.record_id, "already")
    what = "another signature" if there[0] == record.record_hash else "another record"
    return Appended(record.record_id, "refused", f"{what} stands under this record id")


def _is_about_the_record(error: Exception) -> bool:
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        # The client refused to send it, as it does with a NUL in text.
        return isinstance(error, psycopg.DataError)
    return error.sqlstate[:2] in REFUSED_CLASSES
