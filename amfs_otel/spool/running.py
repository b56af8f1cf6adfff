"""Which processes of this machine hold traces that are open, so that no store can show them yet."""

from dataclasses import dataclass

from amfs_otel.spool.segments import list_segments
from amfs_otel.spool.state_directory import StateDirectory
from amfs_otel.spool.status import read_newest

_NEWEST = 50
"""Among so many of the processes that started last."""


@dataclass(frozen=True, slots=True)
class OpenTraces:
    """What a process that runs has not closed.

    Attributes:
        program: Its name, None where it did not say.
        pid: Process id.
        count: How many traces, as of its status file: a second ago or less.
    """

    program: str | None
    pid: int
    count: int


def open_traces(state: StateDirectory, destination: str) -> list[OpenTraces]:
    """Returns the processes that run and hold open traces for a destination, the newest first.

    Args:
        state: The state directory.
        destination: ``local`` or 64 hex digits.

    Raises:
        SpoolError: The spool cannot be listed.
    """
    alive = {(one.pid, one.start) for one in list_segments(state, destination) if one.alive}
    found: list[OpenTraces] = []
    for status in read_newest(state, _NEWEST):
        facts = status.facts or {}
        count, program = facts.get("open_windows"), facts.get("program")
        runs = not facts.get("ended") and any(pid == status.pid and start >= status.start for pid, start in alive)
        if runs and facts.get("destination") == destination and isinstance(count, int) and count > 0:
            found.append(OpenTraces(program if isinstance(program, str) else None, status.pid, count))
    return found
