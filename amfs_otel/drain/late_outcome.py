"""An outcome that a person or a pipeline reports: a signed record of its own that names the decision it judges."""

import secrets
import time
from dataclasses import dataclass

from amfs_otel.assemble.assembler import Assembler, DecisionTrace
from amfs_otel.assemble.origin import origin_facts
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.assemble.records import Origin, record_from_trace
from amfs_otel.capture.content import masker_from_file
from amfs_otel.chain.keys import Key
from amfs_otel.chain.record import Record, new_record_id
from amfs_otel.drain.custody import held_key
from amfs_otel.drain.known_keys import require_known
from amfs_otel.drain.open_store import Opened
from amfs_otel.drain.sealing import seal_all
from amfs_otel.errors import AmfsOtelError, KeyUnavailable, StoreError
from amfs_otel.model import ClosedBy, Event, EventClosed, Kind, RecordKind, WindowClosed, WindowFacts, WindowOpened
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory

SOURCE = "amfs_otel"


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a decision ended.

    Attributes:
        ref: What the outcome is known by.
        type: `success`, `minor_failure`, `failure`, `critical_failure`, or a word of one's own.
        summary: One sentence.
        source: Who says so.
        score: A number of one's own scale.
        at_ns: When it showed, nanoseconds since the epoch; `None` is now.
    """

    ref: str
    type: str
    summary: str | None = None
    source: str | None = None
    score: float | None = None
    at_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of it.

    Attributes:
        record_id: The outcome's record.
        sequence_number: Its entry; `None` until somebody seals it.
        problem: Why it was not sealed here, although the log key is.
    """

    record_id: str
    sequence_number: int | None
    problem: str | None = None


def store_outcome(opened: Opened, settings: Settings, decision_id: str, judgement: Judgement) -> Judged:
    """Signs and stores an outcome, and seals it if the log key is here.

    Args:
        opened: The open store.
        settings: Names the log, and where the keys are.
        decision_id: Record id of the decision.
        judgement: How it ended.

    Raises:
        KeyUnavailable: No writer key is held here.
        ConfigurationError: The log does not know it; nothing was stored.
        StoreError: This user may not write, or the record was refused.
    """
    state = StateDirectory(settings.state_dir)
    held = held_key(settings, state, "writer", make=opened.local)
    if held is None:
        raise KeyUnavailable(
            "an outcome is signed, and no writer key is here",
            where=str(state.keys / "writer.key"),
            hint="Copy the writer key here, or name it with AMFS_OTEL_SIGNING_KEY_FILE.",
        )
    require_known(opened.store, settings, held, "writer")
    stored = opened.store.record(decision_id)
    digest = stored.record.record_hash.hex() if stored is not None else None
    record = outcome_record(settings, held.key, (decision_id, digest), judgement)
    answer = opened.store.append([record])[0]
    if answer.outcome == "refused":
        raise StoreError("the outcome was not stored", got=answer.reason)
    # From here on the outcome is stored: nothing may look like a failure that a second try would mend.
    try:
        log_key = held_key(settings, state, "log", make=opened.local)
        if log_key is not None:
            require_known(opened.store, settings, log_key, "log")
            seal_all(opened.store, log_key.key)
        return Judged(record.record_id, opened.store.places([record.record_id]).get(record.record_id))
    except AmfsOtelError as error:
        return Judged(record.record_id, None, str(error))


def outcome_record(settings: Settings, key: Key, decision: tuple[str, str | None], judgement: Judgement) -> Record:
    """The signed record of an outcome.

    Args:
        settings: Log, content policy, masks.
        key: The writer key.
        decision: Id and hash (hex, where known) of the decision's record.
        judgement: How it ended.
    """
    decision_id, digest = decision
    trace = _trace(settings, key, decision_id, judgement)
    return record_from_trace(
        trace,
        log=settings.log,
        key=key,
        origin=Origin(origin_facts(settings)),
        content=settings.ledger_content,
        hash_of=lambda record_id: digest if record_id == decision_id else None,
    )


def _trace(settings: Settings, key: Key, decision_id: str, judgement: Judgement) -> DecisionTrace:
    """The same path that a commit in an agent takes, so masking and policy are the same."""
    now_ns = time.time_ns()
    at_ns = now_ns if judgement.at_ns is None else judgement.at_ns
    window = WindowFacts(
        record_id=new_record_id(now_ns),
        record_kind=RecordKind.OUTCOME,
        session=secrets.token_hex(16),
        agent=settings.default_agent,
        session_id=None,
        opened_by=SOURCE,
        inferred=False,
        started_ns=at_ns,
        refs=(("outcome_of", decision_id),),
    )
    fields = {
        "outcome_ref": judgement.ref,
        "outcome_type": judgement.type,
        "decision_summary": judgement.summary,
        "source_name": judgement.source,
        "score": judgement.score,
    }
    event = Event(Kind.OUTCOME, secrets.randbits(64), 1, at_ns, SOURCE, fields, end_ns=at_ns)
    assembler = Assembler(
        Preparer(settings.ledger_content, masker_from_file(settings.mask_patterns_file), key.digest_key())
    )
    assembler.apply(WindowOpened(window))
    for item in assembler.prepared(EventClosed(window.record_id, event)):
        assembler.apply(item)
    trace = assembler.apply(WindowClosed(window.record_id, ClosedBy.COMMIT, now_ns))
    assert trace is not None
    return trace
