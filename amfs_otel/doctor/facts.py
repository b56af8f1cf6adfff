"""What `gather` found, as plain data: `causes` needs nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from amfs_otel.settings import Settings
from amfs_otel.store.announced import AnnouncedKey
from amfs_otel.store.postgres import PostureFact


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """An OTLP endpoint.

    Attributes:
        url: As set, or the default that OpenTelemetry would use.
        is_default: Nobody set one.
        protocol: `grpc` or `http/protobuf`, as set.
        reachable: Something listens there.
        speaks: `grpc` (HTTP/2), `http` (HTTP/1.1), or `None` where that could not be told (TLS, no answer).
    """

    url: str
    is_default: bool
    protocol: str
    reachable: bool
    speaks: str | None = None


@dataclass(frozen=True, slots=True)
class HookFacts:
    """Whether a program under `opentelemetry-instrument` starts with our hook, in this environment.

    Attributes:
        ran: It did.
        said: The last line of what OpenTelemetry said, where it did not.
    """

    ran: bool
    said: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The store.

    Attributes:
        local: It is the local one.
        exists: A local one was made; always true with a DSN.
        problem: Why it could not be looked at.
        unreachable: That is because nobody answers.
        refused: That is because the server refused a statement, as for a user without a role of ours.
        server: Version of PostgreSQL.
        prepared: It holds our schema and this log.
        others: Logs that it holds, where nothing was recorded for this one yet, nor lies in the spool for it.
        outdated: The schema is older than this library.
        entries: Number of entries.
        unsealed: Records without an entry; `None` where this user may not ask.
        oldest_unsealed_s: How long the oldest of them has waited.
        held_by: Which session holds sealing back.
        user: Who asks, as the server knows this user.
        readable: This user may read the log; without that, announced keys and numbers are not known.
        announced: Keys that the log announces.
        posture: How well the database keeps what it holds.
    """

    local: bool
    exists: bool = True
    problem: str | None = None
    unreachable: bool = False
    refused: bool = False
    server: str | None = None
    prepared: bool = False
    others: tuple[str, ...] = ()
    outdated: bool = False
    entries: int | None = None
    unsealed: int | None = None
    oldest_unsealed_s: float | None = None
    held_by: str | None = None
    user: str = ""
    readable: bool = True
    announced: tuple[AnnouncedKey, ...] = ()
    posture: tuple[PostureFact, ...] = ()


@dataclass(frozen=True, slots=True)
class ElsewhereFacts:
    """Files in the spool that wait for another store than the one that the settings name.

    Attributes:
        destination: `local`, or what stands for a server's database and log.
        files: How many.
        logs: The logs that they were made for, as far as that can be read.
        here: They are for another log in the database that the settings name.
        programs: Who made them, as far as status files tell.
    """

    destination: str
    files: int = 0
    logs: tuple[str, ...] = ()
    here: bool = False
    programs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpoolFacts:
    """The spool of the state directory.

    Attributes:
        path: The state directory.
        usable: It can be written, or made.
        problem: Why not.
        no_room: It is room that is missing.
        ephemeral: It dies with the machine or container; `None` where nobody can tell.
        used_bytes: What it takes.
        segments: Files waiting for the store that the settings name.
        oldest_s: Age of the oldest of them.
        waiting: Records in them that the store does not hold yet; `None` where that was not looked at.
        elsewhere: What waits for other stores.
        quarantined: Records that a store refused.
    """

    path: str
    usable: bool = True
    problem: str | None = None
    no_room: bool = False
    ephemeral: bool | None = None
    used_bytes: int = 0
    segments: int = 0
    oldest_s: float | None = None
    waiting: int | None = None
    elsewhere: tuple[ElsewhereFacts, ...] = ()
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One key that this user holds, or does not.

    Attributes:
        role: `writer` or `log`.
        kid: Its id; `None` where there is none.
        source: Where it comes from.
        development: It is good for the local store only.
        problem: Why it cannot be used.
    """

    role: str
    kid: str | None = None
    source: str | None = None
    development: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was looked at.

    Attributes:
        settings: The environment's.
        versions: Of Python, of us and of what we stand on.
        processes: Status files of the newest processes, newest first. Added to each: `state` (`running`, `ended`, or
            `killed`: it never said that it ended and holds no lock any more), `age_s` since its start, and
            `journal_left`: the spool holds a journal of it.
        endpoint: Where spans would go.
        hook: Whether our hook starts.
        store: The store.
        spool: The spool.
        keys: The keys.
        owners: Distributions that own the import name `amfs_otel`.
        rivals: Installed instrumentors of the libraries that we patch: library → distribution.
        postgres: Where programs for a local server are; `None` where there are none.
        mask_problems: What is wrong with the user's file of masking patterns.
    """

    settings: Settings
    versions: Mapping[str, str | None]
    processes: tuple[Mapping[str, object], ...]
    endpoint: EndpointFacts | None
    hook: HookFacts
    store: StoreFacts
    spool: SpoolFacts
    keys: tuple[KeyFacts, ...]
    owners: tuple[str, ...]
    rivals: Mapping[str, str] = field(default_factory=dict[str, str])
    postgres: str | None = None
    mask_problems: tuple[str, ...] = ()
