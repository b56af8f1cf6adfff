"""Whose span stands for a call, with tracers in place of other instrumentors; the real ones: `test_beside_others`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from amfs_otel import capture, guard
from amfs_otel.attach import RequestBoundaries, attach
from amfs_otel.capture import Kind, foreign
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.model import ClosedBy
from tests.instrumentation.recording import Captured
from tests.support.otlp_decode import metrics_from_request

OPENLLMETRY = "opentelemetry.instrumentation.openai"
FIELDS = {"operation": "chat", "provider": "openai", "model": "m"}


@pytest.fixture
def beside(captured_with: Callable[..., Captured]) -> Iterator[Captured]:
    """A capture in a process that has loaded OpenLLMetry's instrumentor of openai."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, OPENLLMETRY, ModuleType(OPENLLMETRY))
        captured = captured_with()
        captured.provider.add_span_processor(RequestBoundaries(captured.provider))
        yield captured
    foreign.watch()


def begun(kind: Kind = Kind.LLM_CALL, source: str = "openai", **more: Any) -> capture.Step:
    step = capture.begin(kind, source, {**FIELDS, **more})
    assert step is not None
    return step


def owner_of(event: dict[str, Any], captured: Captured) -> str:
    """The scope of the span whose ids an event bears."""
    (span,) = [span for span in captured.spans() if f"{span.context.span_id:016x}" == event["span"]]
    return span.instrumentation_scope.name


def test_where_nobody_else_is_loaded_our_span_begins_with_the_call(captured: Captured) -> None:
    assert foreign.watched == set()
    step = begun()
    assert step.beside is None
    assert step.span.is_recording()
    step.end()
    assert foreign.owners() == {}


@pytest.mark.parametrize("attached", [True, False])
def test_a_span_that_begins_before_ours_stands_for_one_call(beside: Captured, attached: bool) -> None:
    theirs = beside.provider.get_tracer(f"{OPENLLMETRY}.v1").start_span("openai.chat")
    for around in (trace.use_span(theirs) if attached else nullcontext(), nullcontext()):
        with around:
            step = begun()
            token = step.attach()
            step.detach(token)
            step.end({"input_tokens": 3})
    theirs.end()
    (found,) = beside.close()
    assert [owner_of(event, beside) for event in found["events"]] == [f"{OPENLLMETRY}.v1", "amfs_otel"]
    (ended,) = [span for span in beside.spans() if span.name == "openai.chat"]
    assert (ended.attributes or {})["amfs.record.id"] == found["record_id"]
    counted = [span for span in beside.spans() if "gen_ai.usage.input_tokens" in (span.attributes or {})]
    assert len(counted) == 1, "the other call has a span of ours"


def test_ours_is_made_where_no_other_comes(beside: Captured) -> None:
    step = begun()
    token = step.attach()
    with beside.provider.get_tracer("http").start_as_current_span("POST"):
        pass
    step.detach(token)
    step.end({"input_tokens": 3})
    (found,) = beside.close()
    assert owner_of(found["events"][0], beside) == "amfs_otel"
    post, chat, root = beside.spans()
    assert (chat.name, chat.attributes and chat.attributes["gen_ai.usage.input_tokens"]) == ("chat m", 3)
    assert post.parent == chat.parent == root.context
    assert chat.start_time is not None
    assert post.start_time is not None
    assert chat.start_time <= post.start_time


@pytest.mark.parametrize("comes", [True, False])
def test_the_end_waits_for_a_span_that_begins_after_the_call(beside: Captured, comes: bool) -> None:
    step = begun(api_type="responses")
    step.end({"input_tokens": 3})
    if comes:
        start = step.event.start_ns - 1
        beside.provider.get_tracer(f"{OPENLLMETRY}.v1").start_span("openai.response", start_time=start).end()
    (found,) = beside.close()
    (event,) = found["events"]
    assert (event["status"], event["input_tokens"]) == ("ok", 3)
    assert owner_of(event, beside) == (f"{OPENLLMETRY}.v1" if comes else "amfs_otel")
    assert foreign.owners() == {"openai": {"responses": {owner_of(event, beside): 1}}}


def test_other_steps_and_other_libraries_have_their_own_spans(beside: Captured) -> None:
    theirs = beside.provider.get_tracer(f"{OPENLLMETRY}.v1").start_span("openai.chat")
    for kind, source in ((Kind.LLM_CALL, "anthropic"), (Kind.TOOL_CALL, "openai")):
        begun(kind, source, tool_name="t").end()
    theirs.end()
    (found,) = beside.close()
    assert [owner_of(event, beside) for event in found["events"]] == ["amfs_otel", "amfs_otel"]


def test_a_span_that_cannot_be_read_costs_no_event(beside: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("ours")

    monkeypatch.setattr(foreign, "standing_for", broken)
    monkeypatch.setattr(foreign, "stand_beside", broken)
    begun().end({"input_tokens": 3})
    (found,) = beside.close()
    assert owner_of(found["events"][0], beside) == "amfs_otel"
    assert guard.counters()["spans"]["errors"] == 2
    assert sorted(span.name for span in beside.spans()) == ["chat m", "invoke_agent test-program"]


def test_a_child_does_not_wait_for_a_lock_of_its_parents(beside: Captured) -> None:
    child = os.fork if hasattr(os, "fork") else None
    assert child is not None
    with foreign._lock:
        pid = child()
        if pid == 0:
            os._exit(0 if foreign._lock.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_call_that_waits_for_a_later_span_ends_before_its_session_does(beside: Captured) -> None:
    session = capture.Session("session", "agent")
    token = capture.explicit_session.set(session)
    begun(api_type="responses").end({"input_tokens": 1})
    capture.explicit_session.reset(token)
    capture.close_session(session, ClosedBy.SESSION_END)
    assert [type(message).__name__ for message in beside.sink.messages][-2:] == ["EventClosed", "WindowClosed"]


@pytest.mark.parametrize(
    ("at_work", "sampler", "ours"), [(True, ALWAYS_OFF, 0), (False, ALWAYS_OFF, 1), (True, ALWAYS_ON, 1)]
)
def test_a_call_whose_span_of_theirs_is_not_recorded_is_counted_by_them_alone(
    beside: Captured, monkeypatch: pytest.MonkeyPatch, at_work: bool, sampler: Sampler, ours: int
) -> None:
    """What is not sampled tells of no span: then what counts is whether their instrumentor is at work."""
    made = SimpleNamespace(_is_instrumented_by_opentelemetry=at_work)
    monkeypatch.setattr(
        sys.modules[OPENLLMETRY],
        "OpenAIInstrumentor",
        type("OpenAIInstrumentor", (), {"_instance": made}),
        raising=False,
    )
    monkeypatch.setattr(
        beside.capture, "tracer", TracerProvider(sampler, shutdown_on_exit=False).get_tracer("amfs_otel")
    )
    reader = InMemoryMetricReader()
    monkeypatch.setattr(beside.capture, "metrics", ClientMetrics(MeterProvider([reader]).get_meter("amfs_otel")))
    begun().end({"input_tokens": 3})
    data = reader.get_metrics_data()
    found = metrics_from_request(encode_metrics(data)) if data is not None else []
    assert [metric.name for metric in found].count("gen_ai.client.inference.duration") == ours


class Proxy(TracerProvider):
    """A provider of another vendor: not hashable."""

    __hash__ = None  # type: ignore[assignment]


def test_a_provider_that_cannot_be_hashed_is_attached_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs_otel.attach._wrapped", True)  # else every provider of later tests is attached to
    provider = Proxy(shutdown_on_exit=False)
    for _ in range(2):
        attach(provider)
    processors = provider._active_span_processor._span_processors
    assert [type(one) for one in processors].count(RequestBoundaries) == 1
