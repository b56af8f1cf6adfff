"""The OTLP endpoint is dead when the program ends: nobody listens, nobody answers, or nobody knows its name."""

import logging
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from amfs_otel import guard
from amfs_otel.attach import RequestBoundaries
from amfs_otel.pipeline import dead_collector
from amfs_otel.pipeline.dead_collector import OwnExporters
from amfs_otel.semconv import SCOPE
from tests.support.otlp_receiver import OtlpReceiver, refused_endpoint


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    guard.reset()
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(RequestBoundaries())
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: None)
    yield made
    made.shutdown()
    guard.reset()


def exporting_to(provider: TracerProvider, endpoint: str) -> None:
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=1)))


def hurry() -> None:
    exporters = OwnExporters()
    exporters.probe()
    exporters.hurry(time.monotonic() + 1)


def gave_up(caplog: pytest.LogCaptureFixture) -> bool:
    return any("nobody listens at the OTLP endpoint" in record.getMessage() for record in caplog.records)


def test_our_own_spans_wait_for_nobody(provider: TracerProvider, caplog: pytest.LogCaptureFixture) -> None:
    exporting_to(provider, refused_endpoint())
    provider.get_tracer(SCOPE).start_span("ours").end()
    hurry()
    assert gave_up(caplog)
    caplog.clear()
    provider.shutdown()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_behind_a_proxy_nobody_knows_who_listens(
    provider: TracerProvider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", refused_endpoint())
    exporting_to(provider, "http://collector.test:4318")
    provider.get_tracer(SCOPE).start_span("ours").end()
    hurry()
    assert not gave_up(caplog)


def test_the_applications_own_spans_keep_their_exporter(
    provider: TracerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    exporting_to(provider, refused_endpoint())
    provider.get_tracer("the-application").start_span("theirs").end()
    hurry()
    assert not gave_up(caplog)


def test_a_collector_that_listens_gets_everything(provider: TracerProvider, caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver() as receiver:
        exporting_to(provider, receiver.http_endpoint)
        provider.get_tracer(SCOPE).start_span("ours").end()
        hurry()
        assert not gave_up(caplog)
        provider.shutdown()
        assert [span.name for span in receiver.wait_for_spans(1)] == ["ours"]


def test_one_after_the_other_they_keep_the_time(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch, silent: socket.socket
) -> None:
    endpoint = "http://{}:{}".format(*silent.getsockname())
    spans, points = OTLPSpanExporter(endpoint, timeout=99), OTLPMetricExporter(endpoint, timeout=99)
    provider.add_span_processor(BatchSpanProcessor(spans))
    reader = PeriodicExportingMetricReader(points, export_interval_millis=math.inf)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: MeterProvider([reader], shutdown_on_exit=False))
    hurry()
    limits = [getattr(exporter, "_client", exporter)._timeout for exporter in (spans, points)]
    assert limits[0] == pytest.approx(limits[1], abs=0.1)
    assert 0.5 < sum(limits) <= 1


def test_an_export_that_begins_at_the_end_has_our_limit(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch, silent: socket.socket
) -> None:
    """Whoever holds the lock after we looked at it began after the limit was set."""
    exporter = OTLPSpanExporter("http://{}:{}".format(*silent.getsockname()), timeout=99)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    seen: list[float] = []

    def looked_at(_lock: object, _deadline: float) -> bool:
        seen.append(getattr(exporter, "_client", exporter)._timeout)
        return True

    monkeypatch.setattr(dead_collector, "_is_idle", looked_at)
    hurry()
    assert [limit <= 1 for limit in seen] == [True]


def ended(tmp_path: Path, protocol: str, endpoint: str, program: str, **environment: str) -> str:
    """What the program wrote to stderr under `opentelemetry-instrument`; fails where it does not end in a minute."""
    launcher = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", launcher, sys.executable, "-c", program],
        env={
            **os.environ,
            "AMFS_OTEL_STATE_DIR": str(tmp_path / "state"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_BSP_SCHEDULE_DELAY": "60000",  # nothing is sent before the end, however slow the machine
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


RECORDING = "import amfs_otel; amfs_otel.record_context('label', 'summary')"


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_program_ends_with_one_line_and_without_a_retry(tmp_path: Path, protocol: str) -> None:
    stderr = ended(tmp_path, protocol, refused_endpoint(), RECORDING)
    assert stderr.count("\n") == 1, stderr
    assert "nobody listens at the OTLP endpoint" in stderr


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A listener whose connections are taken by the kernel and never answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener


HOURS = "10000"
"""Seconds that the exporters would wait by themselves: a program that waits for them does not end."""


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_program_ends_though_the_collector_never_answers(
    tmp_path: Path, protocol: str, silent: socket.socket
) -> None:
    endpoint = "http://{}:{}".format(*silent.getsockname())
    ended(tmp_path, protocol, endpoint, RECORDING, OTEL_EXPORTER_OTLP_TIMEOUT=HOURS)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_program_ends_though_an_export_is_under_way(tmp_path: Path, protocol: str, silent: socket.socket) -> None:
    endpoint = "http://{}:{}".format(*silent.getsockname())
    program = (
        "import amfs_otel, gc, time\n"
        "from opentelemetry.sdk._shared_internal import BatchProcessor\n"
        "with amfs_otel.session('agent'):\n"
        "    amfs_otel.record_context('label', 'summary')\n"
        "batch = next(o for o in gc.get_objects() if isinstance(o, BatchProcessor) and 'Span' in o._exporting)\n"
        "while not batch._export_lock.locked():\n"
        "    time.sleep(0.01)\n"
    )
    stderr = ended(
        tmp_path, protocol, endpoint, program, OTEL_EXPORTER_OTLP_TIMEOUT=HOURS, OTEL_BSP_SCHEDULE_DELAY="50"
    )
    assert "takes connections and does not answer" in stderr


NAMELESS = """
import socket, threading
resolved = socket.getaddrinfo
def never(host, *arguments, **named):
    if host == "collector.test":
        threading.Event().wait()
    return resolved(host, *arguments, **named)
socket.getaddrinfo = never
"""
"""A name server that never answers: the C library would wait for it, and ask again, for longer than the exit time."""


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_program_ends_though_the_collectors_name_is_not_found(tmp_path: Path, protocol: str) -> None:
    stderr = ended(tmp_path, protocol, "http://collector.test:4317", NAMELESS + RECORDING)
    assert "the OTLP endpoint was not reached in time" in stderr


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_program_ends_though_collector_and_database_never_answer(
    tmp_path: Path, protocol: str, silent: socket.socket
) -> None:
    host, port = silent.getsockname()
    hours = {"OTEL_EXPORTER_OTLP_TIMEOUT": HOURS, "AMFS_OTEL_SIGNING_KEY": "hex:" + "5e" * 32}
    dsn = f"postgresql://agent@{host}:{port}/traces"
    ended(tmp_path, protocol, f"http://{host}:{port}", RECORDING, AMFS_OTEL_DSN=dsn, **hours)
