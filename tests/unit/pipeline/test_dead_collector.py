"""Nobody listens at the OTLP endpoint when the program ends."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from amfs_otel import guard
from amfs_otel.attach import RequestBoundaries
from amfs_otel.pipeline.dead_collector import hurry_otlp_exporters
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


def gave_up(caplog: pytest.LogCaptureFixture) -> bool:
    return any("nobody listens at the OTLP endpoint" in record.getMessage() for record in caplog.records)


def test_our_own_spans_wait_for_nobody(provider: TracerProvider, caplog: pytest.LogCaptureFixture) -> None:
    exporting_to(provider, refused_endpoint())
    provider.get_tracer(SCOPE).start_span("ours").end()
    hurry_otlp_exporters(time.monotonic() + 1)
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
    hurry_otlp_exporters(time.monotonic() + 1)
    assert not gave_up(caplog)


def test_the_applications_own_spans_keep_their_exporter(
    provider: TracerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    exporting_to(provider, refused_endpoint())
    provider.get_tracer("the-application").start_span("theirs").end()
    hurry_otlp_exporters(time.monotonic() + 1)
    assert not gave_up(caplog)


def test_a_collector_that_listens_gets_everything(provider: TracerProvider, caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver() as receiver:
        exporting_to(provider, receiver.http_endpoint)
        provider.get_tracer(SCOPE).start_span("ours").end()
        hurry_otlp_exporters(time.monotonic() + 1)
        assert not gave_up(caplog)
        provider.shutdown()
        assert [span.name for span in receiver.wait_for_spans(1)] == ["ours"]


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
