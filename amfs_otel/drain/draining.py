"""`drain` and `reset --local`: emptying the spool, one way or the other."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amfs_otel import spool
from amfs_otel.chain.record import record_from_bytes
from amfs_otel.drain.custody import held_key
from amfs_otel.drain.filling import Filled, fill
from amfs_otel.drain.open_store import embedded_server, open_local, require_log
from amfs_otel.errors import FormatError
from amfs_otel.settings import Settings
from amfs_otel.spool import Frame, StateDirectory
from amfs_otel.store.destination import destination_of
from amfs_otel.store.postgres import Store


@dataclass(frozen=True, slots=True)
class Strangers:
    """Frames that were spooled for another store.

    Attributes:
        frames: How many.
        development: How many of them a development key signed: no verifier elsewhere holds it.
        logs: Names of the logs that they were made for.
    """

    frames: int
    development: int
    logs: tuple[str, ...]

    @property
    def question(self) -> str:
        """What a person must agree to."""
        text = f"{self.frames} spooled records were made for another store (log {', '.join(self.logs)})"
        if self.development:
            text += f"; {self.development} are signed with a development key, which this log does not know"
        return f"{text}. Send them?"


def drain(settings: Settings, *, everything: bool = False) -> Filled:
    """Brings what lies in the spool into the store.

    Args:
        settings: From `open_store.settled`.
        everything: Also what was spooled for other stores.

    Raises:
        ConfigurationError: The database does not fit or is not prepared.
        StoreUnavailable: It cannot be reached; nothing is lost.
    """
    if settings.dsn is None:
        with open_local(settings) as opened:
            return opened.filled or Filled() if opened is not None else Filled()
    state = StateDirectory(settings.state_dir)
    own = destination_of(settings.dsn, settings.log)
    destinations = tuple(dict.fromkeys([own, *spool.destinations(state)])) if everything else (own,)
    with Store.connect(settings.dsn, settings.log) as store:
        require_log(store)
        writer = held_key(settings, state, "writer", make=False)
        log_key = held_key(settings, state, "log", make=False)
        return fill(store, settings, state, writer, log_key, destinations=destinations)


def strangers(settings: Settings) -> Strangers:
    """Looks at what was spooled for other stores than that of `settings`."""
    state = StateDirectory(settings.state_dir)
    own = destination_of(settings.dsn, settings.log)
    key = held_key(replace(settings, dsn=None, signing_key=None, signing_key_file=None), state, "writer", make=False)
    development_kid = key.key.kid if key is not None and key.development else None
    frames = development = 0
    logs: set[str] = set()
    for destination in spool.destinations(state):
        if destination == own:
            continue
        for record in _records(state, destination):
            frames += 1
            development += record[0] == development_kid
            logs.add(record[1])
    return Strangers(frames, development, tuple(sorted(logs)))


def _records(state: StateDirectory, destination: str) -> Iterator[tuple[str, str]]:
    """Key id and log of each record spooled for a destination."""
    segments = [one for one in spool.list_segments(state, destination) if one.stream == "records"]
    for _, item in spool.read_stream(segments, state.spool_key()) if segments else ():
        if isinstance(item, Frame):
            with contextlib.suppress(FormatError):
                record = record_from_bytes(item.payload)
                yield record.signing_key_id, record.log


def reset_local(settings: Settings) -> int:
    """Deletes the local store and what dead processes spooled for it.

    Returns:
        How many spool files stay because the agents that write them run.

    Raises:
        StoreError: The server does not stop.
        SpoolError: A file cannot be removed.
    """
    state = StateDirectory(settings.state_dir)
    left = 0
    for segment in spool.list_segments(state, spool.LOCAL):
        left += not spool.retire(segment)
    embedded_server(settings).remove()
    return left
