"""Nobody listens at the OTLP endpoint when the program ends."""

import logging
import os
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
from amfs_otel.pipeline.dead_collector import give_up_on_a_dead_collector
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
    give_up_on_a_dead_collector(time.monotonic() + 1)
    assert gave_up(caplog)
    caplog.clear()
    provider.shutdown()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_applications_own_spans_keep_their_exporter(
    provider: TracerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    exporting_to(provider, refused_endpoint())
    provider.get_tracer("the-application").start_span("theirs").end()
    give_up_on_a_dead_collector(time.monotonic() + 1)
    assert not gave_up(caplog)


def test_a_collector_that_listens_gets_everything(provider: TracerProvider, caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver() as receiver:
        exporting_to(provider, receiver.http_endpoint)
        provider.get_tracer(SCOPE).start_span("ours").end()
        give_up_on_a_dead_collector(time.monotonic() + 1)
        assert not gave_up(caplog)
        provider.shutdown()
        assert [span.name for span in receiver.wait_for_spans(1)] == ["ours"]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_program_ends_with_one_line_and_without_a_retry(tmp_path: Path, protocol: str) -> None:
    environment = {
        **os.environ,
        "AMFS_OTEL_STATE_DIR": str(tmp_path / "state"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": refused_endpoint(),
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }
    program = "import amfs_otel; amfs_otel.record_context('label', 'summary')"
    launcher = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", launcher, sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.count("\n") == 1, done.stderr
    assert "nobody listens at the OTLP endpoint" in done.stderr
