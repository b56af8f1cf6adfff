"""Closed windows → signed records, and what a process remembers of those it signed."""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from amfs_otel import guard
from amfs_otel.assemble.assembler import DecisionTrace
from amfs_otel.assemble.journal import frame_id
from amfs_otel.assemble.origin import origin_facts
from amfs_otel.assemble.records import Origin, record_from_trace
from amfs_otel.chain.record import Record
from amfs_otel.drain.custody import HeldKey, held_key
from amfs_otel.errors import AmfsOtelError
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory

LOOK_AGAIN_S = 60.0
REMEMBERED_RECORDS = 64
REMEMBERED_BYTES = 4 << 20
REMEMBERED_HASHES = 8192
UNSIGNED_LIMIT = 1000


class Signer:
    """Signs what the assembler finished. Without a key it keeps the traces and looks for one every minute.

    Args:
        settings: Where the key is.
        state: The state directory.

    Attributes:
        settled: Whether it is known where records go, which decides about the key, too; until then traces wait.
        held: The key, once found.
        unsigned: Traces that wait for a key.
        left_to_adopters: Record ids of those that were too many to keep; the journal has them, and whoever adopts it
            signs them.
        signed: Records signed so far, by kind.
    """

    def __init__(self, settings: Settings, state: StateDirectory) -> None:
        self._settings = settings
        self._state = state
        self.settled = not settings.dsn_is_fallback
        self.held: HeldKey | None = None
        self._looked_at = float("-inf")
        self._hashes: dict[bytes, bytes] = {}
        self._recent: OrderedDict[str, Record] = OrderedDict()
        self._recent_bytes = 0
        self.unsigned: deque[DecisionTrace] = deque()
        self.left_to_adopters: set[str] = set()
        self.signed: dict[str, int] = {}

    def settle(self, *, local: bool) -> None:
        """It is known where records go: a fallback DSN without our schema keeps no development key away."""
        if local:
            self._settings = replace(self._settings, dsn=None)
        self.settled, self._looked_at = True, float("-inf")

    @property
    def ready(self) -> bool:
        """Whether what is handed over now would be signed."""
        return self.settled and self.key() is not None

    def key(self) -> HeldKey | None:
        """The writer key, looked for at most once a minute while there is none."""
        if self.held is None and time.monotonic() - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = time.monotonic()
            try:
                self.held = held_key(self._settings, self._state, "writer")
            except AmfsOtelError as error:
                self._say_no_key(str(error))
            except OSError as error:
                self._say_no_key(error.strerror)
            if self.held is None and self._settings.dsn is not None and self.settled:
                guard.once(
                    "no_writer_key",
                    logging.WARNING,
                    "amfs-otel: a database is configured but no signing key; traces wait unsigned in %s. "
                    "Run `amfs-otel init` where the database is prepared and copy the writer key here.",
                    self._state.path,
                )
        return self.held

    def _say_no_key(self, reason: str | None) -> None:
        guard.once(
            "writer_key",
            logging.WARNING,
            "amfs-otel: no signing key, and traces wait unsigned in %s: %s",
            self._state.path,
            reason,
        )

    def sign(self, trace: DecisionTrace, coverage: Mapping[str, Any]) -> Record | None:
        """The signed record of `trace`, or `None`: then it waits for a key.

        Args:
            trace: A closed window.
            coverage: Further coverage counters of its skeleton.
        """
        held = self.key()
        if held is None or not self.settled:
            self.unsigned.append(trace)
            while len(self.unsigned) > UNSIGNED_LIMIT:
                self.left_to_adopters.add(self.unsigned.popleft().window.record_id)
            return None
        record = record_from_trace(
            trace,
            log=self._settings.log,
            key=held.key,
            origin=Origin(origin_facts(self._settings)),
            content=self._settings.ledger_content,
            hash_of=self._hash_of,
            coverage=coverage,
        )
        self._remember(record)
        return record

    def _remember(self, record: Record) -> None:
        self.signed[record.kind] = self.signed.get(record.kind, 0) + 1
        self._hashes[frame_id(record.record_id)] = record.record_hash
        if len(self._hashes) > REMEMBERED_HASHES:
            del self._hashes[next(iter(self._hashes))]
        self._recent[record.record_id] = record
        self._recent_bytes += _size(record)
        while len(self._recent) > REMEMBERED_RECORDS or self._recent_bytes > REMEMBERED_BYTES:
            _, forgotten = self._recent.popitem(last=False)
            self._recent_bytes -= _size(forgotten)

    def _hash_of(self, record_id: str) -> str | None:
        known = self._hashes.get(frame_id(record_id))
        return None if known is None else known.hex()

    def recent(self) -> list[Record]:
        """The records that this process signed last, oldest first."""
        return list(self._recent.values())

    def waiting_ids(self) -> list[str]:
        """Record ids of the traces without a record, which only the journal holds."""
        return [*self.left_to_adopters, *(trace.window.record_id for trace in self.unsigned)]

    def waiting(self, done: Callable[[DecisionTrace], None]) -> None:
        """Hands over the traces that waited for a key, if there is one now."""
        if self.unsigned and self.ready:
            while self.unsigned:
                done(self.unsigned.popleft())


def _size(record: Record) -> int:
    return len(record.header) + sum(len(part.data or b"") + 100 for part in record.parts)
