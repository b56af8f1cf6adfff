"""The canary rule of the content policy, field by field, for every setting: where each class of text may be found."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from amfs_otel import api, capture, guard, pipeline
from amfs_otel.assemble.journal import EventPrepared
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.model import FIELDS, FieldClass, Kind
from amfs_otel.settings import LedgerContent, Settings, SpanContent
from tests.support.every_kind import EVERY_KIND, Example
from tests.support.spooled import all_bytes, journaled, spooled, statuses

SECRET = "sk-proj-abcdefghijklmnop1234"
STRUCTURE = ("operation", "provider", "model", "stream_exit", "outcome_type", "finish_reasons", "role", "type")


class Marked:
    """Every kind with a canary of its own in each text of each field, and which class that field is of."""

    def __init__(self, made: Callable[[FieldClass, int], str] = lambda c, n: f"canary-{c.value}-{n}-end") -> None:
        self.made = made
        self.classes: dict[str, tuple[FieldClass, str]] = {}
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
            text = self.made(inside, len(self.classes))
            self.classes[text] = (inside, where)
            return text
        return tree

    def of(self, *classes: FieldClass) -> dict[str, str]:
        """canary → field, for fields of `classes`."""
        return {text: where for text, (field_class, where) in self.classes.items() if field_class in classes}


class Everything:
    """All that one run left behind, as text."""

    def __init__(self, state: Path, spans: InMemorySpanExporter, metrics: InMemoryMetricReader, logs: str) -> None:
        self.journal = "".join(
            (text.data or b"").decode()
            for item in journaled(state)
            if isinstance(item, EventPrepared)
            for text in item.event.texts
        )
        self.files = all_bytes(state).decode("utf-8", "replace")
        self.headers = "".join(one.record.header.decode() for one in spooled(state))
        self.skeletons = "".join(
            part.data.decode() for one in spooled(state) for part in one.record.parts if part.klass == "s"
        )
        self.statuses = str(statuses(state))
        self.spans = "".join(span.to_json() for span in spans.get_finished_spans())
        data = metrics.get_metrics_data()
        self.metrics = data.to_json() if data is not None else ""
        self.logs = logs

    @property
    def outside_parts(self) -> str:
        return self.spans + self.metrics + self.logs + self.headers + self.skeletons + self.statuses


@pytest.fixture
def everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Callable[..., Everything]]:
    guard.reset()
    caplog.set_level(logging.DEBUG)
    spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    provider, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([metrics], shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))

    def run(marked: Marked, ledger: LedgerContent, span: SpanContent, error: str) -> Everything:
        settings = Settings(tmp_path / "state", program="p", sigterm=False, ledger_content=ledger, span_content=span)
        started = pipeline.start(settings, tracer_provider=provider)
        assert started is not None
        started.capture.metrics = ClientMetrics(meters.get_meter("amfs_otel"))
        with api.session("agent"):
            step = capture.begin(Kind.TOOL_CALL, "amfs_otel", {"tool_name": "t"})
            assert step is not None
            step.fail(ValueError(error))
            capture.instant(Kind.ERROR, "amfs", {"operation": "o"}, error=ValueError(error))
            for example in marked.examples:
                example.report()
            started.worker.spool_now(10)
            with started.worker._lock:
                started.worker.spooling.sync()
                found = journaled(tmp_path / "state")
            assert found
        started.worker.spool_now(10)
        started.worker.health.write(at_exit=True)
        return Everything(tmp_path / "state", spans, metrics, caplog.text)

    yield run
    pipeline.stop()
    provider.shutdown()
    meters.shutdown()
    guard.reset()


def present(canaries: dict[str, str], text: str) -> set[str]:
    return {where for canary, where in canaries.items() if canary in text}


ERROR = "canary-message-error-end"


@pytest.mark.parametrize("ledger", list(LedgerContent))
@pytest.mark.parametrize("span", list(SpanContent))
def test_each_text_is_found_exactly_where_its_class_allows(
    everything: Callable[..., Everything], ledger: LedgerContent, span: SpanContent
) -> None:
    marked = Marked()
    found = everything(marked, ledger, span, ERROR)
    messages = {**marked.of(FieldClass.MESSAGE), ERROR: "error_message"}
    decisions = marked.of(FieldClass.DECISION)
    assert len(messages) > 10
    assert len(decisions) > 10

    kept = found.files + found.journal
    assert present(messages, kept) == (set(messages.values()) if ledger is LedgerContent.ALL else set())
    assert present(decisions, kept) == (set(decisions.values()) if ledger is not LedgerContent.NONE else set())

    both = {**messages, **decisions}
    assert present(both, found.outside_parts.replace(found.spans, "")) == set()
    on_spans = present(both, found.spans)
    assert "error_message" not in on_spans, "an exception's text is on no span of ours"
    assert bool(on_spans) == span.on_spans
    names = marked.of(FieldClass.NAME)
    assert present(names, found.headers + found.skeletons) == set(), "erasable, so in a part of their own"
    assert present(names, found.files) == set(names.values())


@pytest.mark.parametrize("ledger", list(LedgerContent))
@pytest.mark.parametrize("span", [SpanContent.NO_CONTENT, SpanContent.SPAN_AND_EVENT])
def test_a_secret_is_nowhere_at_any_setting(
    everything: Callable[..., Everything], ledger: LedgerContent, span: SpanContent
) -> None:
    found = everything(Marked(lambda *_: SECRET), ledger, span, f"failed with {SECRET}")
    assert SECRET not in found.files + found.journal + found.outside_parts
    assert "[masked]" in found.files + found.journal
