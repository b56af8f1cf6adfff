"""The demo itself, read back through Jaeger's API: sent there directly, and by way of the Collector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.backends.jaeger_api import JaegerSpan, JaegerTrace
from tests.backends.servers import Jaeger, collector_server
from tests.support.demo_story import (
    CLAUDE,
    GPT,
    RECEIPT,
    ROOTS,
    STEPS,
    Sealed,
    clear_demo,
    names_of,
    run_demo,
    sealed,
    steps_under,
)

pytestmark = [pytest.mark.backends, pytest.mark.timeout(500)]

ROUTES = ("direct", "collector")
PROGRAMS = (*STEPS.values(), ())
"""The spans under each program's root."""


@dataclass(frozen=True)
class Arrived:
    """One demo: its log's entries without genesis, and Jaeger's trace of each."""

    service: str
    log: list[Sealed]
    traces: list[JaegerTrace]

    def receipt(self, number: int) -> JaegerSpan:
        return self.traces[number].span(RECEIPT)

    def root(self, number: int) -> JaegerSpan:
        (root,) = (span for span in self.traces[number].named(ROOTS[number]) if span.parent_id is None)
        return root


@pytest.fixture(scope="module", params=ROUTES)
def arrived(
    request: pytest.FixtureRequest, jaeger: Jaeger, otelcol: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Arrived]:
    """The demo's traces, complete: what the sampler would leave out is another test's subject."""
    home, service = tmp_path_factory.mktemp("home"), f"demo-{request.param}"
    if request.param == "direct":
        yield _arrived(home, jaeger, jaeger.otlp_http, service)
        return
    settings: dict[str, Any] = {
        "AMFS_COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_grpc.removeprefix("http://"),
        "AMFS_COLLECTOR_DECISION_WAIT": "2s",
        "AMFS_COLLECTOR_KEEP_PERCENT": "100",
    }
    with collector_server(home / "collector.log", **settings) as collector:
        yield _arrived(home, jaeger, collector.otlp_http, service)


def _arrived(home: Path, jaeger: Jaeger, endpoint: str, service: str) -> Arrived:
    try:
        done = run_demo(home, endpoint, service)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"spans and receipts went to {endpoint}" in done.stdout
        _, *log = sealed(home)
    finally:
        clear_demo(home)
    traces = [
        jaeger.await_trace(str(one.trace), spans=len(names_of(steps)) + 2)
        for one, steps in zip(log, PROGRAMS, strict=True)
    ]
    return Arrived(service, log, traces)


def test_services_and_spans(arrived: Arrived, jaeger: Jaeger) -> None:
    assert {arrived.service, "amfs-otel"} <= jaeger.api.services()
    assert len(jaeger.api.traces(arrived.service)) == len(ROOTS)
    for number, (trace, steps) in enumerate(zip(arrived.traces, PROGRAMS, strict=True)):
        own = [span.name for span in trace.spans if span.service == arrived.service]
        assert sorted(own) == sorted([ROOTS[number], *names_of(steps)])
        assert [span.name for span in trace.spans if span.service == "amfs-otel"] == [RECEIPT]


def test_every_span_hangs_where_it_hung_in_the_program(arrived: Arrived) -> None:
    for number, (trace, steps) in enumerate(zip(arrived.traces, PROGRAMS, strict=True)):
        root = arrived.root(number)
        assert steps_under(root.span_id, [span for span in trace.spans if span.name != RECEIPT]) == steps
        assert arrived.receipt(number).parent_id == root.span_id
        assert root.attributes["amfs.record.id"] == arrived.log[number].record_id


def test_kinds_and_attributes(arrived: Arrived) -> None:
    deploy, review, onboard, _ = arrived.traces
    first, second = deploy.named(GPT)
    assert first.attributes["span.kind"] == "client"
    assert (
        first.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o-mini",
            "gen_ai.request.temperature": 0.2,
            "gen_ai.usage.input_tokens": 1312,
            "gen_ai.usage.cache_read.input_tokens": 1024,
            "gen_ai.usage.output_tokens": 44,
            "gen_ai.response.finish_reasons": '["tool_calls"]',
        }.items()
    )
    assert second.attributes["gen_ai.response.finish_reasons"] == '["stop"]'
    asked, *_ = claude = review.named(CLAUDE)
    assert [span.attributes["gen_ai.request.stream"] for span in claude] == [True, True, True]
    assert all(span.attributes["gen_ai.response.time_to_first_chunk"] > 0 for span in claude)
    assert (
        asked.attributes.items()
        >= {
            "gen_ai.provider.name": "anthropic",
            "gen_ai.usage.input_tokens": 1196,
            "gen_ai.usage.cache_write.input_tokens": 1024,
            "gen_ai.response.finish_reasons": '["tool_use"]',
        }.items()
    )
    (thinking,) = onboard.named(GPT)
    assert thinking.attributes["gen_ai.usage.reasoning.output_tokens"] == 192
    pattern, risk = deploy.named("search_memory")
    assert pattern.attributes["span.kind"] == "internal"
    assert pattern.attributes.items() >= _entry("retry-pattern", 3, 0.92).items()
    assert risk.attributes.items() >= _entry("risk-race-condition", 1, 0.78).items()
    written = deploy.span("upsert_memory")
    assert written.attributes["gen_ai.memory.record.id"] == "checkout-service/decision-rollback-retry"


def _entry(key: str, version: int, confidence: float) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.record.id": f"checkout-service/{key}",
        "amfs.entry.version": version,
        "amfs.entry.confidence": confidence,
    }


def test_contexts_and_outcomes_are_events_of_the_root(arrived: Arrived) -> None:
    events = arrived.root(0).events
    assert [event["event"] for event in events] == [
        "amfs.context", "amfs.context", "amfs.outcome", "amfs.confidence_change", "amfs.confidence_change",
    ]  # fmt: skip
    assert [event["amfs.context.source"] for event in events[:2]] == ["PagerDuty API", "git"]
    assert events[2].items() >= {"amfs.outcome.ref": "DEP-500", "amfs.outcome.type": "success"}.items()
    assert events[3].items() >= {"amfs.entry.key": "retry-pattern", "amfs.confidence.before": 0.92}.items()


def test_receipts_say_what_the_store_says(arrived: Arrived) -> None:
    for number, one in enumerate(arrived.log):
        receipt = arrived.receipt(number)
        assert receipt.trace_id == one.trace
        assert receipt.parent_id == one.span == arrived.root(number).span_id
        assert receipt.attributes["amfs.sequence_number"] == one.sequence_number == number + 1
        assert (
            receipt.attributes.items()
            >= {
                "amfs.record.id": one.record_id,
                "amfs.record.kind": one.kind,
                "amfs.record_hash": one.record_hash,
                "amfs.content_hash": one.content_hash,
                "amfs.parent_hash": one.parent_hash,
                "amfs.signing_key_id": one.signing_key_id,
                "amfs.sealed_at": one.sealed_at,
            }.items()
        )


def test_a_hash_finds_its_trace(arrived: Arrived, jaeger: Jaeger) -> None:
    """The way from a record to its trace where only Jaeger is at hand."""
    one = arrived.log[1]
    found = jaeger.api.traces("amfs-otel", {"amfs.record_hash": one.record_hash})
    assert [trace.trace_id for trace in found] == [one.trace]
