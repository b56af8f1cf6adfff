"""A receipt says what stands in the chain, in the trace of whom it concerns, and nothing that a person chose."""

import json
import uuid

import pytest

from amfs_otel.chain.entry import make_entry
from amfs_otel.chain.keys import Key
from amfs_otel.chain.record import PartInput, Record, make_record
from amfs_otel.export.receipts import ReceiptEmitter, attributes_from_facts, receipt_span, receipts_wanted
from amfs_otel.settings import Settings
from tests.support.oracle import check_spans
from tests.support.otlp_decode import span_from_readable

KEY = Key(b"w" * 32)
TRACE, SPAN = "ab" * 16, "cd" * 8
NOW_NS = 1_790_000_000_123_456_789
FACTS = {
    "schema": "amfs-otel/decision/1",
    "agent": "deploy-agent",
    "session_id": "sess-1",
    "origin": {"service": "deployer", "host": "h"},
    "started_us": 1_790_000_000_000_000,
    "ended_us": 1_790_000_001_500_000,
    "closed_by": "commit",
    "status": "complete",
    "events": [
        {"kind": "llm_call", "input_tokens": 100, "output_tokens": 10},
        {"kind": "llm_call", "input_tokens": 50, "output_tokens": None},
        {"kind": "memory_read", "entity_path": "svc", "key": "pattern"},
        {"kind": "outcome", "outcome_ref": "DEP-500", "outcome_type": "success"},
    ],
}


def sealed(trace=TRACE, span=SPAN):
    record = make_record(
        kind="decision",
        log="default",
        record_id=str(uuid.UUID(int=7 << 76 | 2 << 62)),
        session="ef" * 16,
        parts=[PartInput("s", b"{}")],
        key=KEY,
        captured_at_ns=NOW_NS,
        trace=trace,
        span=span,
    )
    entry = make_entry(
        log="default",
        log_uid="12" * 16,
        sequence_number=7,
        parent_hash=b"p" * 32,
        record=(record.record_hash, record.signature),
        sealed_at="2026-11-30T10:00:00.000000Z",
        log_key=KEY,
    )
    return record, entry


def test_a_receipt_is_a_child_of_the_root_span_stamped_now():
    record, entry = sealed()
    span = span_from_readable(receipt_span(record, entry, FACTS, NOW_NS))
    assert (span.name, span.kind, span.status) == ("amfs.record", "internal", "unset")
    assert (span.trace_id, span.parent_id) == (TRACE, SPAN)
    assert (span.start_ns, span.end_ns) == (NOW_NS, NOW_NS)
    assert span.resource == {"service.name": "amfs-otel"}
    assert span.scope == "amfs_otel"
    assert span.attributes == {
        "amfs.record.id": record.record_id,
        "amfs.record.kind": "decision",
        "amfs.session.id": "ef" * 16,
        "amfs.log": "default",
        "amfs.sequence_number": 7,
        "amfs.record_hash": record.record_hash.hex(),
        "amfs.content_hash": record.content_hash,
        "amfs.parent_hash": (b"p" * 32).hex(),
        "amfs.signing_key_id": KEY.kid,
        "amfs.sealed_at": "2026-11-30T10:00:00.000000Z",
        "amfs.origin.service": "deployer",
        "amfs.closed_by": "commit",
        "amfs.status": "complete",
        "amfs.window.started_at": "2026-09-21T14:13:20.000000Z",
        "amfs.window.ended_at": "2026-09-21T14:13:21.500000Z",
        "amfs.count.events": 4,
        "amfs.count.llm_call": 2,
        "amfs.count.memory_read": 1,
        "amfs.count.outcome": 1,
        "amfs.outcome.type": "success",
        "amfs.tokens.input": 150,
        "amfs.tokens.output": 10,
    }
    assert check_spans([span]) == []


def test_no_name_that_the_application_chose_is_in_it():
    record, entry = sealed()
    text = json.dumps(span_from_readable(receipt_span(record, entry, FACTS, NOW_NS)).attributes)
    for name in ("deploy-agent", "sess-1", "svc", "pattern", "DEP-500"):
        assert name not in text


def test_the_parent_is_remote_and_sampled():
    record, entry = sealed()
    span = receipt_span(record, entry, FACTS, NOW_NS)
    assert span.parent is not None
    assert span.parent.is_remote
    assert span.parent.trace_flags.sampled
    assert span.get_span_context().trace_flags.sampled
    assert not span.get_span_context().is_remote


def test_without_a_trace_it_is_a_root_span():
    record, entry = sealed(trace=None, span=None)
    first, second = (receipt_span(record, entry, None, NOW_NS) for _ in range(2))
    assert first.parent is None
    assert first.get_span_context().is_valid
    assert first.get_span_context().trace_id != second.get_span_context().trace_id


def test_without_facts_it_says_what_the_chain_says():
    record, entry = sealed()
    assert span_from_readable(receipt_span(record, entry, None, NOW_NS)).attributes == {
        key: value
        for key, value in span_from_readable(receipt_span(record, entry, FACTS, NOW_NS)).attributes.items()
        if not key.startswith(("amfs.count", "amfs.tokens", "amfs.window", "amfs.outcome", "amfs.origin"))
        and key not in ("amfs.closed_by", "amfs.status")
    }


@pytest.mark.parametrize("header", [b"", b"not json", b"[]", b'{"trace":7,"span":"zz","id":null,"kind":"\\ud800"}'])
def test_a_strangers_record_has_a_receipt_too(header):
    record, entry = sealed()
    stranger = Record(header, record.record_hash, record.signature, (), ())
    span = span_from_readable(receipt_span(stranger, entry, None, NOW_NS))
    assert span.parent_id is None
    assert span.attributes["amfs.record_hash"] == record.record_hash.hex()
    assert span.attributes["amfs.sequence_number"] == 7
    for value in span.attributes.values():
        str(value).encode()


def test_unknown_is_left_out_and_nonsense_does_no_harm():
    assert attributes_from_facts({}) == {}
    assert attributes_from_facts({"origin": None, "events": "x", "started_us": True, "ended_us": -1}) == {}
    assert attributes_from_facts({"events": [None, {"kind": []}, {"kind": "llm_call", "input_tokens": 1 << 64}]}) == {
        "amfs.count.events": 3,
        "amfs.count.llm_call": 1,
    }


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, True),
        ({"AMFS_OTEL_ENDPOINT": "c:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "AMFS_OTEL_RECEIPTS": "off"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "AMFS_OTEL_DISABLED": "true"}, False),
    ],
)
def test_receipts_are_emitted_only_where_they_are_wanted(environ, wanted):
    settings = Settings.from_env(environ)
    assert receipts_wanted(settings) is wanted
    emitter = ReceiptEmitter(settings)
    assert emitter.active is wanted
    emitter.shutdown(0)


def test_an_emitter_that_is_silent_counts_nothing():
    emitter = ReceiptEmitter(Settings.from_env({}))
    emitter.start()
    emitter.emit(*sealed(), FACTS)
    emitter.shutdown(1)
    assert (emitter.sent, emitter.lost) == (0, 0)
