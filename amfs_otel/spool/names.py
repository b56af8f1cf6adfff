"""What a segment's path says: ``<destination>/<start>-<pid>-<stream>-<index>.frames``.

A *writer* is one process's `SpoolWriter`: its start time in nanoseconds and its process id name it, also after a
process id was used again and across containers that share a directory. Everything a drainer must know before it opens a
file is in the name; a frame's HMAC covers destination and name, so a file that was renamed or moved does not
authenticate.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from amfs_otel.errors import SpoolError

Stream = Literal["journal", "records"]
"""The two files of a writer: events as they come, and records once a window is closed."""

STREAMS: tuple[Stream, ...] = ("journal", "records")
LOCAL = "local"
"""The destination of frames for the local store."""

_DESTINATION = re.compile(r"local|[0-9a-f]{64}")
_NAME = re.compile(
    r"(?P<start>[0-9]{1,19})-(?P<pid>[0-9]{1,19})-(?P<stream>journal|records)-(?P<index>[0-9]{6,9})\.frames"
)


def is_destination(name: str) -> bool:
    """Whether this is ``local`` or the 64 hex digits that stand for a DSN and a log."""
    return _DESTINATION.fullmatch(name) is not None


def checked_destination(destination: str) -> str:
    """The destination itself: ``local`` or the 64 hex digits that stand for a DSN and a log.

    Raises:
        SpoolError: It is neither; what came is not repeated, since it may be a DSN with a password.
    """
    if not is_destination(destination):
        raise SpoolError("not a destination of spooled frames", expected=f"{LOCAL!r} or 64 lower-case hex digits")
    return destination


@dataclass(frozen=True, slots=True)
class WriterName:
    """Who writes or wrote.

    Attributes:
        destination: ``local`` or 64 hex digits.
        start: Nanoseconds since the epoch at which the writer was made.
        pid: Its process id, in its own process id namespace.
    """

    destination: str
    start: int
    pid: int

    @property
    def lock_name(self) -> str:
        """Name of the file whose flock the writer holds as long as it lives."""
        return f"{self.start:019d}-{self.pid}.lock"

    def segment_name(self, stream: Stream, index: int) -> str:
        """Name of one of its segments."""
        return f"{self.start:019d}-{self.pid}-{stream}-{index:06d}.frames"


def segment_name_from_path(path: Path) -> tuple[WriterName, Stream, int] | None:
    """What the last two components of a path say: the writer, its stream, the segment's index from 0.

    None when it is not the path of a segment.
    """
    match = _NAME.fullmatch(path.name)
    if match is None or not is_destination(path.parent.name):
        return None
    writer = WriterName(destination=path.parent.name, start=int(match["start"]), pid=int(match["pid"]))
    return writer, cast("Stream", match["stream"]), int(match["index"])
