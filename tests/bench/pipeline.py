"""The OpenTelemetry pipeline that every measured program has: one provider, BatchSpanProcessor, an exporter that counts."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF


class CountingExporter(SpanExporter):
    """Drops spans, having counted them; keeps them while `kept` is a list."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[ReadableSpan] | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.count += len(spans)
        if self.kept is not None:
            self.kept.extend(spans)
        return SpanExportResult.SUCCESS


exporter = CountingExporter()
"""The one of this process."""
flushed: list[BatchSpanProcessor | TracerProvider] = []
"""What `flush` flushes beside the global provider, which some instrumentations do not use."""


def batch_processor() -> BatchSpanProcessor:
    """A processor with the SDK's defaults in front of `exporter`."""
    processor = BatchSpanProcessor(exporter)
    flushed.append(processor)
    return processor


def provider(*, sampled_out: bool = False) -> TracerProvider:
    """A provider over `batch_processor`."""
    made = TracerProvider(sampler=ALWAYS_OFF) if sampled_out else TracerProvider()
    made.add_span_processor(batch_processor())
    return made


def flush() -> None:
    """Exports what waits in the global provider, whoever made it, and in all of `flushed`."""
    flush_now = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush_now is not None:
        flush_now()
    for one in flushed:
        one.force_flush()
