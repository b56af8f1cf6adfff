"""Verifying a log as a store shows it: what the pure verifier needs, read and handed to it."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from amfs_otel import spool
from amfs_otel.chain.findings import Finding, Verdict, worst
from amfs_otel.chain.keys import KeyRing
from amfs_otel.chain.record import Record
from amfs_otel.chain.trust import Trust
from amfs_otel.chain.verification import StoredEntry, Verification
from amfs_otel.chain.verify import LogVerifier
from amfs_otel.errors import AmfsOtelError, ConfigurationError
from amfs_otel.settings import Settings
from amfs_otel.spool import Frame, StateDirectory
from amfs_otel.store.destination import destination_of
from amfs_otel.store.postgres import PostureFact, Store

Level = Literal["full", "headers"]
Progress = Callable[[int, int], None]
"""Called now and then with (entries checked, entries to check)."""

Copy = Callable[[StoredEntry | Record], None]
"""Called with each entry in order, then with each record that has none."""

_STEP = 100


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be verified.

    Attributes:
        level: `headers` looks at no part.
        first: First sequence number.
        last: Last one, inclusive; `None` is the head.
        require_anchor: Entries that no checkpoint outside covers make it impossible to judge.
        trust: A trust file's content.
    """

    level: Level = "full"
    first: int = 0
    last: int | None = None
    require_anchor: bool = False
    trust: Trust | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What the spool of this machine holds for the log, besides what the store has."""

    records: int = 0
    segments: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """A verification and what belongs beside it.

    Attributes:
        log: Name of the log.
        scope: What was asked for.
        verification: The verifier's answer.
        posture: How well the database keeps what it holds; prevention, not proof.
        backlog: What lies in the spool.
        keys_held: Ids of the keys that signatures were checked with.
    """

    log: str
    scope: Scope
    verification: Verification
    posture: tuple[PostureFact, ...] = ()
    backlog: Backlog = field(default_factory=Backlog)
    keys_held: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict; its number is the exit code."""
        return self.verification.verdict

    def to_dict(self) -> dict[str, Any]:
        """The answer of `verify --json`."""
        answer = self.verification.to_dict()
        answer["coverage"]["spool_backlog"] = asdict(self.backlog)
        return {
            **answer,
            "posture": [asdict(fact) for fact in self.posture],
            "log": self.log,
            "level": self.scope.level,
            "first": self.scope.first,
            "last": self.scope.last,
            "keys_held": list(self.keys_held),
        }


def audit(
    store: Store | None,
    settings: Settings,
    keys: KeyRing,
    scope: Scope,
    *,
    progress: Progress = lambda _done, _total: None,
    copy: Copy = lambda _seen: None,
) -> Audit:
    """Verifies the log of `settings`. Writes nothing and drains nothing.

    Args:
        store: The open store; `None` where there is none, which is EMPTY_STORE.
        settings: Names the log, and whose spool to look at.
        keys: The keys held.
        scope: What is to be verified.
        progress: Told how far it is.
        copy: Given all that was read.

    Raises:
        ConfigurationError: The range holds no entry.
        StoreUnavailable: The server went away.
        StoreError: This user may not read the ledger.
    """
    verifier = LogVerifier(settings.log, keys, scope.trust, level=scope.level, now_ns=time.time_ns(), first=scope.first)
    readable = store is not None and _findings(store, verifier)
    if store is not None and readable:
        _feed(store, verifier, scope, progress, copy)
    verification = verifier.finish()
    if scope.require_anchor and verification.checked.entries:
        verification = _anchored(verification, scope)
    posture = tuple(store.posture()) if store is not None and readable else ()
    return Audit(
        settings.log, scope, verification, posture, _backlog(store if readable else None, settings), keys.kids()
    )


def _findings(store: Store, verifier: LogVerifier) -> bool:
    """Hands over what makes the store unreadable; says whether it can be read at all."""
    found = store.findings()
    for finding in found:
        if finding.code != "EMPTY_STORE":  # the verifier says so itself when nothing was fed
            verifier.add(finding)
    return not [one for one in found if one.code != "EMPTY_STORE"] and store.schema_state().present


def _feed(store: Store, verifier: LogVerifier, scope: Scope, progress: Progress, copy: Copy) -> None:
    with store.reading():
        head = store.head()
        end = head.sequence_number if head is not None else -1
        if scope.first > max(end, 0) or (scope.last is not None and scope.last < scope.first):
            raise ConfigurationError(
                "the range holds no entry", where="--from, --to", expected=f"numbers from 0 to {end}", got=scope.first
            )
        total = (end if scope.last is None else min(end, scope.last)) - scope.first + 1
        for count, stored in enumerate(
            store.stored_entries(scope.first, scope.last, parts=scope.level == "full"), start=1
        ):
            verifier.feed(stored)
            copy(stored)
            if count % _STEP == 0:
                progress(count, total)
        progress(max(total, 0), max(total, 0))
        if scope.last is None:
            for record, stored_at in store.unsealed():
                verifier.unsealed(record, stored_at)
                copy(record)


def _anchored(verification: Verification, scope: Scope) -> Verification:
    """Adds NO_ANCHOR where an entry lies under no checkpoint kept outside."""
    if not verification.coverage.unanchored_tail:
        return verification
    finding = Finding(
        "NO_ANCHOR",
        f"{verification.coverage.unanchored_tail} entries lie under no checkpoint kept outside; an anchor is required.",
    )
    findings = (*verification.findings, finding)
    complete = scope.trust is not None and scope.trust.complete
    return Verification(worst(findings, trust_complete=complete), findings, verification.coverage, verification.checked)


def _backlog(store: Store | None, settings: Settings) -> Backlog:
    """Looks into the spool. What cannot be read is counted, never an error: the store is what is judged."""
    state = StateDirectory(settings.state_dir)
    try:
        segments = spool.list_segments(state, destination_of(settings.dsn, settings.log))
        records = [one for one in segments if one.stream == "records"]
        ids: list[str] = []
        unreadable = 0
        for _, item in spool.read_stream(records, state.spool_key()) if records else ():
            if isinstance(item, Frame):
                ids.append(_uuid(item.frame_id))
            else:
                unreadable += 1
        known = store.places(ids) if store is not None and ids else {}
    except AmfsOtelError:
        return Backlog()
    return Backlog(sum(1 for one in ids if one not in known), len(segments), unreadable)


def _uuid(frame_id: bytes) -> str:
    text = frame_id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
