"""One process's side of the spool: appends, syncs, cuts segments, and lets go in a forked child."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Self

from amfs_otel.errors import SpoolError
from amfs_otel.spool import locks
from amfs_otel.spool.failures import SpoolFull, spool_error_from_os_error
from amfs_otel.spool.frames import HEADER_BYTES, Damage, read_frames
from amfs_otel.spool.names import STREAMS, Stream, WriterName, checked_destination
from amfs_otel.spool.open_segment import FrameAddress, OpenSegment
from amfs_otel.spool.segments import Segment, release_lock, segments_of, unlink_segment
from amfs_otel.spool.state_directory import StateDirectory
from amfs_otel.spool.usage import DEFAULT_LIMIT_BYTES, Pressure, UsageMeter, pressure_from_usage

SEGMENT_BYTES = 16 << 20
_NEXT_TRY_S = 30.0


def _no_windows() -> Collection[bytes]:
    return ()


class SpoolWriter:
    """Appends frames for one destination to this process's two streams.

    Touches the disk at the first append only. One thread at a time: callers serialise. Whatever raises leaves the
    writer usable; the frame concerned was not taken. In a forked child every method but `after_fork_in_child` and
    `close` raises: the child makes its own writer.

    Args:
        state: The state directory; made if need be.
        destination: ``local`` or the 64 hex digits that stand for a DSN and a log.
        limit_bytes: What all processes of the state directory together may use.
        segment_bytes: Size at which a segment is cut.
        max_age_s: Age at which a segment with content is cut, at an append or by `rotate_due`; None: by size only.
        open_windows: Gives the ids (16 bytes, the `frame_id` of journal frames) of windows not yet closed and spooled;
            their journal frames are copied into each new journal segment, so that older ones can be retired.

    Attributes:
        name: Start time, process id and destination: what its files are called.
        damage_seen: Damage met in an own journal segment while copying: (segment, damage). The caller takes them out.

    Raises:
        SpoolError: `destination` is not one.
    """

    def __init__(
        self,
        state: StateDirectory,
        destination: str,
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
        max_age_s: float | None = None,
        open_windows: Callable[[], Collection[bytes]] = _no_windows,
    ) -> None:
        self.name = WriterName(checked_destination(destination), time.time_ns(), os.getpid())
        self.damage_seen: list[tuple[Path, Damage]] = []
        self._state = state
        self._meter = UsageMeter(state, limit_bytes)
        self._segment_bytes = segment_bytes
        self._max_age_s = max_age_s
        self._open_windows = open_windows
        self._directory = state.spool / destination
        self._lock: int | None = None
        self._open: dict[Stream, OpenSegment] = {}
        self._begun_at: dict[Stream, float] = {}
        self._no_cut_before: dict[Stream, float] = {}
        self._next_index: dict[Stream, int] = dict.fromkeys(STREAMS, 0)
        self._closed = False

    def append(self, stream: Stream, frame_id: bytes, payload: bytes, *, reserved: bool = False) -> FrameAddress:
        """Write one frame: it survives a kill of this process on return, and a power cut after `sync`.

        Args:
            stream: ``journal`` or ``records``.
            frame_id: 16 bytes: the record id; in the journal that of the window.
            payload: Any bytes.
            reserved: A frame that tells of losses and may use the reserve beyond the limit.

        Raises:
            SpoolFull: The limit is reached or the disk is full.
            SpoolError: It could not be written for another reason.
        """
        size = HEADER_BYTES + len(payload)
        address = self._segment_for(stream, size, reserved=reserved).append(frame_id, payload)
        self._meter.add(size)
        return address

    def extend(self, stream: Stream, frames: Sequence[tuple[bytes, bytes]]) -> None:
        """Write frames, each an id and a payload, with one system call. All of them are taken or none.

        Args:
            stream: ``journal`` or ``records``.
            frames: As `append` takes them; not empty.

        Raises:
            SpoolError: As `append`.
        """
        size = sum(HEADER_BYTES + len(payload) for _, payload in frames)
        self._segment_for(stream, size, reserved=False).extend(frames)
        self._meter.add(size)

    def sync(self) -> None:
        """Block until every frame appended so far is on the medium; cheap when nothing is new.

        Raises:
            SpoolError: Frames appended since the last sync may be lost: append them again (a new segment is begun).
        """
        self._check_usable()
        failure: SpoolError | None = None
        for segment in self._open.values():
            try:
                segment.sync()
            except SpoolError as error:
                failure = error
        if failure is not None:
            raise failure

    def rotate(self, stream: Stream) -> None:
        """Cut the stream's segment, if it holds anything: frames of open windows are copied, durably, into the next.

        Afterwards the older segments can be retired once what they hold is done.

        Raises:
            SpoolError: No new segment could be made; the old one stays in use.
        """
        self._check_usable()
        segment = self._open.get(stream)
        if segment is not None and segment.size > segment.carried_bytes:
            self._cut(stream, segment)

    def rotate_due(self) -> None:
        """Cut the segments that have grown too old; to be called now and then, since an idle writer appends nothing.

        Raises:
            SpoolError: As `rotate`.
        """
        for stream, segment in tuple(self._open.items()):
            if self._is_due(stream, segment, 0):
                self.rotate(stream)

    def segments(self, stream: Stream) -> list[Segment]:
        """This writer's segments that are still there, oldest first; the last one may be in use.

        Raises:
            SpoolError: The directory cannot be listed.
        """
        return [s for s in segments_of(self._directory, self.name, alive=self._lock is not None) if s.stream == stream]

    def retire(self, segment: Segment) -> bool:
        """Remove one of the own segments, every frame of which is done; False for the one in use and for strangers'.

        Raises:
            SpoolError: It cannot be removed.
        """
        in_use = self._open.get(segment.stream)
        if segment.writer != self.name or (in_use is not None and in_use.path == segment.path):
            return False
        return unlink_segment(segment.path)

    def used_bytes(self) -> int:
        """Bytes that the whole state directory uses, at most 5 seconds old."""
        return self._meter.used_bytes()

    def pressure(self) -> Pressure:
        """What the use of the state directory asks the caller to leave out."""
        return pressure_from_usage(self._meter.used_bytes(), self._meter.limit_bytes)

    def close(self) -> None:
        """Sync, close and let go: from now on anybody may adopt the files. Idempotent; empty segments are removed.

        Raises:
            SpoolError: The last frames may not be on the medium; everything is closed all the same.
        """
        if self._closed:
            return
        if os.getpid() != self.name.pid:
            self.after_fork_in_child()
            return
        try:
            self.sync()
        finally:
            self._close_files()

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors and nothing else, while the parent goes on: no sync, unlock or unlink.

        The lock's descriptor is closed by locks.py in every child.
        """
        self._closed = True
        self._lock = None
        for segment in self._open.values():
            segment.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_usable(self) -> None:
        if os.getpid() != self.name.pid:
            self.after_fork_in_child()
        if self._closed:
            raise SpoolError("this spool writer is closed", where=str(self._directory), hint="Make a new one.")

    def _segment_for(self, stream: Stream, size: int, *, reserved: bool) -> OpenSegment:
        """The segment that so many bytes go to, cut before them if it is due."""
        self._check_usable()
        self._meter.admit(size, reserved=reserved)
        segment = self._open.get(stream)
        if segment is None:
            segment = self._new_segment(stream)
            self._put(stream, segment)
        elif segment.broken:
            segment = self._cut(stream, segment)
        elif self._is_due(stream, segment, size):
            segment = self._cut_if_room(stream, segment)
        return segment

    def _is_due(self, stream: Stream, segment: OpenSegment, more: int) -> bool:
        new_bytes = segment.size - segment.carried_bytes
        if new_bytes == 0 or time.monotonic() < self._no_cut_before.get(stream, 0.0):
            return False
        if new_bytes + more > self._segment_bytes:
            return True
        return self._max_age_s is not None and time.monotonic() - self._begun_at[stream] >= self._max_age_s

    def _cut_if_room(self, stream: Stream, segment: OpenSegment) -> OpenSegment:
        """Cut, or stay with the old segment for a while where the disk has no room for the copies: nothing is lost."""
        try:
            return self._cut(stream, segment)
        except SpoolFull:
            self._no_cut_before[stream] = time.monotonic() + _NEXT_TRY_S
            return segment

    def _cut(self, stream: Stream, segment: OpenSegment) -> OpenSegment:
        """The old segment is let go only when the new one holds, durably, what must be carried on."""
        segment.sync()
        new = self._new_segment(stream)
        try:
            if stream == "journal":
                self._carry_forward(segment, new)
        except SpoolError:
            new.close()
            unlink_segment(new.path)
            raise
        self._put(stream, new)
        return new

    def _carry_forward(self, old: OpenSegment, new: OpenSegment) -> None:
        open_windows = frozenset(self._open_windows())
        if not open_windows:
            return
        for item in read_frames(old.path, self._state.spool_key()):
            if isinstance(item, Damage):
                self.damage_seen.append((old.path, item))
            elif item.frame_id in open_windows:
                new.carry(item)
        new.sync()
        self._meter.add(new.size)

    def _new_segment(self, stream: Stream) -> OpenSegment:
        """The directory and the lock come before the first file that they protect, also when somebody removed them."""
        self._state.destination_directory(self.name.destination)
        self._hold_lock()
        index = self._next_index[stream]
        self._next_index[stream] = index + 1
        return OpenSegment(self._directory / self.name.segment_name(stream, index), self._state.spool_key())

    def _put(self, stream: Stream, segment: OpenSegment) -> None:
        old = self._open.get(stream)
        if old is not None:
            old.close()
        self._open[stream] = segment
        self._begun_at[stream] = time.monotonic()

    def _hold_lock(self) -> None:
        """Take the own lock; a lock file that somebody removed is made and taken anew."""
        path = self._directory / self.name.lock_name
        if self._lock is not None and path.exists():
            return
        try:
            taken = locks.take(path)
        except OSError as error:
            raise spool_error_from_os_error(error, "the spool's lock file cannot be made", path) from error
        if taken is None:
            raise SpoolError("the spool's lock file is held by another process", where=str(path))
        if self._lock is not None:
            locks.release(self._lock)
        self._lock = taken

    def _close_files(self) -> None:
        self._closed = True
        for segment in self._open.values():
            segment.close()
            if segment.size == 0:
                with contextlib.suppress(SpoolError):
                    unlink_segment(segment.path)
        self._open.clear()
        if self._lock is not None:
            descriptor, self._lock = self._lock, None
            release_lock(self._directory, self.name, descriptor)
