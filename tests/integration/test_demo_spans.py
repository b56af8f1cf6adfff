"""The demo's spans, receipts and metrics as an OTLP receiver gets them, held against the GenAI conventions."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from typing import Any

import pytest

from tests.support.demo_story import (
    CHATS,
    RECEIPT,
    ROOTS,
    SPANS,
    STEPS,
    Sealed,
    clear_demo,
    play_demo,
    sealed,
    steps_under,
)
from tests.support.oracle import Finding, check_logs, check_metrics, check_spans, failures
from tests.support.otlp_decode import LogEvent, Metric, Span
from tests.support.otlp_receiver import OtlpReceiver

SERVICE = "checkout-agents"


@dataclass(frozen=True)
class Seen:
    """What the receiver got, and what the store holds."""

    spans: list[Span]
    receipts: list[Span]
    metrics: list[Metric]
    logs: list[LogEvent]
    log: list[Sealed]

    def roots(self) -> list[Span]:
        return sorted((span for span in self.spans if span.parent_id is None), key=lambda span: span.start_ns)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    home = tmp_path_factory.mktemp("home")
    with OtlpReceiver() as receiver:
        try:
            play_demo(home, receiver.http_endpoint, SERVICE)
            spans = receiver.wait_for_spans(SPANS + len(ROOTS))
            log = sealed(home)
        finally:
            clear_demo(home)
        receipts = [span for span in spans if span.name == RECEIPT]
        yield Seen([s for s in spans if s not in receipts], receipts, receiver.metrics, receiver.logs, log)


pytestmark = pytest.mark.timeout(400)


def test_each_program_leaves_its_root_and_its_steps(seen: Seen) -> None:
    roots = seen.roots()
    assert [root.name for root in roots] == list(ROOTS)
    began = sorted(seen.spans, key=lambda span: span.start_ns)
    assert [steps_under(root.span_id, began) for root in roots] == [*STEPS.values(), ()]
    assert len(seen.spans) == SPANS, "nothing hangs elsewhere"


def test_every_span_lies_in_its_roots_trace_and_time(seen: Seen) -> None:
    roots = {root.trace_id: root for root in seen.roots()}
    for span in seen.spans:
        root = roots[span.trace_id]
        assert root.start_ns <= span.start_ns <= span.end_ns <= root.end_ns
    assert len(roots) == len(ROOTS)


def test_kinds_and_scopes(seen: Seen) -> None:
    kinds = {(span.name, span.kind) for span in seen.spans}
    assert {kind for name, kind in kinds if name in CHATS} == {"client"}
    assert {kind for name, kind in kinds if name not in CHATS} == {"internal"}, "the memory lies on this machine's disk"
    assert {(span.scope, span.scope_version) for span in seen.spans} == {("amfs_otel", version("amfs-otel"))}
    assert {span.resource["service.name"] for span in seen.spans} == {SERVICE}


def test_no_span_breaks_a_rule_of_the_conventions(seen: Seen) -> None:
    findings = check_spans([*seen.spans, *seen.receipts])
    assert failures(findings) == []
    assert {(finding.key, finding.subject) for finding in findings} == {
        # Counted where the model is called; a sum on the parent would be added to its parts.
        *(("gen_ai.usage.input_tokens", root) for root in ROOTS),
        *(("gen_ai.usage.output_tokens", root) for root in ROOTS),
        *(("gen_ai.response.finish_reasons", root) for root in ROOTS),
        # A memory in files has no server.
        ("server.address", "search_memory"),
        ("server.address", "upsert_memory"),
    }


def test_no_metric_breaks_a_rule_of_the_conventions(seen: Seen) -> None:
    findings: list[Finding] = check_metrics(seen.metrics)
    assert failures(findings) == []
    names = {metric.name for metric in seen.metrics}
    client = "gen_ai.client.inference"
    assert {name for name in names if name.startswith("gen_ai.")} == {
        f"{client}.duration",
        f"{client}.time_to_first_chunk",
        f"{client}.time_per_output_chunk",
        f"{client}.operation.input_tokens",
        f"{client}.operation.output_tokens",
        f"{client}.usage.input_tokens",
        f"{client}.usage.output_tokens",
        f"{client}.usage.cache_read.input_tokens",
        f"{client}.usage.cache_write.input_tokens",
        f"{client}.usage.reasoning.output_tokens",
        "gen_ai.client.operation.duration",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
        "gen_ai.invoke_agent.inference_calls",
        "gen_ai.invoke_agent.tool_calls",
    }
    assert "amfs.records.signed" in names
    assert failures(check_logs(seen.logs)) == []


def test_tokens_of_spans_and_metrics_agree(seen: Seen) -> None:
    def counted(kind: str) -> tuple[int, Any]:
        spans = sum(span.attributes.get(f"gen_ai.usage.{kind}", 0) for span in seen.spans)
        points = [m.points for m in seen.metrics if m.name == f"gen_ai.client.inference.usage.{kind}"]
        return spans, sum(value for each in points for _, value in each)

    assert counted("input_tokens") == (1312 + 1404 + 1196 + 1342 + 1431 + 188,) * 2
    assert counted("cache_read.input_tokens") == (1024 + 1280 + 1024 + 1024,) * 2
    assert counted("cache_write.input_tokens") == (1024,) * 2
    assert counted("output_tokens") == (44 + 19 + 88 + 71 + 14 + 210,) * 2


def test_a_call_heard_by_langchain_and_by_anthropic_is_one_span(seen: Seen) -> None:
    calls = [span for span in seen.spans if span.name in CHATS]
    assert len({span.attributes["gen_ai.response.id"] for span in calls}) == len(calls) == 6


def test_tools_carry_the_ids_by_which_the_model_asked_for_them(seen: Seen) -> None:
    tools = {span.name: span.attributes for span in seen.spans if span.name.startswith("execute_tool")}
    assert {name: found["gen_ai.tool.call.id"] for name, found in tools.items()} == {
        "execute_tool known_risks": "toolu_risks",
        "execute_tool sentry_errors": "toolu_sentry",
        "execute_tool note_risk": "toolu_note",
    }


def test_contexts_outcomes_and_changes_are_events_of_the_root(seen: Seen) -> None:
    deploy, review, onboard, late = seen.roots()
    shown = [(event.name, event.attributes) for event in deploy.events]
    assert shown[:3] == [
        ("amfs.context", {"amfs.context.label": "pagerduty-incidents", "amfs.context.source": "PagerDuty API"}),
        ("amfs.context", {"amfs.context.label": "git-log", "amfs.context.source": "git"}),
        ("amfs.outcome", {"amfs.outcome.ref": "DEP-500", "amfs.outcome.type": "success"}),
    ]
    assert shown[3] == (
        "amfs.confidence_change",
        {
            "amfs.entry.entity_path": "checkout-service",
            "amfs.entry.key": "retry-pattern",
            "amfs.confidence.before": 0.92,
            "amfs.confidence.after": pytest.approx(0.937008, abs=1e-6),
            "amfs.confidence.direction": "raised",
        },
    )
    assert [event.name for event in review.events] == ["amfs.context", "amfs.outcome", "amfs.confidence_change"]
    assert review.events[-1].attributes["amfs.confidence.direction"] == "discredited"
    assert onboard.events == ()
    assert [event.name for event in late.events] == ["amfs.outcome", "amfs.confidence_change"]
    assert late.events[-1].attributes["amfs.confidence.after"] == pytest.approx(0.9355, abs=1e-4)


def test_each_record_has_one_receipt_under_its_root(seen: Seen) -> None:
    genesis, *log = seen.log
    assert genesis.kind == "genesis"
    assert [one.kind for one in log] == ["decision", "decision", "decision", "outcome"]
    receipts = sorted(seen.receipts, key=lambda span: span.attributes["amfs.sequence_number"])
    for root, one, receipt in zip(seen.roots(), log, receipts, strict=True):
        assert (receipt.trace_id, receipt.parent_id) == (one.trace, one.span) == (root.trace_id, root.span_id)
        assert receipt.resource["service.name"] == "amfs-otel"
        assert receipt.kind == "internal"
        assert root.attributes["amfs.record.id"] == one.record_id
        assert (
            receipt.attributes.items()
            >= {
                "amfs.record.id": one.record_id,
                "amfs.record.kind": one.kind,
                "amfs.record_hash": one.record_hash,
                "amfs.content_hash": one.content_hash,
                "amfs.parent_hash": one.parent_hash,
                "amfs.sequence_number": one.sequence_number,
                "amfs.signing_key_id": one.signing_key_id,
                "amfs.sealed_at": one.sealed_at,
                "amfs.log": "demo",
            }.items()
        )


def test_no_text_of_the_story_leaves_with_the_telemetry(seen: Seen) -> None:
    said = repr([*seen.spans, *seen.receipts, *seen.metrics, *seen.logs])
    for text in (
        "exponential",
        "charge a card",
        "SEV-1",
        "commits since",
        "Rolled back",
        "Rolling back",
        "guard deploys",
    ):
        assert text not in said, text
    assert [len(list(group)) for _, group in groupby(sorted(span.span_id for span in seen.spans))] == [1] * SPANS
