"""Spool → store: every frame of a destination, each record exactly once, whoever dies in between.

A segment is removed when every frame in it is done: sealed (against a server, ten minutes later, for a failover), or
stored for 24 hours where nobody seals. Where reading stopped is only remembered in memory; the store knows what it has.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amfs_otel import guard, spool
from amfs_otel.assemble.assembler import DecisionTrace
from amfs_otel.assemble.gaps import Gap, trace_from_gap
from amfs_otel.assemble.journal import frame_id
from amfs_otel.assemble.origin import origin_facts
from amfs_otel.assemble.records import Origin, record_from_trace
from amfs_otel.chain.keys import SigningKey
from amfs_otel.chain.record import Record, record_from_bytes, record_to_bytes
from amfs_otel.drain.adopt import Orphans, gap_from_damage, orphans_of
from amfs_otel.errors import FormatError, SpoolError
from amfs_otel.settings import LedgerContent, Settings
from amfs_otel.spool import Damage, Frame, Segment, StateDirectory
from amfs_otel.store.postgres import Store

BATCH = 50
FAILOVER_GRACE_S = 600.0
UNSEALED_LIMIT_S = 24 * 3600.0


@dataclass(slots=True)
class Delivered:
    """What one pass did.

    Attributes:
        stored: Records that are new in the store.
        already: Records that it had.
        refused: Records that it refused; they lie in quarantine, and a gap tells of each.
        adopted: Windows of dead processes that were signed here.
        gaps: Losses that were signed as gap records.
    """

    stored: int = 0
    already: int = 0
    refused: int = 0
    adopted: int = 0
    gaps: int = 0


@dataclass(slots=True)
class _Cursor:
    offset: int = 0
    number: int = 0
    record_ids: list[str] = field(default_factory=list[str])
    stored_at: float = 0.0


class Courier:
    """Delivers one destination's frames over a store.

    Not thread-safe. Holds no descriptor between calls.

    Args:
        settings: The process's settings.
        state: The state directory.
        destination: `local` or a DSN's hash.
        writer_key: The key that adopted windows and gaps are signed with; `None` leaves both for somebody who has one.
    """

    def __init__(
        self, settings: Settings, state: StateDirectory, destination: str, writer_key: SigningKey | None
    ) -> None:
        self.settings = settings
        self.state = state
        self.destination = destination
        self.writer_key = writer_key
        self._cursors: dict[Path, _Cursor] = {}
        self._told: set[tuple[str, int | None]] = set()

    def deliver(self, store: Store, *, own: spool.WriterName | None = None, others: bool = True) -> Delivered:
        """Delivers what there is.

        Args:
            store: The open store of the destination.
            own: Name of this process's writer: its segments are read although it lives.
            others: Whether files of other processes are looked at: dead ones are adopted, and, for the local
                destination, those of living ones read.

        Raises:
            StoreUnavailable: The store went away; what was acknowledged stays delivered.
            SpoolError: The spool cannot be read.
        """
        done = Delivered()
        segments = spool.list_segments(self.state, self.destination)
        living = [s for s in segments if s.alive and (s.writer == own or self.destination == spool.LOCAL)]
        for segment in living:
            if segment.stream == "records" and (others or segment.writer == own):
                self._segment(store, segment, done)
                self._retire_if_done(store, segment, spool.retire)
        if others:
            for writer in dict.fromkeys(s.writer for s in segments if not s.alive and s.writer != own):
                try:
                    self._adopt(store, next(s for s in segments if s.writer == writer), done)
                except SpoolError as error:
                    # One unreadable file must not keep everybody else's records waiting.
                    guard.once(
                        f"adopt:{writer}", logging.WARNING, "amfs-otel: left by a dead process and kept: %s", error
                    )
        return done

    def _segment(self, store: Store, segment: Segment, done: Delivered) -> None:
        """Stores the records of one segment from where reading stopped."""
        cursor = self._cursors.setdefault(segment.path, _Cursor())
        items = spool.read_frames(segment.path, self.state.spool_key(), offset=cursor.offset, number=cursor.number)
        for batch in _batched(items, BATCH):
            frames = [item for item in batch if isinstance(item, Frame)]
            self._gaps(store, [gap_from_damage(segment, item) for item in batch if isinstance(item, Damage)], done)
            cursor.record_ids += self._store(store, frames, done)
            if frames:
                cursor.offset, cursor.number = frames[-1].end, frames[-1].number + 1
                cursor.stored_at = time.monotonic()

    def _store(self, store: Store, frames: Sequence[Frame], done: Delivered) -> list[str]:
        """Stores the records of `frames`; gives the ids of those that the store has."""
        records: list[Record] = []
        payloads: list[Frame] = []
        there: list[str] = []
        for frame in frames:
            try:
                records.append(record_from_bytes(frame.payload))
                payloads.append(frame)
            except FormatError as error:
                self._refused(store, frame.frame_id, frame.payload, error.what, done, reason="unreadable")
        for outcome, frame in zip(store.append(records), payloads, strict=True):
            if outcome.outcome == "stored":
                done.stored += 1
            elif outcome.outcome == "already":
                done.already += 1
            else:
                self._refused(store, frame.frame_id, frame.payload, outcome.reason or "", done)
                continue
            there.append(_uuid(frame.frame_id))
        return there

    def _refused(
        self, store: Store, record_id: bytes, payload: bytes, detail: str, done: Delivered, *, reason: str = "refused"
    ) -> None:
        done.refused += 1
        spool.quarantine(self.state, payload, reason, record_id=record_id, destination=self.destination, detail=detail)
        self._gaps(store, [Gap("refused", count=1, record_id=_uuid(record_id))], done)

    # -- dead processes ------------------------------------------------------------------------------------------

    def _adopt(self, store: Store, segment: Segment, done: Delivered) -> None:
        """Delivers what a dead process left, and finishes its windows."""
        with spool.adopt(segment) as adoption:
            if adoption is None:
                return
            for left in adoption.segments:
                if left.stream == "records":
                    self._segment(store, left, done)
            journal = [s for s in adoption.segments if s.stream == "journal"]
            if journal and self._finish_windows(store, adoption.segments, done):
                for left in journal:
                    adoption.retire(left)
            for left in adoption.segments:
                if left.stream == "records":
                    self._retire_if_done(store, left, adoption.retire, dead=True)

    def _finish_windows(self, store: Store, segments: list[Segment], done: Delivered) -> bool:
        """Signs and stores the dead process's windows without a record; says whether its journal is done with."""
        orphans = orphans_of(segments, self.state.spool_key())
        known = store.places([trace.window.record_id for trace in orphans.traces]) if orphans.traces else {}
        missing = [trace for trace in orphans.traces if trace.window.record_id not in known]
        if self.writer_key is None:
            return not missing and not orphans.gaps
        records = [self._signed(trace, orphans, self.writer_key) for trace in missing]
        for outcome, record in zip(store.append(records), records, strict=True):
            if outcome.outcome == "refused":
                self._refused(store, frame_id(record.record_id), record_to_bytes(record), outcome.reason or "", done)
            else:
                done.adopted += 1
        self._gaps(store, orphans.gaps, done)
        return True

    def _signed(self, trace: DecisionTrace, orphans: Orphans, key: SigningKey) -> Record:
        began = orphans.began
        return record_from_trace(
            trace,
            log=began.log if began is not None else self.settings.log,
            key=key,
            origin=Origin(began.origin if began is not None else {}, orphans.adopted_from),
            content=LedgerContent(began.content) if began is not None else self.settings.ledger_content,
        )

    def _gaps(self, store: Store, gaps: Iterable[Gap], done: Delivered) -> None:
        """Signs each loss once in this process's life."""
        if self.writer_key is None:
            return
        for gap in gaps:
            mark = (f"{gap.cause}:{gap.file}:{gap.record_id}", gap.first_byte)
            if mark in self._told:
                continue
            record = record_from_trace(
                trace_from_gap(gap, self.settings.default_agent),
                log=self.settings.log,
                key=self.writer_key,
                origin=Origin(origin_facts(self.settings)),
                content=self.settings.ledger_content,
            )
            store.append([record])
            self._told.add(mark)
            done.gaps += 1

    # -- retirement ----------------------------------------------------------------------------------------------

    def _retire_if_done(
        self, store: Store, segment: Segment, remove: Callable[[Segment], bool], *, dead: bool = False
    ) -> None:
        """Removes a segment that was read to its end; what a dead writer's ends with beyond that is a torn frame."""
        cursor = self._cursors.get(segment.path)
        if cursor is None:
            return
        try:
            facts = segment.path.stat()
        except FileNotFoundError:
            del self._cursors[segment.path]
            return
        age_s = time.time() - facts.st_mtime
        if facts.st_size > cursor.offset and not dead:
            return
        if self.destination != spool.LOCAL and age_s < FAILOVER_GRACE_S:
            return
        places = store.places(cursor.record_ids)
        sealed = all(places.get(record_id) is not None for record_id in cursor.record_ids)
        if (sealed or age_s > UNSEALED_LIMIT_S) and remove(segment):
            del self._cursors[segment.path]


def _uuid(frame_id: bytes) -> str:
    text = frame_id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _batched(items: Iterator[Frame | Damage], size: int) -> Iterator[tuple[Frame | Damage, ...]]:
    """`itertools.batched`, which Python 3.11 lacks."""
    while batch := tuple(itertools.islice(items, size)):
        yield batch
