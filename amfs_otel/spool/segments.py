"""What lies in the spool: listing, adoption of what dead writers left, reading a stream, retirement.

Who may remove a segment (each only when every frame in it is done):

- the writer itself, any of its own but the one it is writing (`SpoolWriter.retire`);
- an adopter, any of the dead writer's (`Adoption.retire`);
- anybody who drains, a living writer's older segments, never its newest of a stream (`retire`).
"""

import contextlib
import os
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from amfs_otel.spool import locks
from amfs_otel.spool.durable import sync_directory
from amfs_otel.spool.failures import spool_error_from_os_error
from amfs_otel.spool.frames import Damage, Frame, read_frames
from amfs_otel.spool.names import Stream, WriterName, checked_destination, is_destination, segment_name_from_path
from amfs_otel.spool.state_directory import StateDirectory


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of frames, as it was when it was listed.

    Attributes:
        path: The file.
        destination: ``local`` or 64 hex digits.
        stream: ``journal`` or ``records``.
        start: Nanoseconds since the epoch at which its writer was made.
        pid: Its writer's process id.
        index: Position in its stream, from 0.
        alive: Whether the writer's lock was held: by the writer, or by somebody who adopted its files.
    """

    path: Path
    destination: str
    stream: Stream
    start: int
    pid: int
    index: int
    alive: bool

    @property
    def writer(self) -> WriterName:
        """Whose segment it is."""
        return WriterName(self.destination, self.start, self.pid)


def destinations(state: StateDirectory) -> list[str]:
    """The destinations for which the spool has a directory, sorted; empty when there is no spool.

    Raises:
        SpoolError: The spool cannot be listed.
    """
    return [name for name in _names(state.spool) if is_destination(name)]


def list_segments(state: StateDirectory, destination: str) -> list[Segment]:
    """All segments of a destination: oldest writer first, its journal before its records, by index.

    Reads names and tries each writer's lock; opens no segment and makes nothing.

    Raises:
        SpoolError: The directory cannot be listed.
    """
    directory = state.spool / checked_destination(destination)
    alive: dict[WriterName, bool] = {}
    found: list[Segment] = []
    for file_name in _names(directory):
        name = segment_name_from_path(directory / file_name)
        if name is None:
            continue
        writer, stream, index = name
        if writer not in alive:
            alive[writer] = locks.is_held(directory / writer.lock_name)
        found.append(_segment(directory, writer, stream, index, alive=alive[writer]))
    return sorted(found, key=attrgetter("start", "pid", "stream", "index"))


def segments_of(directory: Path, writer: WriterName, *, alive: bool) -> list[Segment]:
    """One writer's segments, journal before records, by index.

    Raises:
        SpoolError: The directory cannot be listed.
    """
    names = (segment_name_from_path(directory / file_name) for file_name in _names(directory))
    own = [
        _segment(directory, writer, stream, index, alive=alive)
        for owner, stream, index in filter(None, names)
        if owner == writer
    ]
    return sorted(own, key=attrgetter("stream", "index"))


class Adoption:
    """A dead writer's files, held by its lock: nobody else can adopt them as long as this is held.

    Attributes:
        writer: Who left them.
        segments: All that was there when the lock was taken.
    """

    def __init__(self, directory: Path, writer: WriterName) -> None:
        self.writer = writer
        self.segments = segments_of(directory, writer, alive=False)

    def retire(self, segment: Segment) -> bool:
        """Remove one of the segments; False when it is not one of them or already gone.

        Raises:
            SpoolError: It cannot be removed.
        """
        return segment.writer == self.writer and unlink_segment(segment.path)


@contextlib.contextmanager
def adopt(segment: Segment) -> Generator[Adoption | None]:
    """Hold all that the writer of `segment` left, if it is dead.

    Gives None when the writer lives (also in this very process) or another process adopted it; of many adopters at once
    exactly one gets it. The lock file goes with the last segment. A child forked meanwhile holds nothing.

    Raises:
        SpoolError: The lock file cannot be opened, or the directory not listed.
    """
    directory = segment.path.parent
    lock_path = directory / segment.writer.lock_name
    try:
        descriptor = locks.take(lock_path)
    except FileNotFoundError:
        descriptor = None
    except OSError as error:
        raise spool_error_from_os_error(
            error, "the lock of a dead process's files cannot be taken", lock_path
        ) from error
    if descriptor is None:
        yield None
        return
    adopter = os.getpid()
    try:
        yield Adoption(directory, segment.writer)
    finally:
        if os.getpid() == adopter:
            release_lock(directory, segment.writer, descriptor)


def release_lock(directory: Path, writer: WriterName, descriptor: int) -> None:
    """Let go of a writer's lock; the file goes too when no segment of the writer is left.

    Raises:
        SpoolError: The directory cannot be listed; the lock is released all the same.
    """
    try:
        if not segments_of(directory, writer, alive=False):
            with contextlib.suppress(OSError):  # an empty lock file that stays harms nobody
                (directory / writer.lock_name).unlink(missing_ok=True)
    finally:
        locks.release(descriptor)


def retire(segment: Segment) -> bool:
    """Remove a segment of another process, every frame of which is done.

    Returns:
        False when nothing was removed: it is the newest of its stream and its writer lives or is being adopted, or it
        is already gone.

    Raises:
        SpoolError: It cannot be removed.
    """
    stream = [s for s in segments_of(segment.path.parent, segment.writer, alive=True) if s.stream == segment.stream]
    if any(other.index > segment.index for other in stream):
        return unlink_segment(segment.path)
    with adopt(segment) as adoption:
        return adoption is not None and adoption.retire(segment)


def unlink_segment(path: Path) -> bool:
    """Remove a segment's name, durably; False when it is gone already.

    Raises:
        SpoolError: It cannot be removed.
    """
    try:
        path.unlink()
        sync_directory(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise spool_error_from_os_error(error, "a spool segment could not be removed", path) from error
    return True


def read_stream(segments: Iterable[Segment], spool_key: bytes) -> Iterator[tuple[Segment, Frame | Damage]]:
    """The frames of each stream in the order they were written, each once.

    A journal frame that was copied forward stands in several segments; the first copy met counts. Damage is given where
    it is met.

    Args:
        segments: Of any writers and streams, as `list_segments` or an `Adoption` orders them.
        spool_key: `StateDirectory.spool_key`.

    Raises:
        SpoolError: A segment cannot be read.
    """
    stream: tuple[WriterName, Stream] | None = None
    seen: set[tuple[int, int]] = set()
    for segment in segments:
        if stream != (segment.writer, segment.stream):
            stream, seen = (segment.writer, segment.stream), set()
        for item in read_frames(segment.path, spool_key):
            if isinstance(item, Frame):
                if item.origin in seen:
                    continue
                seen.add(item.origin)
            yield segment, item


def _segment(directory: Path, writer: WriterName, stream: Stream, index: int, *, alive: bool) -> Segment:
    path = directory / writer.segment_name(stream, index)
    return Segment(path, writer.destination, stream, writer.start, writer.pid, index, alive)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 (names only: a Path for each costs more than the listing)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise spool_error_from_os_error(error, "the spool cannot be listed", directory) from error
