"""How much of its limit a state directory uses, and what that asks of whoever fills it."""

import enum
import os
import time
from pathlib import Path

from amfs_otel.spool.failures import SpoolFull
from amfs_otel.spool.state_directory import StateDirectory

DEFAULT_LIMIT_BYTES = 1 << 30
RESERVE_BYTES = 1 << 20
"""What reserved frames (a `gap` that tells of the losses) may use beyond the limit."""

_SCAN_INTERVAL_S = 5.0
_SCAN_WHEN_FULL_S = 0.2
_SCAN_BYTES = 8 << 20


class Pressure(enum.IntEnum):
    """What to leave out, least first; each level includes the ones before it. Whatever is left out is counted."""

    NONE = 0
    WARN = 1
    """Half of the limit is used: say so, once."""
    NO_MESSAGE_PARTS = 2
    """From 90 %: spool records without the texts of messages."""
    NO_NEW_SESSIONS = 3
    """From 97 %: begin no session; finish the open ones."""
    FULL = 4
    """The limit is reached: only reserved frames are taken."""


_LEVELS = (
    (1.0, Pressure.FULL),
    (0.97, Pressure.NO_NEW_SESSIONS),
    (0.9, Pressure.NO_MESSAGE_PARTS),
    (0.5, Pressure.WARN),
)


def pressure_from_usage(used_bytes: int, limit_bytes: int) -> Pressure:
    """The level that a use of so many bytes of a limit stands for."""
    return next((level for share, level in _LEVELS if used_bytes >= share * limit_bytes), Pressure.NONE)


def usage_bytes(state: StateDirectory) -> int:
    """Bytes of all segments of all processes and destinations, and of the quarantine; 0 without a directory.

    One look at each file's length. What disappears or cannot be seen meanwhile counts as nothing.
    """
    return _bytes_below(state.spool) + _bytes_below(state.quarantine)


class UsageMeter:
    """A writer's running figure: its own appends at once, everybody else's every few seconds.

    Args:
        state: The directory.
        limit_bytes: What all its processes together may use.
    """

    def __init__(self, state: StateDirectory, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._state = state
        self._scanned_bytes = 0
        self._added_bytes = 0
        self._scanned_at: float | None = None

    def used_bytes(self) -> int:
        """Bytes used, at most 5 seconds or 8 MiB of own appends after the last look at the directory."""
        self._scan_if_older(_SCAN_INTERVAL_S)
        return self._scanned_bytes + self._added_bytes

    def admit(self, frame_bytes: int, *, reserved: bool) -> None:
        """Let a frame pass, or not.

        Raises:
            SpoolFull: With it the directory would be over its limit.
        """
        allowed = self.limit_bytes + (RESERVE_BYTES if reserved else 0)
        if self.used_bytes() + frame_bytes <= allowed:
            return
        self._scan_if_older(_SCAN_WHEN_FULL_S)
        used = self._scanned_bytes + self._added_bytes
        if used + frame_bytes > allowed:
            raise SpoolFull(
                "the spool has reached its limit",
                where=str(self._state.spool),
                expected=f"at most {allowed} bytes",
                got=f"{used} used and {frame_bytes} more",
                hint="Drain it (amfs-otel drain), or raise the limit.",
            )

    def add(self, count: int) -> None:
        """Tell of bytes just appended."""
        self._added_bytes += count

    def _scan_if_older(self, age_s: float) -> None:
        now = time.monotonic()
        if self._scanned_at is None or now - self._scanned_at >= age_s or self._added_bytes >= _SCAN_BYTES:
            self._scanned_bytes, self._added_bytes, self._scanned_at = usage_bytes(self._state), 0, now


def _bytes_below(directory: Path) -> int:
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += _bytes_below(Path(entry.path))
                else:
                    total += _length(entry)
    except OSError:
        return total
    return total


def _length(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
