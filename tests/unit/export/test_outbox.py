"""The outbox never makes anybody wait longer than it was told, and loses nothing silently."""

import logging
import os
import threading
import time

import pytest
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from amfs_otel import guard
from amfs_otel.export import outbox
from amfs_otel.export.otlp import finished_span, resource_named, span_context
from amfs_otel.export.outbox import Outbox

SPAN = finished_span(
    "s", span_context(1, 2), parent=None, resource=resource_named("t"), attributes={}, start_ns=1, end_ns=1
)


class Exporter(SpanExporter):
    """Keeps what it gets; waits at the gate where it has one."""

    def __init__(self, result=SpanExportResult.SUCCESS, gate=None):
        self.result, self.gate = result, gate
        self.batches = []
        self.entered = threading.Event()
        self.closed = 0
        self.suppressed = []

    def export(self, spans):
        self.suppressed.append(bool(get_value(_SUPPRESS_INSTRUMENTATION_KEY)))
        self.entered.set()
        if self.gate is not None:
            self.gate.wait(60)
        if self.result is None:
            raise OSError("broken")
        self.batches.append(len(spans))
        return self.result

    def shutdown(self):
        self.closed += 1
        if self.gate is not None:
            self.gate.set()


@pytest.fixture(autouse=True)
def _clean_guard():
    guard.reset()
    yield
    guard.reset()


def test_what_is_put_is_sent_in_batches_before_it_closes():
    exporter = Exporter()
    box = Outbox("test", lambda: exporter)
    for _ in range(600):
        box.put(SPAN)
    box.close(5)
    assert sum(exporter.batches) == 600
    assert max(exporter.batches) <= outbox.BATCH_LIMIT
    assert (box.sent, box.lost, exporter.closed) == (600, 0, 1)
    assert set(exporter.suppressed) == {True}


def test_it_sends_without_being_closed():
    exporter = Exporter()
    box = Outbox("test", lambda: exporter, linger_s=0.0)
    box.put(SPAN)
    assert exporter.entered.wait(60)
    box.close(5)


def test_starting_connects_ahead_of_need_and_making_it_does_not():
    connected = threading.Event()
    box = Outbox("test", lambda: connected.set() or Exporter())
    assert not connected.is_set()
    assert box.start()
    assert connected.wait(60)
    box.close(5)


def test_a_hanging_exporter_costs_the_time_given_and_no_more():
    exporter = Exporter(gate=threading.Event())
    box = Outbox("test", lambda: exporter, linger_s=0.0)
    box.put(SPAN)
    assert exporter.entered.wait(60)
    box.put(SPAN)
    began = time.monotonic()
    box.close(0.2)
    assert 0.15 < time.monotonic() - began < 1.5
    assert (box.sent, box.lost) == (0, 2)
    assert exporter.closed >= 1


@pytest.mark.parametrize("result", [SpanExportResult.FAILURE, None])
def test_what_is_refused_is_lost_and_counted(result, caplog):
    exporter = Exporter(result)
    box = Outbox("test", lambda: exporter)
    box.put(SPAN)
    with caplog.at_level(logging.WARNING, "amfs_otel"):
        box.close(5)
    assert (box.sent, box.lost) == (0, 1)
    assert guard.counters().get("test", {}).get("errors", 0) == (0 if result else 1)


def test_an_exporter_that_cannot_be_made_is_no_error_of_the_caller():
    def connect():
        raise ValueError("no")

    box = Outbox("test", connect)
    box.put(SPAN)
    box.close(5)
    assert box.lost == 1
    assert guard.counters()["test"]["errors"] == 1


def test_the_queue_is_bounded(monkeypatch):
    monkeypatch.setattr(outbox, "QUEUE_LIMIT", 3)
    exporter = Exporter(gate=threading.Event())
    box = Outbox("test", lambda: exporter, linger_s=0.0)
    box.put(SPAN)
    assert exporter.entered.wait(60)
    for _ in range(5):
        box.put(SPAN)
    assert box.lost == 2
    exporter.gate.set()
    box.close(5)
    assert box.sent == 4


def test_after_closing_everything_is_lost_and_closing_again_is_nothing():
    box = Outbox("test", Exporter)
    box.close(1)
    box.put(SPAN)
    box.close(1)
    assert (box.sent, box.lost) == (0, 1)


def test_where_no_thread_can_start_the_span_is_lost(monkeypatch):
    def refuse(_self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    box = Outbox("test", Exporter)
    assert not box.start()
    box.put(SPAN)
    box.close(1)
    assert box.lost == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_box_of_its_own():
    exporter = Exporter()
    box = Outbox("test", lambda: exporter, linger_s=30)
    box.put(SPAN)
    child = os.fork()
    if child == 0:
        box.put(SPAN)
        box.close(5)
        os._exit(0 if (exporter.batches, box.sent) == ([1], 1) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    box.close(5)
    assert exporter.batches == [1]
