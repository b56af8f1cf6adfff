"""Gaps: losses that are known, as signed records, so that none is silent."""

import secrets
import time
from dataclasses import asdict, dataclass
from typing import Any

from amfs_otel.assemble.assembler import DecisionTrace
from amfs_otel.chain.record_id import new_record_id
from amfs_otel.model import RecordKind, WindowFacts


@dataclass(frozen=True, slots=True)
class Gap:
    """A loss.

    Attributes:
        cause: `queue_full`, `spool_full`, `spool_altered`, `journal_unreadable`, `refused`, …
        count: How many events or records, where that is known.
        record_id: The record that is concerned, where that is known.
        file: Name of the spool file.
        first_byte: Start of the damaged range in it.
        last_byte: End of the damaged range.
        first_us: Earliest time of what is missing, µs.
        last_us: Latest time.
    """

    cause: str
    count: int | None = None
    record_id: str | None = None
    file: str | None = None
    first_byte: int | None = None
    last_byte: int | None = None
    first_us: int | None = None
    last_us: int | None = None


def trace_from_gap(gap: Gap, agent: str) -> DecisionTrace:
    """The trace of kind `gap` that tells of `gap`."""
    now_ns = time.time_ns()
    window = WindowFacts(
        record_id=new_record_id(now_ns),
        record_kind=RecordKind.GAP,
        session=secrets.token_hex(16),
        agent=agent,
        session_id=None,
        opened_by="amfs_otel",
        inferred=False,
        started_ns=now_ns,
    )
    facts: dict[str, Any] = {
        "schema": "amfs-otel/gap/1",
        "agent": {"$n": agent},
        **{key: value for key, value in asdict(gap).items() if value is not None},
    }
    return DecisionTrace(window, facts, (), 0, 0, now_ns)
