"""The worker's side of the spool: what to do when it is full, read-only or missing."""

import logging
import time
from collections.abc import Callable, Collection

from amfs_otel import guard
from amfs_otel.errors import SpoolError
from amfs_otel.settings import Settings
from amfs_otel.spool import (
    LOCAL,
    STREAMS,
    Frame,
    Pressure,
    SpoolFull,
    SpoolWriter,
    StateDirectory,
    Stream,
    WriterName,
    list_segments,
    read_stream,
    retire,
)

JOURNAL_AGE_S = 600.0
TIDY_EVERY_S = 5.0
HELD_S = 0.02
HELD_BYTES = 1 << 18
"""So long, and so many bytes, frames wait for others: each write lets go of the GIL, and has to get it back."""


class Spooling:
    """Writes journal and records; says, once per cause, where it cannot. Callers serialise.

    Args:
        settings: Limit of the spool.
        state: The state directory.
        open_windows: Frame ids of windows not yet spooled as records.
    """

    def __init__(
        self, settings: Settings, state: StateDirectory, open_windows: Callable[[], Collection[bytes]]
    ) -> None:
        self._settings = settings
        self._state = state
        self._open_windows = open_windows
        self._writer: SpoolWriter | None = None
        self._began: bytes | None = None
        self._unusable = False
        self._dirty = False
        self._tidied_at = time.monotonic()
        self.destination = LOCAL
        self.ephemeral: bool | None = None
        self.lost: dict[str, int] = {}
        self._held: dict[Stream, list[tuple[bytes, bytes]]] = {stream: [] for stream in STREAMS}
        self._held_bytes = 0
        self._held_since = 0.0
        self._unsynced: list[bytes] = []
        self._refused: list[bytes] = []
        self.journaled = 0
        self.spooled = 0

    def settle(self, destination: str) -> None:
        """Says what destination records are for, before the first one; what is in the journal goes with them."""
        if destination == self.destination:
            return
        self.write()
        self.destination = destination
        before, self._writer = self._writer, None
        if before is not None:
            guard.run("spool", self._move, before)

    def _move(self, before: SpoolWriter) -> None:
        carried = frozenset(self._carried())
        moved = True
        for _, frame in read_stream(before.segments("journal"), self._state.spool_key()):
            if isinstance(frame, Frame) and frame.frame_id in carried:
                moved = self._append("journal", frame.frame_id, frame.payload) and moved
        moved = self._synced() and moved
        before.close()
        if moved:
            self._remove_journal(before)

    def begin(self, began: bytes) -> None:
        """Writes the first frame: what an adopter must know about this process."""
        self._began = began
        self.ephemeral = guard.run("spool", self._state.is_ephemeral)
        self.journal(bytes(16), began)

    @property
    def name(self) -> WriterName | None:
        """Name of this process's writer, once it wrote something."""
        return self._writer.name if self._writer is not None else None

    @property
    def usable(self) -> bool:
        """Whether frames reach the disk."""
        return not self._unusable

    @property
    def pressure(self) -> Pressure:
        """What the fill of the state directory asks to leave out."""
        return self._writer.pressure() if self._writer is not None else Pressure.NONE

    def used_bytes(self) -> int:
        """Bytes that the state directory uses."""
        return self._writer.used_bytes() if self._writer is not None else 0

    def journal(self, identity: bytes, payload: bytes) -> None:
        """Takes a journal frame; it is written with those that follow in the next `HELD_S`, or by `write` or `sync`."""
        self._hold("journal", identity, payload)

    def record(self, identity: bytes, payload: bytes) -> None:
        """Takes a record frame, as `journal` does; `sync` says whether it is on the medium."""
        self._hold("records", identity, payload)

    def _hold(self, stream: Stream, identity: bytes, payload: bytes) -> None:
        now = time.monotonic()
        if not self._held_bytes:
            self._held_since = now
        self._held[stream].append((identity, payload))
        self._held_bytes += len(payload)
        if self._held_bytes >= HELD_BYTES or now - self._held_since >= HELD_S:
            self.write()

    def write(self) -> None:
        """Writes the frames that are held; from now on they survive a kill of this process."""
        self._held_bytes = 0
        for stream, held in self._held.items():
            if held:
                self._held[stream] = []
                taken = self._extend(stream, held)
                if stream == "journal":
                    self.journaled += sum(taken)
                else:
                    self.spooled += sum(taken)
                    for (identity, _), ours in zip(held, taken, strict=True):
                        (self._unsynced if ours else self._refused).append(identity)

    def _extend(self, stream: Stream, frames: list[tuple[bytes, bytes]]) -> list[bool]:
        """Which of `frames` were taken."""
        try:
            self._open().extend(stream, frames)
        except SpoolError:
            # One by one: some may find room, and of the others it is told what is the matter.
            return [self._append(stream, *frame) for frame in frames]
        self._unusable, self._dirty = False, True
        return [True] * len(frames)

    def keep(self, identity: bytes, payload: bytes) -> bool:
        """Brings a record that tells of losses onto the medium, from the reserve if need be; whether that succeeded."""
        taken = self._append("records", identity, payload, reserved=True)
        self.spooled += taken
        return taken and self._synced()

    def _append(self, stream: Stream, identity: bytes, payload: bytes, *, reserved: bool = False) -> bool:
        try:
            self._open().append(stream, identity, payload, reserved=reserved)
        except SpoolFull as error:
            self.lost["spool_full"] = self.lost.get("spool_full", 0) + 1
            guard.once("spool_full", logging.ERROR, "amfs-otel: evidence is being lost: %s", error)
            return False
        except SpoolError as error:
            self._unusable = True
            self.lost["spool"] = self.lost.get("spool", 0) + 1
            guard.once(
                "spool",
                logging.WARNING,
                "amfs-otel: the spool cannot be used; %s: %s",
                "records go straight to the database" if self._settings.dsn else "decision traces are lost",
                error,
            )
            return False
        self._unusable = False
        self._dirty = True
        return True

    def _open(self) -> SpoolWriter:
        if self._writer is None:
            self._writer = SpoolWriter(
                self._state,
                self.destination,
                limit_bytes=self._settings.spool_limit_bytes,
                max_age_s=JOURNAL_AGE_S,
                open_windows=self._carried,
            )
        return self._writer

    def _carried(self) -> Collection[bytes]:
        return [bytes(16), *self._open_windows()]

    def sync(self) -> list[bytes]:
        """Brings what was taken onto the medium.

        Returns:
            The ids of the records taken since the last time that are not there.
        """
        self.write()
        synced = self._synced()
        unsynced, self._unsynced = self._unsynced, []
        refused, self._refused = self._refused, []
        return refused if synced else refused + unsynced

    def _synced(self) -> bool:
        if self._writer is None or not self._dirty:
            return True
        try:
            self._writer.sync()
        except SpoolError as error:
            guard.once("spool_sync", logging.ERROR, "amfs-otel: evidence may be lost: %s", error)
            return False
        self._dirty = False
        return True

    def tidy(self) -> None:
        """Cuts old segments and removes journal segments: what was open in them was carried into the newest."""
        if self._writer is None or time.monotonic() - self._tidied_at < TIDY_EVERY_S:
            return
        self._tidied_at = time.monotonic()
        guard.run("spool", self._writer.rotate_due)
        for segment in self._writer.segments("journal")[:-1]:
            guard.run("spool", self._writer.retire, segment)

    def close(self, *, journal_done: bool = True) -> None:
        """Syncs and lets go of the files.

        Args:
            journal_done: Whether every window in the journal became a spooled record, so that the journal may go.
        """
        self.write()
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        writer.close()
        if journal_done and not self.lost and not self._open_windows():
            self._remove_journal(writer)

    def _remove_journal(self, writer: SpoolWriter) -> None:
        for segment in list_segments(self._state, writer.name.destination):
            if segment.writer == writer.name and segment.stream == "journal":
                retire(segment)

    def after_fork_in_child(self) -> None:
        """Closes inherited descriptors; the parent goes on with the files."""
        self._held = {stream: [] for stream in STREAMS}
        self._held_bytes = 0
        self._unsynced.clear()
        self._refused.clear()
        if self._writer is not None:
            self._writer.after_fork_in_child()
            self._writer = None
