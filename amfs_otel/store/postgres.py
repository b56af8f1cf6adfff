"""The record store in PostgreSQL, as one object: append, seal, read.

One connection, made by `Store.connect`. Not thread-safe, and never used across a fork: the child opens its own. No
psycopg error and no secret leaves this module; see `errors`.
"""

import contextlib
import os
import socket
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.findings import Finding
from amfs_otel.chain.keys import KeyRing, SigningKey
from amfs_otel.chain.record import Record
from amfs_otel.chain.verification import StoredEntry
from amfs_otel.errors import StoreError
from amfs_otel.store import announced, append, ids, posture, read, schema, seal, stream
from amfs_otel.store.append import Appended
from amfs_otel.store.connect import Connection, connect, one_row, translated
from amfs_otel.store.posture import PostureFact
from amfs_otel.store.queries import query
from amfs_otel.store.read import StoredRecord
from amfs_otel.store.schema import SchemaState
from amfs_otel.store.seal import Sealed, Sealer

IS_BEGUN = "SELECT EXISTS (SELECT FROM ONLY amfs_otel.entry WHERE log = %s AND sequence_number = 0)"

__all__ = ["Appended", "PostureFact", "SealLag", "Sealed", "Store", "StoredEntry", "StoredRecord"]


@dataclass(frozen=True, slots=True)
class SealLag:
    """How far sealing is behind.

    Attributes:
        unsealed: Records of the log without an entry.
        oldest_s: Seconds since the oldest of them was stored; ``None`` when there is none.
        held_by: Which session holds sealing back: why, pid, database, age.
    """

    unsealed: int
    oldest_s: float | None
    held_by: str | None


class Store:
    """One log in one database.

    Use it as a context manager. Every method raises `StoreUnavailable` when the connection is gone or the server asks
    to try again, `ConfigurationError` when the schema is not there, `StoreError` for what the server refuses.
    """

    def __init__(self, connection: Connection, log: str) -> None:
        self.log = log
        self._connection = connection
        self._sealer = Sealer(log)
        self._process = os.getpid()
        self._reading = False

    @classmethod
    def connect(cls, dsn: str, log: str, *, timeout_s: float = 5.0) -> Self:
        """Open a store.

        Args:
            dsn: A connection string.
            log: Name of the log.
            timeout_s: Seconds for the connection, at least 2.

        Raises:
            ConfigurationError: The DSN, its user, password or database do not fit.
            StoreUnavailable: The server cannot be reached.
        """
        return cls(connect(dsn, timeout_s=timeout_s), log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store log={self.log!r} {'closed' if self._connection.closed else 'open'}>"

    @property
    def connection(self) -> Connection:
        """The connection, for the projection and its readers in this process.

        Raises:
            StoreError: Another process opened it.
        """
        if os.getpid() != self._process:
            raise StoreError("this store was opened in another process", hint="Open one after the fork.")
        return self._connection

    @property
    def usable(self) -> bool:
        """The connection is open and belongs to this process."""
        return not self._connection.closed and os.getpid() == self._process

    def close(self) -> None:
        """Close the connection. In a forked child nothing is sent: the server's session is the parent's."""
        if os.getpid() == self._process:
            self._connection.close()

    def abort(self) -> None:
        """Cut the connection from any thread, so that a call which waits for a hanging server fails at once."""
        with contextlib.suppress(OSError, ValueError):
            descriptor = os.dup(self._connection.fileno())
            with socket.socket(fileno=descriptor) as line:
                line.shutdown(socket.SHUT_RDWR)

    def schema_state(self) -> SchemaState:
        """Return which version of the schema the database holds. Changes nothing."""
        return schema.state_of(self.connection)

    def append(self, records: Sequence[Record]) -> list[Appended]:
        """Store records; the same ones again change nothing. See `append.append`.

        Returns:
            For each record, in order: ``stored``, ``already`` or ``refused`` with the reason.
        """
        if not records:
            return []
        with translated("storing records"):
            return append.append(self.connection, records)

    def places(self, record_ids: Sequence[str]) -> dict[str, int | None]:
        """Return the sequence number of each record that is stored; ``None`` for one without an entry yet.

        A writer may ask. A record that is not stored is not in the answer.
        """
        with translated("looking for records"):
            rows = self.connection.execute(query("places"), (list(record_ids),)).fetchall()
        return {row[0]: row[1] for row in rows}

    def seal(self, log_key: SigningKey, *, full: bool = False, keys: KeyRing | None = None) -> Sealed:
        """Make one pass over what is sealable, at most 2000 records. See `seal.Sealer.seal`.

        Call it again while it returns a count. It returns 0 at once when another process holds the seal lock.

        Args:
            log_key: A key that the log announced for role ``log``.
            full: Look at every record, not only at those that came since the last pass; do this before exiting.
            keys: Writer keys held here; what does not match is reported in ``suspects`` and sealed all the same.
        """
        with translated("sealing"):
            return self._sealer.seal(self.connection, log_key, full=full, keys=keys)

    def lag(self) -> SealLag:
        """Say how many records wait for their entry, since when, and which session holds that back."""
        with translated("looking at the seal lag"):
            row = self.connection.execute(query("lag"), {"log": self.log}).fetchone()
            assert row is not None
            return SealLag(row[0], row[1], seal.held_by(self.connection, self.log))

    def log_uid(self) -> str | None:
        """Return the identity of the log, ``None`` where it was never begun here."""
        return schema.log_uid_of(self.connection, self.log)

    def is_begun(self) -> bool:
        """Say whether the log has its first entry in this database. A writer may ask."""
        with translated("looking for the log"):
            return one_row(self.connection, IS_BEGUN, (self.log,)) == (True,)

    def logs(self) -> list[str]:
        """Return the names of the logs that were begun in this database, sorted."""
        with translated("listing the logs"):
            rows = self.connection.execute(ids.LOGS).fetchall()
        return [row[0] for row in rows]

    def announced_keys(self) -> list[announced.AnnouncedKey]:
        """Return the keys that the log announces, with their newest state."""
        with translated("reading the announced keys"):
            return announced.announced_keys(self.connection, self.log)

    def head(self) -> Entry | None:
        """Return the newest entry."""
        with translated("reading the head"):
            return seal.head_of(self.connection, self.log)

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Let all reads inside the block see one state of the ledger. Nothing can be written inside."""
        if self._reading:
            yield
            return
        with translated("reading the ledger"), read.snapshot(self.connection):
            self._reading = True
            try:
                yield
            finally:
                self._reading = False

    def findings(self) -> list[Finding]:
        """Say what makes this store unreadable for a verifier: HIDDEN_ROWS, NOT_A_TABLE, EMPTY_STORE.

        Ask before reading: where rows are hidden, reading raises.
        """
        with translated("looking at the ledger's tables"):
            found = read.table_findings(self.connection)
            if not found and seal.head_of(self.connection, self.log) is None:
                message = f"The log {self.log} holds no entry in this database."
                found.append(Finding("EMPTY_STORE", message))
        return found

    def stored_entries(self, first: int = 0, last: int | None = None, parts: bool = True) -> Iterator[StoredEntry]:
        """Give entries with their records in order, from one snapshot, with bounded memory.

        Nothing else may go on over this store until the iterator is done or closed.

        Args:
            first: First sequence number.
            last: Last sequence number, inclusive; ``None`` is the head.
            parts: Read the parts too.
        """
        with self.reading():
            yield from stream.streamed_entries(self.connection, self.log, first, last, parts=parts)

    def unsealed(self) -> Iterator[tuple[Record, datetime]]:
        """Give the records without an entry and when they were stored, in order of arrival."""
        with self.reading():
            yield from read.unsealed(self.connection, self.log)

    def record(self, record_id: str) -> StoredRecord | None:
        """Return one record of the log with its parts and entry.

        Args:
            record_id: The whole id.
        """
        if not ids.is_record_id(record_id):
            return None
        with self.reading():
            return read.one_record(self.connection, self.log, record_id)

    def find_ids(self, prefix_or_suffix: str) -> list[str]:
        """Return the ids of the log's records that begin or end so, at most 50, newest first. Hyphens do not matter."""
        with translated("looking for an id"):
            return ids.find_ids(self.connection, self.log, prefix_or_suffix)

    def posture(self) -> list[PostureFact]:
        """Say how well this database keeps what it holds: prevention, not proof. See `posture`."""
        with translated("looking at the posture"):
            return posture.posture(self.connection)

    def server_version(self) -> str:
        """Return the server's version, such as ``15.18``."""
        row = one_row(self.connection, "SELECT current_setting('server_version')")
        return row[0] if row else ""
