"""Looking: settings, status files, endpoint, store, spool, keys, packages. All the I/O of `doctor` is here."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from amfs_otel import spool
from amfs_otel.chain.entry import Entry
from amfs_otel.doctor.endpoint import endpoint_facts
from amfs_otel.doctor.facts import ElsewhereFacts, Facts, KeyFacts, SpoolFacts, StoreFacts
from amfs_otel.doctor.hook import hook_facts
from amfs_otel.doctor.trying import Refusal, mask_problems_of, refusal_of
from amfs_otel.drain.custody import Role, held_key
from amfs_otel.drain.open_store import open_as_it_is, spooled_logs
from amfs_otel.drain.waiting import key_is_here, waiting_here
from amfs_otel.errors import AmfsOtelError, SpoolError, StoreError, StoreUnavailable
from amfs_otel.libraries import LIBRARIES
from amfs_otel.settings import Settings
from amfs_otel.spool import ProcessStatus, Segment, StateDirectory
from amfs_otel.store.announced import AnnouncedKey
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
    refusal = refusal_of(state)
    store, waiting = _store(settings, state)
    processes = _processes(state)
    return Facts(
        settings=settings,
        versions=_versions(),
        processes=processes,
        endpoint=endpoint_facts(settings),
        hook=hook_facts(),
        store=store,
        spool=_spool(settings, state, refusal, waiting, processes),
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
                return facts, _waiting(opened.store, settings)
            if facts.others and _may_be_spooled(settings, state):
                facts = replace(facts, others=())
            return facts, None
    except StoreUnavailable as error:
        return StoreFacts(local, problem=str(error), unreachable=True), None
    except StoreError as error:
        return StoreFacts(local, problem=str(error), refused=True), None
    except AmfsOtelError as error:
        return StoreFacts(local, problem=str(error)), None
    except OSError as error:  # the local store's files, of which this user may see nothing
        return StoreFacts(local, problem=f"{error.filename}: {error.strerror}"), None


def _may_be_spooled(settings: Settings, state: StateDirectory) -> bool:
    """Whether something lies in the spool for the log, or it cannot be told."""
    try:
        segments = spool.list_segments(state, destination_of(settings.dsn, settings.log))
        if segments and not key_is_here(state):
            return True
        found = spooled_logs(state, segments)
    except SpoolError:
        return True
    return settings.log in found or None in found


def _waiting(store: Store, settings: Settings) -> int | None:
    """Spooled records that are not in the store. `None` where that cannot be told, as of a dead process's journal."""
    found = waiting_here(store, settings)
    return None if found.unfinished else found.records


def _looked_at(store: Store, *, local: bool) -> StoreFacts:
    server = store.server_version()
    state = store.schema_state()
    if not state.present or state.foreign:
        return StoreFacts(local, server=server)
    if not store.is_begun():
        return StoreFacts(local, server=server, others=tuple(store.logs()))
    unsealed: int | None = None
    oldest: float | None = None
    held_by: str | None = None
    head: Entry | None = None
    announced: tuple[AnnouncedKey, ...] = ()
    readable = True
    try:
        lag = store.lag()
        unsealed, oldest, held_by = lag.unsealed, lag.oldest_s, lag.held_by
        head = store.head()
        announced = tuple(store.announced_keys())
    except StoreUnavailable:
        raise
    except StoreError:
        readable = False  # a writer may not ask; what it may is looked at
    return StoreFacts(
        local,
        server=server,
        prepared=True,
        outdated=state.outdated,
        entries=None if head is None else head.sequence_number + 1,
        unsealed=unsealed,
        oldest_unsealed_s=oldest,
        held_by=held_by,
        user=store.connection.info.user,
        readable=readable,
        announced=announced,
        posture=tuple(store.posture()),
    )


def _spool(
    settings: Settings,
    state: StateDirectory,
    refusal: Refusal | None,
    waiting_records: int | None,
    processes: Sequence[Mapping[str, object]],
) -> SpoolFacts:
    path = str(state.path)
    if refusal is not None:
        return SpoolFacts(path, usable=False, problem=refusal.problem, no_room=refusal.no_room)
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
        elsewhere=tuple(
            _elsewhere(settings, state, name, segments, processes)
            for name, segments in waiting.items()
            if name != own and segments
        ),
        quarantined=refused,
    )


def _elsewhere(
    settings: Settings,
    state: StateDirectory,
    destination: str,
    segments: Sequence[Segment],
    processes: Sequence[Mapping[str, object]],
) -> ElsewhereFacts:
    logs: set[str] = set()
    if key_is_here(state):
        with contextlib.suppress(SpoolError):
            logs = {log for log in spooled_logs(state, segments) if log is not None}
    return ElsewhereFacts(
        destination,
        len(segments),
        tuple(sorted(logs)),
        here=any(destination_of(settings.dsn, log) == destination for log in logs),
        programs=tuple(sorted({str(one.get("program")) for one in processes if one.get("destination") == destination})),
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
