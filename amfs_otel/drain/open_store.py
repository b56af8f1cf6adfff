"""The store that a command works on, by who drains and who writes.

With a DSN it is that server, and a command that reads writes nothing there. Without one it is the local store: the
command starts its server, takes over what lies in the spool, seals and projects it. A log begins there with the first
record that an agent made for it, never because somebody asked for its name. `verify` and `doctor` look at either as it
is.
"""

import contextlib
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amfs_otel import environment_variables as env
from amfs_otel import spool
from amfs_otel.drain.custody import HeldKey, KeysLost, held_key
from amfs_otel.errors import AmfsOtelError, ConfigurationError, FormatError, SpoolError
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory
from amfs_otel.store.embedded import EmbeddedServer
from amfs_otel.store.postgres import Store

if TYPE_CHECKING:
    from amfs_otel.drain.filling import Filled

FALLBACK_S = 2.0


@dataclass(frozen=True, slots=True)
class Opened:
    """An open store.

    Attributes:
        store: The store.
        local: Whether it is the local one.
        filled: What taking over the spool came to; `None` where nothing is drained.
    """

    store: Store
    local: bool
    filled: "Filled | None" = None


def settled(settings: Settings) -> Settings:
    """The settings with the DSN that counts: a fallback DSN only where that database already holds our schema."""
    if settings.dsn is None or not settings.dsn_is_fallback:
        return settings
    try:
        with Store.connect(settings.dsn, settings.log, timeout_s=FALLBACK_S) as store:
            if store.schema_state().present:
                return replace(settings, dsn_is_fallback=False)
    except AmfsOtelError:
        pass
    return replace(settings, dsn=None, dsn_is_fallback=False)


def embedded_server(settings: Settings) -> EmbeddedServer:
    """The local store's server; nothing is started."""
    return EmbeddedServer(settings.state_dir, binaries_dir=settings.postgres_bin)


@contextlib.contextmanager
def open_to_read(settings: Settings) -> Generator[Opened | None]:
    """The store for a command that answers from it; `None` where there is neither a DSN nor anything recorded.

    Args:
        settings: From `settled`.

    Raises:
        ConfigurationError: The DSN does not fit, or the database is not prepared.
        StoreUnavailable: The server cannot be reached or started.
    """
    if settings.dsn is None:
        with open_local(settings) as opened:
            yield opened
        return
    with Store.connect(settings.dsn, settings.log) as store:
        require_log(store)
        yield Opened(store, local=False)


@contextlib.contextmanager
def open_local(settings: Settings) -> Generator[Opened | None]:
    """The local store, with all that the spool held for it; `None` where nothing was ever recorded.

    Args:
        settings: Without a DSN.

    Raises:
        ConfigurationError: Nothing was ever recorded for the log, though for others; or no usable PostgreSQL programs.
        StoreUnavailable: The server does not start.
    """
    state = StateDirectory(settings.state_dir)
    server = embedded_server(settings)
    segments = spool.list_segments(state, spool.LOCAL)
    if not server.exists() and not segments:
        yield None
        return
    if not server.exists():
        _require_spooled(settings, state, segments)
    state.open()
    # Before the server: a database without keys is one that has lost them.
    writer, log_key, lost = _local_keys(settings, state)
    dsn = server.ensure()
    assert dsn is not None
    with Store.connect(dsn, settings.log) as store:
        schema = store.schema_state()
        begun = schema.present and store.is_begun()
        if not begun and not (schema.present and store.lag().unsealed):
            _require_spooled(settings, state, segments, begun=store.logs() if schema.present else ())
        if lost is not None and not begun:
            raise lost
        if schema.version < schema.newest or not begun:
            _prepare(dsn, settings, writer, log_key)
        if not segments and not store.lag().unsealed:
            yield Opened(store, local=True)
            return
        # Imported here: reading a store to which nothing has come since is the common case, and this costs 0.2 s.
        from amfs_otel.drain.filling import fill

        filled = fill(store, settings, state, writer, log_key)
        if lost is not None:
            filled.problems.append(str(lost))
        yield Opened(store, local=True, filled=filled)


@contextlib.contextmanager
def open_as_it_is(settings: Settings) -> Generator[Opened | None]:
    """The store without any draining; `None` where no local one was ever made.

    Args:
        settings: From `settled`.

    Raises:
        ConfigurationError: The DSN does not fit.
        StoreUnavailable: The server cannot be reached or started.
    """
    dsn = settings.dsn
    if dsn is None:
        server = embedded_server(settings)
        dsn = server.ensure(create=False)
    if dsn is None:
        yield None
        return
    with Store.connect(dsn, settings.log) as store:
        yield Opened(store, local=settings.dsn is None)


def require_log(store: Store) -> None:
    """Refuses a database that was not prepared for the log.

    Raises:
        ConfigurationError: It holds no schema of ours, or not this log; the message names the logs that it holds.
    """
    if not store.schema_state().present:
        raise ConfigurationError(
            "the database holds no schema of amfs-otel",
            where=env.AMFS_OTEL_DSN,
            hint="Prepare it with: amfs-otel init.",
        )
    if not store.is_begun():
        others = ", ".join(store.logs()) or "none"
        raise ConfigurationError(
            f"the log {store.log} was never begun in this database",
            where=f"{env.AMFS_OTEL_LOG} (or --log)",
            got=f"logs there: {others}",
            hint=f"Name one with --log, or begin it with: amfs-otel init --log {store.log}.",
        )


def _require_spooled(
    settings: Settings, state: StateDirectory, segments: Sequence[spool.Segment], *, begun: Iterable[str] = ()
) -> None:
    """Refuses a log that nothing lies in the spool for.

    Raises:
        ConfigurationError: There is nothing; the message names the logs that there are.
    """
    spooled = spooled_logs(state, segments)
    if settings.log in spooled or None in spooled:
        return
    there = ", ".join(sorted({*begun, *(log for log in spooled if log is not None)})) or "none"
    raise ConfigurationError(
        f"nothing was ever recorded for the log {settings.log}",
        where=f"{env.AMFS_OTEL_LOG} (or --log)",
        got=f"logs here: {there}",
        hint="Name one of them with --log; another begins when an agent records for it.",
    )


def spooled_logs(state: StateDirectory, segments: Iterable[spool.Segment]) -> set[str | None]:
    """The logs that spooled segments are for; `None` among them where one cannot be read and may be for any.

    Raises:
        SpoolError: The key that segments are read with is missing or cannot be read.
    """
    return {_log_of(state, segment) for segment in segments if _is_begun(segment)}


def _is_begun(segment: spool.Segment) -> bool:
    """Whether anything was written: a process that was killed right after it made the file wrote nothing."""
    try:
        return segment.path.stat().st_size > 0
    except FileNotFoundError:
        return False  # drained meanwhile


def _log_of(state: StateDirectory, segment: spool.Segment) -> str | None:
    """The log that a segment's process records for, said by the first frame that can be read."""
    from amfs_otel.assemble.journal import ProcessBegan, decoded
    from amfs_otel.chain.record import record_from_bytes

    spool_key = state.spool_key()
    with contextlib.suppress(SpoolError):
        for item in spool.read_frames(segment.path, spool_key):
            with contextlib.suppress(FormatError):
                if not isinstance(item, spool.Frame):
                    continue
                if segment.stream == "records":
                    return record_from_bytes(item.payload).log
                first = decoded(item.payload)
                if isinstance(first, ProcessBegan):
                    return first.log
    return None


def _local_keys(settings: Settings, state: StateDirectory) -> tuple[HeldKey | None, HeldKey | None, KeysLost | None]:
    """Writer key and log key; neither, and why, where the database outlived them: it can still be read."""
    try:
        return held_key(settings, state, "writer"), held_key(settings, state, "log"), None
    except KeysLost as lost:
        return None, None, lost


def _prepare(dsn: str, settings: Settings, writer: HeldKey | None, log_key: HeldKey | None) -> None:
    from amfs_otel.store.schema import prepare

    prepare(
        dsn,
        log=settings.log,
        writer_key=writer.key if writer is not None else None,
        log_key=log_key.key if log_key is not None else None,
        now_ns=time.time_ns(),
    )
