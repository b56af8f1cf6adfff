"""What each process says of itself: ``status/<start>-<pid>.json``, for `doctor` to read after the fact."""

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from amfs_otel.spool.durable import replace_private_file
from amfs_otel.spool.failures import SpoolFull, is_no_room, spool_error_from_os_error
from amfs_otel.spool.state_directory import StateDirectory

_NAME = re.compile(r"([0-9]{1,19})-([0-9]{1,19})\.json")
_INTERVAL_S = 1.0
_KEPT = 200


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process's status file.

    Attributes:
        start: Nanoseconds since the epoch, from the file's name.
        pid: Process id, from the file's name.
        facts: What the process wrote; None when the file cannot be read as JSON.
    """

    start: int
    pid: int
    facts: Mapping[str, object] | None


class StatusFile:
    """This process's own file. Not safe in threads; a forked child makes its own.

    Args:
        state: The state directory.
        start: Nanoseconds since the epoch: when the process began to be instrumented.
    """

    def __init__(self, state: StateDirectory, start: int) -> None:
        self.path = state.status / f"{start:019d}-{os.getpid()}.json"
        self._state = state
        self._written_at: float | None = None

    def is_due(self) -> bool:
        """Whether a `write` would not come within a second of the last one."""
        return self._written_at is None or time.monotonic() - self._written_at >= _INTERVAL_S

    def write(self, facts: Mapping[str, object], *, at_exit: bool = False) -> bool:
        """Replace the file's content, unless it was replaced within the last second.

        Args:
            facts: JSON values only; no content, no secret.
            at_exit: Write at any rate.

        Returns:
            Whether it was written: not within the second, and not where the disk has no room. That is no fault of
            ours, nothing is lost with it, and the spool says so where it matters.

        Raises:
            SpoolError: It could not be; the old content stays.
        """
        if not at_exit and not self.is_due():
            return False
        data = json.dumps(facts, separators=(",", ":")).encode()
        try:
            if self._written_at is None:
                self._state.open()
                _remove_oldest(self._state.status)
            replace_private_file(self.path, data, durable=False)
        except SpoolFull:
            return False
        except OSError as error:
            if is_no_room(error):
                return False
            raise spool_error_from_os_error(error, "the status file could not be written", self.path) from error
        self._written_at = time.monotonic()
        return True


def read_newest(state: StateDirectory, n: int = 20) -> list[ProcessStatus]:
    """The status of the `n` processes that started last, newest first; empty without a directory."""
    return [
        ProcessStatus(start, pid, _facts(path)) for start, pid, path in sorted(_files(state.status), reverse=True)[:n]
    ]


def _files(directory: Path) -> list[tuple[int, int, Path]]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 (names only)
    except OSError:
        return []
    matches = (_NAME.fullmatch(name) for name in names)
    return [(int(match[1]), int(match[2]), directory / match[0]) for match in matches if match]


def _remove_oldest(directory: Path) -> None:
    """Short-lived processes must not fill the disk with their last words."""
    for _, _, path in sorted(_files(directory), reverse=True)[_KEPT:]:
        path.unlink(missing_ok=True)


def _facts(path: Path) -> Mapping[str, object] | None:
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return cast("Mapping[str, object]", facts) if isinstance(facts, dict) else None
