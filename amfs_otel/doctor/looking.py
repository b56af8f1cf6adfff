"""Looking: settings, status files, endpoint, store, spool, keys, packages. All the I/O of `doctor` is here."""

import os
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from amfs_otel import spool
from amfs_otel.doctor.endpoint import endpoint_facts
from amfs_otel.doctor.facts import Facts, KeyFacts, SpoolFacts, StoreFacts
from amfs_otel.doctor.hook import hook_facts
from amfs_otel.drain.custody import Role, held_key
from amfs_otel.drain.open_store import open_as_it_is
from amfs_otel.errors import AmfsOtelError, StoreError, StoreUnavailable
from amfs_otel.instrumentor import LIBRARIES
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory
from amfs_otel.store.binaries import find_binaries
from amfs_otel.store.destination import destination_of
from amfs_otel.store.postgres import Store

NEWEST = 20
_PACKAGES = ("amfs-otel", "opentelemetry-sdk", "opentelemetry-distro", "opentelemetry-exporter-otlp", "psycopg")
_ROLES: tuple[Role, ...] = ("writer", "log")


def gather(settings: Settings) -> Facts:
    """Looks at everything. Never raises for what it finds: that is what is looked for.

    Args:
        settings: The environment's, options laid over.
    """
    state = StateDirectory(settings.state_dir)
    statuses = [status for status in spool.read_newest(state, NEWEST) if status.facts is not None]
    return Facts(
        settings=settings,
        versions=_versions(),
        processes=tuple({**(status.facts or {}), "started_ns": status.start, "pid": status.pid} for status in statuses),
        endpoint=endpoint_facts(settings),
        hook=hook_facts(),
        store=_store(settings),
        spool=_spool(settings, state),
        keys=tuple(_key(settings, state, role) for role in _ROLES),
        owners=_owners(),
        rivals=_rivals(),
        postgres=_postgres(settings),
    )


def _versions() -> Mapping[str, str | None]:
    import platform

    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in (*_PACKAGES, *(library.distribution for library in LIBRARIES)):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _owners() -> tuple[str, ...]:
    """Distributions that own our import name. One that is installed for development lists no files but ours."""
    names = metadata.packages_distributions().get("amfs_otel", [])
    return tuple(sorted({name.lower().replace("_", "-") for name in names} | {"amfs-otel"}))


def _rivals() -> Mapping[str, str]:
    ours = {library.name for library in LIBRARIES if library.reports}
    found: dict[str, str] = {}
    for point in metadata.entry_points(group="opentelemetry_instrumentor"):
        if point.name in ours and point.dist is not None and point.dist.name != "amfs-otel":
            found[point.name] = point.dist.name
    return found


def _store(settings: Settings) -> StoreFacts:
    local = settings.dsn is None
    try:
        with open_as_it_is(settings) as opened:
            return _looked_at(opened.store, local=local) if opened is not None else StoreFacts(local, exists=False)
    except StoreUnavailable as error:
        return StoreFacts(local, problem=str(error), unreachable=True)
    except AmfsOtelError as error:
        return StoreFacts(local, problem=str(error))


def _looked_at(store: Store, *, local: bool) -> StoreFacts:
    server = store.server_version()
    state = store.schema_state()
    if not state.present or state.foreign or store.log_uid() is None:
        return StoreFacts(local, server=server)
    unsealed: int | None = None
    oldest: float | None = None
    held_by: str | None = None
    try:
        lag = store.lag()
        unsealed, oldest, held_by = lag.unsealed, lag.oldest_s, lag.held_by
    except StoreUnavailable:
        raise
    except StoreError:
        pass  # a writer may not ask; what it may is looked at
    head = store.head()
    return StoreFacts(
        local,
        server=server,
        prepared=True,
        outdated=state.outdated,
        entries=None if head is None else head.sequence_number + 1,
        unsealed=unsealed,
        oldest_unsealed_s=oldest,
        held_by=held_by,
        announced=tuple(store.announced_keys()),
        posture=tuple(store.posture()),
    )


def _spool(settings: Settings, state: StateDirectory) -> SpoolFacts:
    path = str(state.path)
    nearest = next(one for one in (state.path, *state.path.parents) if one.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return SpoolFacts(path, usable=False, problem=f"{nearest} cannot be written by this user")
    try:
        own = destination_of(settings.dsn, settings.log)
        waiting = {name: spool.list_segments(state, name) for name in spool.destinations(state)}
        refused = len(spool.quarantined(state))
    except AmfsOtelError as error:
        return SpoolFacts(path, usable=False, problem=str(error))
    ages = [time.time() - moment for one in waiting.get(own, []) if (moment := _modified(one.path)) is not None]
    return SpoolFacts(
        path,
        ephemeral=state.is_ephemeral(),
        used_bytes=spool.usage_bytes(state),
        segments=len(waiting.get(own, [])),
        oldest_s=max(ages, default=None),
        elsewhere=sum(len(segments) for name, segments in waiting.items() if name != own),
        quarantined=refused,
    )


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _key(settings: Settings, state: StateDirectory, role: Role) -> KeyFacts:
    try:
        held = held_key(settings, state, role, make=False)
    except AmfsOtelError as error:
        return KeyFacts(role, problem=str(error))
    if held is None:
        return KeyFacts(role)
    return KeyFacts(role, held.key.kid, held.source, held.development)


def _postgres(settings: Settings) -> str | None:
    try:
        found = find_binaries(settings.postgres_bin)
    except AmfsOtelError:
        return None
    return f"{found.version} ({found.source})"
