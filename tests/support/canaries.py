"""The canary rule of the content policy as a table, and all that one run leaves behind, place by place."""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from amfs_otel import api, guard, pipeline
from amfs_otel.assemble.journal import EventPrepared
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.model import FIELDS, FieldClass
from amfs_otel.pipeline import Pipeline
from amfs_otel.settings import LedgerContent, Settings, SpanContent
from tests.support.every_kind import EVERY_KIND, Example
from tests.support.spooled import all_bytes, journaled, spooled, statuses

SECRET = "sk-proj-abcdefghijklmnop1234"
STRUCTURE = ("operation", "provider", "model", "stream_exit", "outcome_type", "finish_reasons", "role", "type")
OUR_LOGGERS = ("amfs_otel", "opentelemetry")


class Text(Enum):
    """Classes of the content policy's table that may not go everywhere."""

    DECISION = "d"
    MESSAGE = "m"
    NEVER = ""


KEPT: dict[Text, frozenset[LedgerContent]] = {
    Text.DECISION: frozenset({LedgerContent.DECISION, LedgerContent.ALL}),
    Text.MESSAGE: frozenset({LedgerContent.ALL}),
    Text.NEVER: frozenset(),
}
"""Class → the settings of the ledger under which its texts are kept."""

ON_SPANS = frozenset({SpanContent.SPAN_ONLY, SpanContent.SPAN_AND_EVENT})
"""The settings under which spans carry texts, in the attributes that the profile has for them."""


@dataclass(frozen=True)
class Canary:
    """One text that is found nowhere else.

    Attributes:
        field: What it was given as.
        text: It.
        of: Its class.
        attributes: The span attributes that hold it where spans carry texts.
        recorded: Whether the decision trace has a place for it at all.
    """

    field: str
    text: str
    of: Text
    attributes: frozenset[str] = frozenset()
    recorded: bool = True

    def allowed(self, ledger: LedgerContent, span: SpanContent) -> set[str]:
        """The places of `Left` that hold it under these settings; it is in each of them, and nowhere else."""
        found: set[str] = set()
        if self.recorded and ledger in KEPT[self.of]:
            found |= {"journal", "files", f"parts {self.of.value}"}
        if span in ON_SPANS:
            found |= {f"span attribute {key}" for key in self.attributes}
        return found


class Left:
    """What a run left: place → text."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = dict(places)

    def __getitem__(self, place: str) -> str:
        return self.places.get(place, "")

    def holding(self, text: str) -> set[str]:
        """The places in which `text` stands."""
        return {place for place, held in self.places.items() if text in held}

    def found(self, canaries: Iterable[Canary]) -> dict[str, set[str]]:
        """Canary's field → the places in which it stands."""
        return {canary.field: self.holding(canary.text) for canary in canaries}


def expected(canaries: Iterable[Canary], ledger: LedgerContent, span: SpanContent) -> dict[str, set[str]]:
    """What `Left.found` must give."""
    return {canary.field: canary.allowed(ledger, span) for canary in canaries}


@dataclass
class Run:
    """A pipeline with everything that it tells anybody within reach."""

    state: Path
    started: Pipeline
    spans: InMemorySpanExporter
    metrics: InMemoryMetricReader
    caplog: pytest.LogCaptureFixture

    def tell(self, story: Callable[[], object]) -> Left:
        """Runs `story` as one agent's session, up to where its record is on disk, and collects what is left."""
        with api.session("agent"):
            story()
            self.started.worker.spool_now(10)
            with self.started.worker._lock:
                self.started.worker.spooling.sync()
                journal = journaled(self.state)
        assert journal
        self.started.worker.spool_now(10)
        self.started.worker.health.write(at_exit=True)
        texts = [text for item in journal if isinstance(item, EventPrepared) for text in item.event.texts]
        places = {"journal": "".join((text.data or b"").decode() for text in texts), **self._on_disk(), **self._told()}
        for span in self.spans.get_finished_spans():
            for place, text in _span_places(span):
                places[place] = places.get(place, "") + text + "\n"
        return Left(places)

    def _on_disk(self) -> dict[str, str]:
        records = [one.record for one in spooled(self.state)]
        assert records
        parts: dict[str, str] = {}
        for record in records:
            for part in record.parts:
                parts[f"parts {part.klass}"] = parts.get(f"parts {part.klass}", "") + (part.data or b"").decode()
        return {
            **parts,
            "files": all_bytes(self.state).decode("utf-8", "replace"),
            "headers": "".join(record.header.decode() for record in records),
            "statuses": str(statuses(self.state)),
        }

    def _told(self) -> dict[str, str]:
        data = self.metrics.get_metrics_data()
        formatter = logging.Formatter()
        said = [formatter.format(one) for one in self.caplog.records if one.name.startswith(OUR_LOGGERS)]
        return {"metrics": data.to_json() if data is not None else "", "logs": "\n".join(said)}


def _span_places(span: ReadableSpan) -> Iterator[tuple[str, str]]:
    """Every text of a span by where on it that stands."""
    yield "span name", span.name
    yield "span status", str(span.status.description)
    yield "span resource and scope", f"{span.resource.attributes} {span.instrumentation_scope}"
    yield "span links", "".join(str(link.attributes) for link in span.links)
    for key, value in (span.attributes or {}).items():
        yield f"span attribute {key}", f"{value}"
    for event in span.events:
        yield "span events", f"{event.name} {event.attributes}"


@contextmanager
def a_run(state: Path, caplog: pytest.LogCaptureFixture, ledger: LedgerContent, span: SpanContent) -> Iterator[Run]:
    """A pipeline on providers of its own; everything is taken back afterwards."""
    guard.reset()
    caplog.set_level(logging.DEBUG)
    spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    provider, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([metrics], shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    settings = Settings(state, program="p", sigterm=False, ledger_content=ledger, span_content=span)
    started = pipeline.start(settings, tracer_provider=provider)
    assert started is not None
    started.capture.metrics = ClientMetrics(meters.get_meter("amfs_otel"))
    try:
        yield Run(state, started, spans, metrics, caplog)
    finally:
        pipeline.stop()
        provider.shutdown()
        meters.shutdown()
        guard.reset()


# -- every kind of event, marked ---------------------------------------------------------------------------------------

SPAN_ATTRIBUTES: dict[str, str] = {
    "llm_call.input_messages": "gen_ai.input.messages",
    "llm_call.output_messages": "gen_ai.output.messages",
    "llm_call.system_instructions": "gen_ai.system_instructions",
    "llm_call.tool_definitions": "gen_ai.tool.definitions",
    "llm_call.stop_sequences": "gen_ai.request.stop_sequences",
    "tool_call.arguments": "gen_ai.tool.call.arguments",
    "tool_call.result": "gen_ai.tool.call.result",
    "retrieval.documents": "gen_ai.retrieval.documents",
    "memory_query.parameters.query": "gen_ai.memory.query.text",
    "memory_read.value": "gen_ai.memory.records",
    "memory_write.value": "gen_ai.memory.records",
}
"""Field of an event → the one span attribute for it. No other text ever goes onto a span."""

_TEXTS = {FieldClass.DECISION: Text.DECISION, FieldClass.MESSAGE: Text.MESSAGE}


class Marked:
    """Every kind with a canary of its own in each text of each field."""

    def __init__(self, made: Callable[[FieldClass, int], str] = lambda c, n: f"canary-{c.value}-{n}-end") -> None:
        self.made = made
        self.fields: dict[str, tuple[FieldClass, str]] = {}
        self.examples = [
            Example(e.kind, e.source, self._tree(e.fields, e.kind.value, None), self._tree(e.result, e.kind.value, None))
            for e in EVERY_KIND
        ]  # fmt: skip

    def _tree(self, tree: Any, where: str, inside: FieldClass | None) -> Any:
        if isinstance(tree, dict):
            return {
                key: item if key in STRUCTURE else self._tree(item, f"{where}.{key}", inside or FIELDS.get(key))
                for key, item in tree.items()
            }
        if isinstance(tree, list):
            return [self._tree(item, where, inside) for item in tree]
        if isinstance(tree, str) and inside is not None:
            text = self.made(inside, len(self.fields))
            self.fields[text] = (inside, where)
            return text
        return tree

    def report(self) -> None:
        """Reports every event to the installed capture."""
        for example in self.examples:
            example.report()

    def canaries(self) -> list[Canary]:
        """Those of decision and message fields."""
        found: list[Canary] = []
        for number, (text, (field_class, where)) in enumerate(self.fields.items()):
            if field_class in _TEXTS:
                key = next((key for start, key in SPAN_ATTRIBUTES.items() if f"{where}.".startswith(f"{start}.")), None)
                attributes = frozenset({key} if key is not None else ())
                found.append(Canary(f"{where} ({number})", text, _TEXTS[field_class], attributes))
        return found

    def names(self) -> dict[str, str]:
        """Canary → field, for names."""
        return {text: where for text, (field_class, where) in self.fields.items() if field_class is FieldClass.NAME}


def shown(errors: Iterable[BaseException]) -> str:
    """All that errors show to who prints or logs them, causes included."""
    return "\n".join(line for error in errors for line in (str(error), *traceback.format_exception(error)))
