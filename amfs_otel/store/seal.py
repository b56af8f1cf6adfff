"""Sealing: giving stored records their place in the log (level *sealed*).

What is sealable is every visible record of the log without an entry. Finding them again in the whole table costs about
130 ms per 100,000 records, so between full passes only the records that became visible since the last complete pass are
looked at, by that pass's snapshot. There is no watermark: ids are given out of commit order, and transaction ids mean
nothing after a restore into another cluster; either would lose records.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from amfs_otel.chain.entry import FIRST_PARENT, Entry, make_entry
from amfs_otel.chain.findings import Finding
from amfs_otel.chain.hashes import SIGNATURE_DOMAIN
from amfs_otel.chain.header import read_header
from amfs_otel.chain.keys import KeyRing, SigningKey
from amfs_otel.errors import ConfigurationError, FormatError, StoreError
from amfs_otel.store.announced import announced_kids, announcing_step
from amfs_otel.store.connect import Connection, one_row, set_limits
from amfs_otel.store.queries import query

PASS_LIMIT = 2000
"""Entries of one pass, so of one transaction."""
FULL_PASS_EVERY_S = 300.0
LOCK_CLASS = 0x616D6673
"""First half of the advisory lock's key ("amfs"); the second is the hash of the log's name."""

COPY_ENTRIES = "COPY amfs_otel.entry (entry, entry_hash, entry_mac) FROM STDIN (FORMAT BINARY)"
HEAD = """
SELECT entry, entry_hash, entry_mac FROM ONLY amfs_otel.entry WHERE log = %s ORDER BY sequence_number DESC LIMIT 1
"""
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))"
# Rows that may be new to the snapshot in force. xip lists the transactions that were in progress.
NEW_SINCE = """(r.xid >= pg_snapshot_xmax(%(known)s::pg_snapshot) OR r.xid = ANY (%(in_progress)s::xid8[]))"""
NOW = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What one pass did.

    Attributes:
        count: Records that got their entry.
        entries: Each with the id of its record, in order.
        held_by: Who holds sealing back: pid, database and age of the session. ``None``: nobody was seen.
        suspects: What the sealer saw on records that it sealed all the same; ``verify`` judges.
    """

    count: int
    entries: list[tuple[Entry, str]] = field(default_factory=list[tuple[Entry, str]])
    held_by: str | None = None
    suspects: list[Finding] = field(default_factory=list[Finding])


class Sealer:
    """The memory between the passes over one connection: the last complete pass's snapshot.

    It belongs to the connection: after a failover the server's transaction ids may go back. Not thread-safe.
    """

    def __init__(self, log: str) -> None:
        self.log = log
        self._known: str | None = None
        self._last_full_s = float("-inf")

    def seal(self, connection: Connection, log_key: SigningKey, *, full: bool, keys: KeyRing | None) -> Sealed:
        """Seal what is sealable, at most `PASS_LIMIT` records, in one transaction.

        Args:
            connection: In autocommit mode, at READ COMMITTED.
            log_key: Announced by the log for role ``log``.
            full: Look at all records without an entry; else only every few minutes and the first time.
            keys: Writer keys held here, to look at signatures.

        Raises:
            ConfigurationError: The log was not prepared, or did not announce the key.
            StoreError: The head's bytes are damaged; nothing is built on them.
            psycopg.Error: The database failed; the pass did not happen.
        """
        full = full or self._known is None or time.monotonic() - self._last_full_s > FULL_PASS_EVERY_S
        with connection.transaction():
            set_limits(connection)
            if one_row(connection, TRY_LOCK, (LOCK_CLASS, self.log)) != (True,):
                return Sealed(0, held_by=held_by(connection, self.log) or "another sealer")
            head = self._head(connection)
            snapshot, rows = self._sealable(connection, full=full)
            if rows or full:
                _check_announced(connection, self.log, log_key, keys)
            entries = self._append(connection, head, rows, log_key) if rows else []
        if len(rows) < PASS_LIMIT:
            # Only now: the pass is committed, and everything visible to its snapshot stands in the log.
            self._known = snapshot
            self._last_full_s = time.monotonic() if full else self._last_full_s
        suspects = _suspects(entries, rows, keys or KeyRing())
        holder = held_by(connection, self.log) if full and not rows else None
        return Sealed(
            len(entries), [(entry, row[0]) for entry, row in zip(entries, rows, strict=True)], holder, suspects
        )

    def _head(self, connection: Connection) -> Entry:
        head = head_of(connection, self.log)
        if head is None:
            raise ConfigurationError(
                f"the log {self.log} was never begun in this database",
                hint=f"Begin it with: amfs-otel init --log {self.log}.",
            )
        return head

    def _sealable(self, connection: Connection, *, full: bool) -> tuple[str, list[tuple[Any, ...]]]:
        parameters: dict[str, object] = {"log": self.log, "limit": PASS_LIMIT}
        condition = "true"
        if not full and self._known is not None:
            condition = NEW_SINCE
            parameters |= {"known": self._known, "in_progress": "{" + self._known.split(":")[2] + "}"}
        text = query("sealable").format(new_since=condition)
        found = connection.execute(text, parameters).fetchall()
        return found[0][0], [row[1:] for row in found if row[1] is not None]

    def _append(
        self,
        connection: Connection,
        head: Entry,
        rows: Sequence[tuple[Any, ...]],
        log_key: SigningKey,
    ) -> list[Entry]:
        entries = self._linked(head, rows, log_key, now_of(connection))
        with connection.cursor() as cursor, cursor.copy(COPY_ENTRIES) as copy:
            copy.set_types(["text", "bytea", "bytea"])
            for entry in entries:
                copy.write_row((entry.entry.decode(), entry.entry_hash, entry.entry_mac))
        return entries

    def _linked(self, head: Entry, rows: Sequence[tuple[Any, ...]], log_key: SigningKey, now: str) -> list[Entry]:
        try:
            number, parent, uid, sealed_at = (
                head.sequence_number,
                head.entry_hash,
                head.log_uid,
                max(now, head.sealed_at),
            )
        except FormatError as error:
            raise StoreError(
                f"the head of the log {self.log} is damaged, nothing is sealed on top of it",
                got=error.what,
                hint="See: amfs-otel verify.",
            ) from None
        entries: list[Entry] = []
        for number_after, (_, _, digest, signature) in enumerate(rows, number + 1):
            entry = make_entry(
                log=self.log,
                log_uid=uid,
                sequence_number=number_after,
                parent_hash=parent,
                record=(digest, signature),
                sealed_at=sealed_at,
                log_key=log_key,
            )
            entries.append(entry)
            parent = entry.entry_hash
        return entries


def first_entry(*, log: str, log_uid: str, record: tuple[bytes, bytes], log_key: SigningKey, now: str) -> Entry:
    """Return entry 0, which places the genesis record."""
    return make_entry(
        log=log,
        log_uid=log_uid,
        sequence_number=0,
        parent_hash=FIRST_PARENT,
        record=record,
        sealed_at=now,
        log_key=log_key,
    )


def lock_log(connection: Connection, log: str) -> None:
    """Wait for the log's seal lock, within the transaction's ``lock_timeout``."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK_CLASS, log))


def head_of(connection: Connection, log: str) -> Entry | None:
    """Return the newest entry of a log."""
    row = one_row(connection, HEAD, (log,))
    return Entry(row[0].encode(), row[1], row[2]) if row else None


def now_of(connection: Connection) -> str:
    """Return the database's clock as RFC 3339, UTC, microseconds."""
    row = one_row(connection, f"SELECT {NOW}")
    assert row is not None
    return row[0]


def held_by(connection: Connection, log: str) -> str | None:
    """Say which session holds sealing back: why, pid, database and the age of its transaction."""
    row = connection.execute(query("holders"), {"log": log, "lock_class": LOCK_CLASS}).fetchone()
    if row is None:
        return None
    why, pid, database, age_s = row
    age = f"open for {age_s:.1f} s" if age_s is not None else "of unknown age"
    return f"{why}: pid {pid}, database {database}, {age}"


def _check_announced(connection: Connection, log: str, log_key: SigningKey, keys: KeyRing | None) -> None:
    announced = announced_kids(connection, log, "log", keys)
    if log_key.kid not in announced:
        raise ConfigurationError(
            f"the log key {log_key.kid} is not announced by the log {log}, so nothing was sealed with it",
            where="log key",
            expected=" or ".join(sorted(announced)) or "an announced key",
            got=log_key.kid,
            hint=announcing_step("log"),
        )


def _suspects(entries: Sequence[Entry], rows: Sequence[tuple[Any, ...]], keys: KeyRing) -> list[Finding]:
    """Look at what was sealed. Whatever is seen, the record keeps its place: nothing blocks the queue."""
    found: list[Finding] = []
    for entry, (record_id, header, digest, signature) in zip(entries, rows, strict=True):
        code, message = _suspicion(header.encode(), digest, signature, keys)
        if code:
            found.append(Finding(code, message, sequence_number=entry.sequence_number, record=record_id))
    return found


def _suspicion(header: bytes, digest: bytes, signature: bytes, keys: KeyRing) -> tuple[str, str]:
    try:
        read = read_header(header)
    except FormatError as error:
        return "BAD_HEADER", error.what
    key = keys.get(read.signing_key_id)
    if key is not None and not key.verifies(SIGNATURE_DOMAIN + digest, signature):
        return "BAD_SIGNATURE", f"the signature is not that of key {read.signing_key_id}"
    return "", ""
