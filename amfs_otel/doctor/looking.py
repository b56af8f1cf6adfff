"""Looking: settings, status files, endpoint, store, spool, keys, packages. All the I/O of `doctor` is here."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from uuid import UUID

from amfs_otel import spool
from amfs_otel.doctor.endpoint import endpoint_facts
from amfs_otel.doctor.facts import Facts, KeyFacts, SpoolFacts, StoreFacts
from amfs_otel.doctor.hook import hook_facts
from amfs_otel.doctor.trying import mask_problems_of, refusal_of
from amfs_otel.drain.custody import Role, held_key
from amfs_otel.drain.open_store import open_as_it_is, spooled_logs
from amfs_otel.errors import AmfsOtelError, SpoolError, StoreError, StoreUnavailable
from amfs_otel.libraries import LIBRARIES
from amfs_otel.settings import Settings
from amfs_otel.spool import Frame, ProcessStatus, Segment, StateDirectory
from amfs_otel.store.binaries import find_binaries
from amfs_otel.store.destination import destination_of
from amfs_otel.store.postgres import Store

NEWEST = 20
READ_AT_MOST = 32 << 20
"""Bytes of a spool that is still read to count what waits in it: looking takes seconds at most."""
_PACKAGES = ("amfs-otel", "opentelemetry-sdk", "opentelemetry-distro", "opentelemetry-exporter-otlp", "psycopg")
_ROLES: tuple[Role, ...] = ("writer", "log")


def gather(settings: Settings) -> Facts:
    """Looks at everything. Never raises for what it finds: that is what is looked for.

    Args:
        settings: The environment's, options laid over.
    """
    state = StateDirectory(settings.state_dir)
    refusal = refusal_of(state)
    store, waiting = _store(settings, state)
    return Facts(
        settings=settings,
        versions=_versions(),
        processes=_processes(state),
        endpoint=endpoint_facts(settings),
        hook=hook_facts(),
        store=store,
        spool=_spool(settings, state, refusal, waiting),
        keys=tuple(_key(settings, state, role) for role in _ROLES),
        owners=_owners(),
        rivals=_rivals(),
        postgres=_postgres(settings),
        mask_problems=mask_problems_of(settings.mask_patterns_file),
    )


def _processes(state: StateDirectory) -> tuple[Mapping[str, object], ...]:
    segments: list[Segment] = []
    with contextlib.suppress(AmfsOtelError):  # then the spool is a finding of its own
        segments = [one for name in spool.destinations(state) for one in spool.list_segments(state, name)]
    found = spool.read_newest(state, NEWEST)
    return tuple(_process(status, status.facts, segments) for status in found if status.facts is not None)


def _process(status: ProcessStatus, facts: Mapping[str, object], segments: Sequence[Segment]) -> Mapping[str, object]:
    own = [
        one
        for one in segments
        if one.pid == status.pid and one.start >= status.start and one.destination == facts.get("destination")
    ]
    return {
        **facts,
        "started_ns": status.start,
        "pid": status.pid,
        "state": "ended" if facts.get("ended") else "running" if any(one.alive for one in own) else "killed",
        "age_s": time.time() - status.start / 1e9,
        "journal_left": any(one.stream == "journal" for one in own),
    }


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


def _store(settings: Settings, state: StateDirectory) -> tuple[StoreFacts, int | None]:
    """The store, and how many spooled records it does not hold yet; `None` where that was not looked at."""
    local = settings.dsn is None
    try:
        with open_as_it_is(settings) as opened:
            if opened is None:
                return StoreFacts(local, exists=False), None
            facts = _looked_at(opened.store, local=local)
            if facts.prepared:
                return facts, _waiting(opened.store, settings, state)
            if facts.others and _may_be_spooled(settings, state):
                facts = replace(facts, others=())
            return facts, None
    except StoreUnavailable as error:
        return StoreFacts(local, problem=str(error), unreachable=True), None
    except AmfsOtelError as error:
        return StoreFacts(local, problem=str(error)), None
    except OSError as error:  # the local store's files, of which this user may see nothing
        return StoreFacts(local, problem=f"{error.filename}: {error.strerror}"), None


def _may_be_spooled(settings: Settings, state: StateDirectory) -> bool:
    """Whether something lies in the spool for the log, or it cannot be told."""
    try:
        segments = spool.list_segments(state, destination_of(settings.dsn, settings.log))
        if segments and not _key_is_here(state):
            return True
        found = spooled_logs(state, segments)
    except SpoolError:
        return True
    return settings.log in found or None in found


def _key_is_here(state: StateDirectory) -> bool:
    """Whether there is a key to read the spool with; asking for it would make one."""
    return os.path.exists(state.keys / "spool.key")  # noqa: PTH110  (Path.exists raises where it may not look)


def _waiting(store: Store, settings: Settings, state: StateDirectory) -> int | None:
    """Spooled records that are not in the store. `None` where that cannot be told.

    A segment stays ten minutes after its records were sealed, so files alone do not tell. Nobody can tell where a dead
    process left a journal, where there is too much to read, or where the key to read it with or the right to ask lacks.
    """
    try:
        segments = spool.list_segments(state, destination_of(settings.dsn, settings.log))
        if not segments:
            return 0
        orphaned = any(one.stream == "journal" and not one.alive for one in segments)
        if orphaned or not _key_is_here(state) or spool.usage_bytes(state) > READ_AT_MOST:
            return None
        records = spool.read_stream((one for one in segments if one.stream == "records"), state.spool_key())
        ids = {str(UUID(bytes=item.frame_id)) for _, item in records if isinstance(item, Frame)}
        return len(ids - store.places(sorted(ids)).keys())
    except (SpoolError, StoreError):
        return None


def _looked_at(store: Store, *, local: bool) -> StoreFacts:
    server = store.server_version()
    state = store.schema_state()
    if not state.present or state.foreign:
        return StoreFacts(local, server=server)
    if store.log_uid() is None:
        return StoreFacts(local, server=server, others=tuple(store.logs()))
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


def _spool(settings: Settings, state: StateDirectory, refusal: str | None, waiting_records: int | None) -> SpoolFacts:
    path = str(state.path)
    if refusal is not None:
        return SpoolFacts(path, usable=False, problem=refusal)
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
        waiting=waiting_records,
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
