"""What of this machine's spool a server does not hold yet. Looks, and changes nothing."""

import os
from dataclasses import dataclass
from uuid import UUID

from amfs_otel import spool
from amfs_otel.errors import SpoolError, StoreError
from amfs_otel.settings import Settings
from amfs_otel.spool import Frame, StateDirectory
from amfs_otel.store.destination import destination_of
from amfs_otel.store.postgres import Store

READ_AT_MOST = 32 << 20
"""Bytes of a spool that are read to count what waits."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits.

    Attributes:
        records: How many records; `None` where that cannot be told: there is too much to read, or the key to read it
            with or the right to ask the store lacks.
        unfinished: Whether a process that is over left a journal: traces that nobody has signed yet.
    """

    records: int | None = 0
    unfinished: bool = False


def waiting_here(store: Store, settings: Settings, *, ended: bool = False) -> Waiting:
    """Looks at what was spooled for the store of `settings`.

    A segment stays ten minutes after its records were sealed, so files alone do not tell.

    Args:
        store: The open store.
        settings: Names state directory, DSN and log.
        ended: Only what processes left that are over: those that run deliver by themselves.
    """
    state = StateDirectory(settings.state_dir)
    try:
        listed = spool.list_segments(state, destination_of(settings.dsn, settings.log))
        segments = [one for one in listed if not (ended and one.alive)]
        if not segments:
            return Waiting()
        unfinished = any(one.stream == "journal" and not one.alive for one in segments)
        if not key_is_here(state) or spool.usage_bytes(state) > READ_AT_MOST:
            return Waiting(None, unfinished)
        records = spool.read_stream((one for one in segments if one.stream == "records"), state.spool_key())
        ids = {str(UUID(bytes=item.frame_id)) for _, item in records if isinstance(item, Frame)}
        return Waiting(len(ids - store.places(sorted(ids)).keys()), unfinished)
    except (SpoolError, StoreError):
        return Waiting(None)


def key_is_here(state: StateDirectory) -> bool:
    """Whether there is a key to read the spool with; asking for it would make one."""
    return os.path.exists(state.keys / "spool.key")  # noqa: PTH110  (Path.exists raises where it may not look)
