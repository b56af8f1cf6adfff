"""Receipts through OpenTelemetry's own exporters into a real receiver, in good weather and bad."""

import logging
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from amfs_otel.chain.entry import FIRST_PARENT, make_entry
from amfs_otel.chain.keys import Key
from amfs_otel.chain.record import PartInput, make_record, new_record_id
from amfs_otel.export.receipts import ReceiptEmitter
from amfs_otel.settings import Settings
from tests.support.oracle import check_spans
from tests.support.otlp_receiver import OtlpReceiver, refused_endpoint

KEY = Key(b"integration test key, 32 bytes ++")
PROTOCOLS = ("grpc", "http/protobuf")
FACTS = {"origin": {"service": "deployer"}, "events": [{"kind": "tool_call"}]}


def sealed(number):
    now_ns = time.time_ns()
    record = make_record(
        kind="decision",
        log="default",
        record_id=new_record_id(now_ns),
        session="ef" * 16,
        parts=[PartInput("s", b"{}")],
        key=KEY,
        captured_at_ns=now_ns,
        trace=f"{number + 1:032x}",
        span=f"{number + 1:016x}",
    )
    entry = make_entry(
        log="default",
        log_uid="12" * 16,
        sequence_number=number,
        parent_hash=FIRST_PARENT,
        record=(record.record_hash, record.signature),
        sealed_at="2026-11-30T10:00:00.000000Z",
        log_key=KEY,
    )
    return record, entry


def emitter_to(endpoint, protocol):
    return ReceiptEmitter(
        Settings.from_env({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_sealed_record_has_one_receipt_in_its_trace(protocol):
    with OtlpReceiver() as receiver:
        emitter = emitter_to(receiver.endpoint(protocol), protocol)
        records = [sealed(number) for number in range(20)]
        before_ns = time.time_ns()
        for record, entry in records:
            emitter.emit(record, entry, FACTS)
        emitter.shutdown(10)
        spans = receiver.spans
    assert (emitter.sent, emitter.lost) == (20, 0)
    assert [span.attributes["amfs.sequence_number"] for span in spans] == list(range(20))
    for (record, entry), span in zip(records, spans, strict=True):
        assert (span.trace_id, span.parent_id) == (record.trace, record.span)
        assert span.attributes["amfs.record_hash"] == record.record_hash.hex() == entry.record_hash.hex()
        assert span.attributes["amfs.origin.service"] == "deployer"
        assert span.resource == {"service.name": "amfs-otel"}
        assert span.start_ns >= before_ns
    assert check_spans(spans) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_they_are_sent_without_waiting_for_the_end(protocol):
    with OtlpReceiver() as receiver:
        emitter = emitter_to(receiver.endpoint(protocol), protocol)
        emitter.emit(*sealed(0), None)
        receiver.wait_for_spans(1, named="amfs.record")
        emitter.shutdown(5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("weather", ["hang", "unavailable", "refused"])
def test_shutdown_is_bounded_whatever_the_collector_does(protocol, weather, caplog):
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    with OtlpReceiver("unavailable" if weather == "unavailable" else "hang") as receiver:
        endpoint = refused_endpoint() if weather == "refused" else receiver.endpoint(protocol)
        emitter = emitter_to(endpoint, protocol)
        began = time.monotonic()
        for number in range(3):
            emitter.emit(*sealed(number), FACTS)
        assert time.monotonic() - began < 1
        if weather != "refused":
            receiver.wait_for_requests(1)
        began = time.monotonic()
        emitter.shutdown(0.3)
        assert time.monotonic() - began < 1.5
        assert receiver.spans == []
    assert (emitter.sent, emitter.lost) == (0, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_and_resource_come_from_the_right_place(protocol, monkeypatch):
    """The exporter reads its headers itself; the application's resource is not the sealer's."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=agent,service.version=9")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "8")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with OtlpReceiver() as receiver:
        emitter = emitter_to(receiver.endpoint(protocol), protocol)
        emitter.emit(*sealed(0), FACTS)
        [span] = receiver.wait_for_spans(1)
        emitter.shutdown(5)
    assert receiver.headers[0]["x-tenant"] == "blue"
    assert span.resource == {"service.name": "amfs-otel"}
    assert len(span.attributes["amfs.record_hash"]) == 64


PROGRAM = """
    import atexit, sys, time
    sys.path.insert(0, {root!r})
    from tests.integration.test_receipts import FACTS, emitter_to, sealed
    emitter = emitter_to({endpoint!r}, {protocol!r})
    atexit.register(lambda: (emitter.emit(*sealed(1), FACTS), emitter.shutdown(5), print(emitter.sent, emitter.lost)))
    emitter.emit(*sealed(0), FACTS)
    while not emitter.sent:
        time.sleep(0.01)
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_record_sealed_at_exit_has_its_receipt(protocol):
    """At interpreter exit neither threads nor imports work any more (3.12); what runs already goes on."""
    root = str(Path(__file__).parents[2])
    with OtlpReceiver() as receiver:
        program = textwrap.dedent(PROGRAM).format(root=root, endpoint=receiver.endpoint(protocol), protocol=protocol)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.stdout.strip(), done.stderr) == ("2 0", "")
        assert len(receiver.spans) == 2
