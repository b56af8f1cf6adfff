"""Receipts: one span `amfs.record` per sealed record, which makes the telemetry backend a second witness.

A receipt stands in the trace of the agent that made the record, as a child of its root span, and is stamped when it is
emitted: backends do not index spans that arrive with an old time. It holds hashes, counts and structure, never a name
or text that an application chose: nothing in a telemetry backend can be erased later.
"""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.util.types import AttributeValue

from amfs_otel import semconv
from amfs_otel.chain.canonical import timestamp_from_ns
from amfs_otel.chain.entry import Entry
from amfs_otel.chain.header import loose_header
from amfs_otel.chain.record import Record
from amfs_otel.export.otlp import (
    finished_span,
    new_span_id,
    new_trace_id,
    otlp_exporter,
    resource_named,
    span_context,
)
from amfs_otel.export.outbox import Outbox
from amfs_otel.model import Kind
from amfs_otel.settings import Settings

_RESOURCE = resource_named(semconv.RECEIPT_SERVICE)


def receipts_wanted(settings: Settings) -> bool:
    """Whether this process emits receipts: an OTLP endpoint was explicitly set and nothing silences them."""
    return (
        settings.otlp_endpoint is not None
        and settings.receipts
        and not settings.sdk_disabled
        and not settings.disabled
        and (settings.traces_exporter or "otlp").strip().lower() != "none"
    )


class ReceiptEmitter:
    """Emits receipts by the OTLP settings of the process that seals. A lost receipt is counted, never retried for ever.

    Thread-safe; usable in a forked child. Nothing is imported or connected before the first receipt, or `start`.

    Args:
        settings: Where to, and whether at all.
    """

    def __init__(self, settings: Settings) -> None:
        endpoint = settings.otlp_endpoint if receipts_wanted(settings) else None
        self._outbox = (
            None if endpoint is None else Outbox("receipts", lambda: otlp_exporter(endpoint, settings.otlp_protocol))
        )

    @property
    def active(self) -> bool:
        """Whether `emit` sends anything."""
        return self._outbox is not None

    @property
    def sent(self) -> int:
        """Receipts that the receiver has acknowledged."""
        return 0 if self._outbox is None else self._outbox.sent

    @property
    def lost(self) -> int:
        """Receipts given up: the telemetry backend will not be a witness of these records."""
        return 0 if self._outbox is None else self._outbox.lost

    def start(self) -> None:
        """Starts the sending thread and connects, ahead of need: at interpreter exit neither is possible any more."""
        if self._outbox is not None:
            self._outbox.start()

    def emit(self, record: Record, entry: Entry, facts: Mapping[str, Any] | None) -> None:
        """Queues the receipt of a record. Call it once, after the entry's commit. Never waits for the network.

        Args:
            record: The record.
            entry: Its entry.
            facts: The record's facts tree, None where its skeleton could not be read.
        """
        if self._outbox is not None:
            self._outbox.put(receipt_span(record, entry, facts, time.time_ns()))

    def shutdown(self, timeout_s: float) -> None:
        """Sends what is queued for at most `timeout_s` seconds, then gives up. Starts no thread. Idempotent."""
        if self._outbox is not None:
            self._outbox.close(timeout_s)


def receipt_span(record: Record, entry: Entry, facts: Mapping[str, Any] | None, now_ns: int) -> ReadableSpan:
    """The receipt of a record, stamped `now_ns` (ns since the epoch).

    A stranger's record is sealed in its place, too, so nothing in the header is taken for granted.
    """
    head = loose_header(record.header)
    trace_id = _id(head.get("trace"), digits=32)
    span_id = _id(head.get("span"), digits=16)
    parent = span_context(trace_id, span_id, remote=True) if trace_id and span_id else None
    return finished_span(
        semconv.RECEIPT_SPAN,
        span_context(trace_id or new_trace_id(), new_span_id()),
        parent=parent,
        resource=_RESOURCE,
        attributes={**_from_chain(head, record, entry), **attributes_from_facts(facts or {})},
        start_ns=now_ns,
        end_ns=now_ns,
    )


def _id(text: object, *, digits: int) -> int:
    """The number in a hex id; 0, which OpenTelemetry takes for "none", where it is no such id."""
    return int(text, 16) if isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", text) else 0


_FROM_HEADER = {
    "id": semconv.AMFS_RECORD_ID,
    "kind": semconv.AMFS_RECORD_KIND,
    "session": semconv.AMFS_SESSION_ID,
    "log": semconv.AMFS_LOG,
    "content_hash": semconv.AMFS_CONTENT_HASH,
    "signing_key_id": semconv.AMFS_SIGNING_KEY_ID,
}


def _from_chain(head: Mapping[str, Any], record: Record, entry: Entry) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = _texts(head, _FROM_HEADER)
    found[semconv.AMFS_RECORD_HASH] = record.record_hash.hex()
    found[semconv.AMFS_SEQUENCE_NUMBER] = entry.sequence_number
    found[semconv.AMFS_PARENT_HASH] = entry.parent_hash.hex()
    found[semconv.AMFS_SEALED_AT] = entry.sealed_at
    return found


_FROM_FACTS = {"closed_by": semconv.AMFS_CLOSED_BY, "status": semconv.AMFS_STATUS}
_TIMES = {"started_us": semconv.AMFS_WINDOW_STARTED_AT, "ended_us": semconv.AMFS_WINDOW_ENDED_AT}
_LAST_US = ((1 << 63) - 1) // 1000
_TOKENS = {"input_tokens": semconv.AMFS_TOKENS_INPUT, "output_tokens": semconv.AMFS_TOKENS_OUTPUT}


def attributes_from_facts(facts: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Origin, outcome type, window times, counts and token totals of a record. What is unknown is left out."""
    found = _texts(facts, _FROM_FACTS)
    found.update(_texts(_mapping(facts.get("origin")), {"service": semconv.AMFS_ORIGIN_SERVICE}))
    found.update({key: at for name, key in _TIMES.items() if (at := _time(facts.get(name))) is not None})
    events = facts.get("events")
    if isinstance(events, Sequence) and not isinstance(events, str):
        found.update(_from_events([_mapping(event) for event in cast("Sequence[object]", events)]))
    return found


def _from_events(events: Sequence[Mapping[str, Any]]) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {semconv.AMFS_COUNT_EVENTS: len(events)}
    kinds = [event.get("kind") for event in events]
    for kind in Kind:
        if count := kinds.count(kind):
            found[semconv.AMFS_COUNT_PREFIX + kind] = count
    for event in events:
        if event.get("kind") == Kind.OUTCOME:
            found.update(_texts(event, {"outcome_type": semconv.AMFS_OUTCOME_TYPE}))
    for name, key in _TOKENS.items():
        known = [value for event in events if type(value := event.get(name)) is int]
        if known and 0 <= (total := sum(known)) < 1 << 63:
            found[key] = total
    return found


def _texts(values: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, AttributeValue]:
    """Texts among `values`, under their attribute keys. One that UTF-8 cannot hold would cost a whole batch."""
    return {
        key: text.encode(errors="replace").decode()
        for name, key in keys.items()
        if isinstance(text := values.get(name), str)
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _time(us: object) -> str | None:
    """A time as headers write it; None for what is none."""
    return timestamp_from_ns(us * 1000) if type(us) is int and 0 <= us <= _LAST_US else None
