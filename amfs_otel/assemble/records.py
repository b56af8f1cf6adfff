"""Decision traces → signed records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amfs_otel.assemble.assembler import DecisionTrace
from amfs_otel.capture.content import MASKING_VERSION
from amfs_otel.chain.keys import SigningKey
from amfs_otel.chain.record import Record, Ref, make_record
from amfs_otel.chain.skeleton import compose
from amfs_otel.settings import LedgerContent


@dataclass(frozen=True, slots=True)
class Origin:
    """Where traces of one process come from; part of each skeleton.

    Attributes:
        facts: `{service, program, version, environment, host, process_id, started_us, libraries}`.
        adopted_from: The dead process whose journal is signed, if it is not our own.
    """

    facts: Mapping[str, Any]
    adopted_from: Mapping[str, Any] | None = field(default=None)


def record_from_trace(
    trace: DecisionTrace,
    *,
    log: str,
    key: SigningKey,
    origin: Origin,
    content: LedgerContent,
    hash_of: Callable[[str], str | None] = lambda _: None,
    coverage: Mapping[str, Any] | None = None,
) -> Record:
    """Signs `trace`.

    Args:
        trace: The closed window.
        log: Name of the log that it is for.
        key: The writer's key.
        origin: Where it comes from.
        content: The ledger's content policy that was applied.
        hash_of: Gives the record hash (hex) of an earlier record, `None` where it is not known here.
        coverage: Further coverage counters (drops by cause, whether the spool is on an ephemeral disk).
    """
    facts: dict[str, Any] = {
        **trace.facts,
        "origin": dict(origin.facts),
        "policy": {"ledger": content.value, "masking": MASKING_VERSION},
    }
    if coverage and "coverage" in facts:
        facts["coverage"] = {**facts["coverage"], **coverage}
    if origin.adopted_from is not None:
        facts["adopted_from"] = dict(origin.adopted_from)
    return make_record(
        kind=str(trace.window.record_kind),
        log=log,
        record_id=trace.window.record_id,
        session=trace.window.session,
        parts=compose(facts, trace.texts),
        key=key,
        captured_at_ns=trace.closed_ns,
        trace=f"{trace.trace_id:032x}" if trace.trace_id else None,
        span=f"{trace.span_id:016x}" if trace.span_id else None,
        refs=[Ref(rel, record, hash_of(record)) for rel, record in trace.window.refs],
    )
