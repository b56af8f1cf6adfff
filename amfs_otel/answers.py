"""Asking "why?" from inside a program: `explain`, `traces`, `verify` of the Python API.

In an instrumented process everything captured so far is made durable first; then this process's own closed records
answer, then the store of the DSN, if its user may read. No server is ever started here: where nothing is found, the
error names the command that looks further.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from amfs_otel import pipeline
from amfs_otel.chain.record import Record
from amfs_otel.errors import AmfsOtelError, ConfigurationError, FormatError
from amfs_otel.graph.continuation import continuation_in, continuations
from amfs_otel.graph.documents import Document, document_from_record
from amfs_otel.graph.explain import explanation, own_ref
from amfs_otel.graph.finding import Ambiguous, NothingFound, Pieces
from amfs_otel.graph.listing import ListFilter, fits, list_row
from amfs_otel.settings import Settings

if TYPE_CHECKING:
    from amfs_otel.graph.reading import Reader

FLUSH_S = 2.0
_HERE = "in this process"


def explain(ref: str) -> dict[str, Any]:
    """What is known about a decision: the keys of `amfs-otel explain --json`.

    Args:
        ref: An outcome ref, a record id or a unique piece of it, an OpenTelemetry trace id, or `last`.

    Raises:
        NothingFound: Neither this process nor a readable store has it; the message names the command that looks
            further.
        Ambiguous: Several records fit.
        StoreUnavailable: This process does not have it, and the server of the DSN cannot be reached.
    """
    settings, documents = _own()
    answer = _explained(documents, ref)
    if answer is not None:
        return answer
    if settings.dsn is not None:
        with _reader(settings) as reader:
            return reader.explain(ref)
    raise NothingFound(
        f"no decision {_HERE} has this ref or id; `amfs-otel explain {ref}` looks at all that was recorded here", ref
    )


def traces(
    *,
    agent: str | None = None,
    outcome: str | None = None,
    ref: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
    session: str | None = None,
) -> list[dict[str, Any]]:
    """Decision traces, newest first: the items of `amfs-otel list --json`.

    Without a DSN these are this process's own; `amfs-otel list` shows all of this machine.

    Args:
        agent: Only this agent's.
        outcome: Only those whose newest outcome is of this type.
        ref: Only those with this outcome ref.
        since: Ended at or after this time (aware).
        until: Ended before this time (aware).
        limit: At most so many.
        session: Only this session's: the application's session or thread id, else ours.

    Raises:
        StoreUnavailable: The server of the DSN cannot be reached.
    """
    settings, documents = _own()
    wanted = ListFilter(agent, outcome, ref, since, until, limit, session)
    if settings.dsn is None:
        return fits(_rows(documents), wanted)
    with _reader(settings) as reader:
        found = {row["record_id"]: row for row in reader.list(wanted)}
    mine = fits(_rows(documents), wanted)
    return [*(row for row in mine if row["record_id"] not in found), *found.values()][:limit]


def verify(
    *,
    level: Literal["full", "headers"] = "full",
    first: int = 0,
    last: int | None = None,
    require_anchor: bool = False,
    trust: str | Path | None = None,
) -> dict[str, Any]:
    """Verifies the log on the server of the DSN: the keys of `amfs-otel verify --json`.

    Args:
        level: `headers` looks at no part.
        first: First sequence number.
        last: Last one, inclusive; `None` is the head.
        require_anchor: Entries under no checkpoint kept outside make it impossible to judge.
        trust: Path of a trust file.

    Raises:
        ConfigurationError: There is no DSN: `amfs-otel verify` looks at the local store.
        StoreUnavailable: The server cannot be reached.
        StoreError: The DSN's user may not read the ledger.
    """
    from amfs_otel.audit import Scope, audit
    from amfs_otel.chain.trust import trust_from_json
    from amfs_otel.drain.custody import key_ring
    from amfs_otel.spool import StateDirectory
    from amfs_otel.store.postgres import Store

    settings, _ = _own()
    if settings.dsn is None:
        raise ConfigurationError(
            "there is no server whose log could be verified from here",
            where="AMFS_OTEL_DSN",
            hint="`amfs-otel verify` verifies the local store.",
        )
    scope = Scope(level, first, last, require_anchor, trust_from_json(Path(trust).read_bytes()) if trust else None)
    keys = key_ring(settings, StateDirectory(settings.state_dir))
    with Store.connect(settings.dsn, settings.log) as store:
        return audit(store, settings, keys, scope).to_dict()


def _own() -> tuple[Settings, list[Document]]:
    """The settings, and this process's own closed records as documents, oldest first, after a flush."""
    running = pipeline.current()
    if running is None:
        return Settings.from_env(), []
    running.flush(FLUSH_S)
    return running.settings, list(_readable(running.worker.signer.recent()))


def _readable(records: Sequence[Record]) -> Iterator[Document]:
    for record in records:
        try:
            yield document_from_record(record)
        except FormatError:
            continue


@contextmanager
def _reader(settings: Settings) -> Generator["Reader"]:
    """A reader of the DSN's store. Its user may be a writer, who reads nothing: then the error says so."""
    from amfs_otel.drain.open_store import require_log
    from amfs_otel.graph.reading import Reader
    from amfs_otel.store.postgres import Store

    assert settings.dsn is not None
    with Store.connect(settings.dsn, settings.log) as store:
        require_log(store)
        try:
            yield Reader(store)
        except (NothingFound, Ambiguous):
            raise
        except AmfsOtelError as error:
            raise type(error)(
                f"{error.what}; nothing {_HERE} answers, either",
                where=error.where,
                hint=error.hint or "amfs-otel doctor",
            ) from None


def _rows(documents: Sequence[Document]) -> Iterator[dict[str, Any]]:
    joined = continuations(documents)
    for one in documents:
        if one.kind == "decision":
            yield {**list_row(one), "continues": joined[one.record_id]}


def _explained(documents: Sequence[Document], text: str) -> dict[str, Any] | None:
    """The explanation out of this process's own records; `None` where they do not hold it."""
    decisions = [document for document in documents if document.kind == "decision"]
    by_ref = [one for one in decisions if text in _refs_of(one, documents)]
    found = by_ref or ([decisions[-1]] if text == "last" and decisions else _by_piece(decisions, text))
    if not found:
        return None
    decision = found[-1]
    joined = continuations(decisions)
    return explanation(
        decision,
        outcomes=[one for one in documents if _judges(one, decision)],
        amendments=[one for one in documents if one.named_by("amends") == decision.record_id],
        others=[one.record_id for one in reversed(by_ref[:-1])],
        outcome_ref=text if by_ref else None,
        continuation=continuation_in(joined, decision.record_id),
        before=list(_before(decision, joined, decisions)),
    )


def _before(decision: Document, joined: Mapping[str, str | None], decisions: Sequence[Document]) -> Iterator[Document]:
    """The decision that this one continues, the one which that continues, and so on."""
    by_id = {one.record_id: one for one in decisions}
    earlier = by_id.pop(joined[decision.record_id] or "", None)
    while earlier is not None:
        yield earlier
        earlier = by_id.pop(joined[earlier.record_id] or "", None)


def _refs_of(decision: Document, documents: Sequence[Document]) -> set[str]:
    """Refs that a decision commits or that an outcome record gives it by name."""
    refs = {own_ref(decision)} | {own_ref(one) for one in documents if one.named_by("outcome_of") == decision.record_id}
    return {ref for ref in refs if ref is not None}


def _judges(document: Document, decision: Document) -> bool:
    if document.kind != "outcome":
        return False
    named = document.named_by("outcome_of")
    if named is not None:
        return named == decision.record_id
    ref = own_ref(document)
    return ref is not None and ref == own_ref(decision)


def _by_piece(decisions: Sequence[Document], text: str) -> list[Document]:
    pieces = Pieces.of(text)
    found = [one for one in decisions if pieces is not None and pieces.fit(one.record_id, one.trace)]
    if len(found) > 1:
        raise Ambiguous(text, [one.record_id for one in reversed(found)])
    return found
