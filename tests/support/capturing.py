"""A `Capture` with everything in memory: what tests of capture, patches and assembling drive."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from amfs_otel import capture, guard
from amfs_otel.assemble.assembler import Assembler, DecisionTrace
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.capture.content import Masker
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.runtime import Capture
from amfs_otel.model import ClosedBy, Message
from amfs_otel.settings import LedgerContent, Settings


@dataclass
class ListSink:
    """Keeps messages in order."""

    messages: list[Message] = field(default_factory=list)

    def put(self, message: Message) -> None:
        self.messages.append(message)


@dataclass
class Bench:
    """One capture under test."""

    capture: Capture
    sink: ListSink
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    provider: TracerProvider

    def traces(self, content: LedgerContent = LedgerContent.ALL, *, close: bool = True) -> list[DecisionTrace]:
        """The decision traces of everything so far; open windows are closed first (`exit`)."""
        if close:
            self.capture.windows.close_all(ClosedBy.EXIT)
        assembler = Assembler(Preparer(content, self.capture.masker, b"d" * 32))
        found = []
        for message in self.sink.messages:
            for item in assembler.prepared(message):
                trace = assembler.apply(item)
                if trace is not None:
                    found.append(trace)
        return found

    def spans(self) -> list[ReadableSpan]:
        """The ended spans."""
        return list(self.exporter.get_finished_spans())


def resolved(trace: DecisionTrace) -> dict[str, Any]:
    """The facts of `trace` with names and kept texts in place; a withheld text is `None`."""

    def tree(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$n"}:
                return value["$n"]
            if set(value) == {"$t"}:
                data = trace.texts[value["$t"]].data
                return None if data is None else data.decode()
            return {key: tree(item) for key, item in value.items()}
        return [tree(item) for item in value] if isinstance(value, list) else value

    return tree(trace.facts)


@contextmanager
def capturing(**settings: Any) -> Iterator[Bench]:
    """Installs a capture on providers of its own; everything is taken back afterwards."""
    guard.reset()
    exporter, reader, sink = InMemorySpanExporter(), InMemoryMetricReader(), ListSink()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    given = Settings(**{"state_dir": Path("unused"), "program": "program", **settings})
    captured = Capture(
        given,
        sink,
        Masker(),
        provider.get_tracer("amfs_otel"),
        ClientMetrics(meters.get_meter("amfs_otel"), dual=given.semconv_dual),
    )
    capture.install(captured)
    try:
        yield Bench(captured, sink, exporter, reader, provider)
    finally:
        capture.uninstall()
        provider.shutdown()
        meters.shutdown()
        guard.reset()
