"""The AMFS patch on the real SDK with its filesystem adapter: what each call becomes, and where."""

# amfs ships without a type marker:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import gc
import importlib
import json
import logging
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

import amfs_core.engine as engine
import pytest
from amfs import AgentMemory, MemoryType, OutcomeType, RecallConfig
from amfs.run import Run
from amfs_filesystem import FilesystemAdapter
from opentelemetry.trace import SpanKind

from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture.ambient import explicit_session
from amfs_otel.capture.sessions import Session
from amfs_otel.model import ClosedBy, EventClosed, Kind
from amfs_otel.settings import LedgerContent
from tests.instrumentation.contract import Call, Contract
from tests.instrumentation.recording import Captured, kinds
from tests.support.environments import python_of
from tests.support.oracle import check_spans, failures
from tests.support.otlp_decode import span_from_readable

SERVICE = "checkout-service"
Handle = Callable[[str], AgentMemory]


@pytest.fixture
def handle(captured: Captured, tmp_path: Path) -> Handle:
    """Makes handles on one filesystem store, instrumented."""
    instrumentor.instrument(["amfs"])
    return lambda agent_id: AgentMemory(agent_id, adapter=FilesystemAdapter(tmp_path / "memory", "default"))


def said(trace: dict[str, Any], kind: Kind) -> list[dict[str, Any]]:
    return [event for event in trace["events"] if event["kind"] == kind]


def model_call(text: str = "hello") -> None:
    """What a patched model client reports."""
    fields = {"operation": "chat", "provider": "openai", "model": "m", "input_messages": text}
    step = capture.begin(Kind.LLM_CALL, "openai", fields)
    assert step is not None
    step.end({"input_tokens": 1, "output_tokens": 1})


def seeded(handle: Handle) -> None:
    """What another agent left behind, outside of any trace that a test looks at."""
    writer = handle("platform-agent")
    writer.write(SERVICE, "retry-pattern", {"max_retries": 3}, confidence=0.92)
    writer.write(SERVICE, "risk-race", "charges twice", confidence=0.78)
    writer.close()


def traces_of(captured: Captured, agent: str) -> list[dict[str, Any]]:
    return [trace for trace in captured.close() if trace["agent"] == agent]


class TestReads:
    def test_a_read_says_what_the_agent_saw(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("deploy-agent")
        entry = mem.read(SERVICE, "retry-pattern")
        assert entry is not None
        assert entry.value == {"max_retries": 3}
        (trace,) = traces_of(captured, "deploy-agent")
        assert (trace["agent"], trace["session_id"], trace["opened_by"]) == ("deploy-agent", mem.session_id, "amfs")
        (read,) = trace["events"]
        expected = {
            "kind": "memory_read", "operation": "read", "entity_path": SERVICE, "key": "retry-pattern",
            "branch": "main", "namespace": "default", "found": True, "version": 1, "confidence": 0.92,
            "memory_type": "fact", "evidence_status": "untested", "written_by": "platform-agent",
            "value": {"max_retries": 3}, "status": "ok", "source": "amfs",
        }  # fmt: skip
        assert expected.items() <= read.items()
        assert read["end_us"] >= read["start_us"] > 0

    def test_a_missing_key_is_a_read_that_found_nothing(self, captured: Captured, handle: Handle) -> None:
        assert handle("a").read(SERVICE, "absent") is None
        (read,) = traces_of(captured, "a")[0]["events"]
        assert read["found"] is False
        assert "value" not in read

    def test_a_denied_private_read_never_shows_the_value(self, captured: Captured, handle: Handle) -> None:
        owner, reader = handle("owner"), handle("reader")
        owner.write(SERVICE, "secret", "CANARY-private", shared=False)
        assert reader.read(SERVICE, "secret") is None
        # Upstream itself would show it:
        assert "CANARY-private" in str(reader.explain())
        reader.commit_outcome("INC-1", OutcomeType.FAILURE)
        (trace,) = traces_of(captured, "reader")
        assert "CANARY-private" not in str(trace)
        assert said(trace, Kind.MEMORY_READ)[0]["found"] is False
        (change,) = said(trace, Kind.CONFIDENCE_CHANGE)
        assert "before" not in change
        assert "raced" not in change

    def test_recall_is_a_read(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.write("p", "k", 1)
        handle("b").write("p", "k", 2)
        assert mem.recall("p", "k").version == 1  # type: ignore[union-attr]
        read = said(traces_of(captured, "a")[0], Kind.MEMORY_READ)[0]
        assert (read["operation"], read["version"], read["written_by"]) == ("recall", 1, "a")

    def test_read_from_is_one_read_and_one_interaction(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        handle("deploy-agent").read_from("platform-agent", SERVICE, "risk-race")
        handle("other-agent").read_from("platform-agent", SERVICE, "absent")
        (trace,) = traces_of(captured, "deploy-agent")
        assert kinds(trace) == ["memory_read", "agent_interaction"]
        read, met = trace["events"]
        assert (read["operation"], read["other_agent_id"], read["value"]) == (
            "read_from", "platform-agent", "charges twice",
        )  # fmt: skip
        assert met["parent"] == read["id"]
        expected = {
            "direction": "read_from", "this_agent_id": "deploy-agent", "other_agent_id": "platform-agent",
            "entity_path": SERVICE, "key": "risk-race", "version": 1,
        }  # fmt: skip
        assert expected.items() <= met.items()
        assert kinds(traces_of(captured, "other-agent")[0]) == ["memory_read"]

    @pytest.mark.parametrize("path", ["_langgraph_checkpoints", "_langchain_chat", "_autogen_memory", "crewai"])
    def test_infrastructure_paths_are_flagged(self, captured: Captured, handle: Handle, path: str) -> None:
        mem = handle("a")
        mem.read(path, "k")
        mem.read(f"{path}/thread-1", "k")
        mem.read(f"{path}-is-great", "k")
        flags = [event.get("infrastructure") for event in traces_of(captured, "a")[0]["events"]]
        assert flags == [True, True, None]

    def test_a_later_change_of_the_value_does_not_change_the_record(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        value = {"steps": [1]}
        mem.write("p", "k", value)
        value["steps"].append(2)
        assert said(traces_of(captured, "a")[0], Kind.MEMORY_WRITE)[0]["value"] == {"steps": [1]}


class TestQueries:
    def test_parameters_and_results(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        mem.search(query="retry", entity_path=SERVICE, min_confidence=0.8, sort_by="confidence", limit=5)
        (query,) = traces_of(captured, "a")[0]["events"]
        assert query["operation"] == "search"
        assert query["parameters"] == {
            "query": "retry", "entity_path": SERVICE, "min_confidence": 0.8, "limit": 5,
            "other_parameters": {"sort_by": "confidence"},
        }  # fmt: skip
        assert query["result_count"] == 1
        assert query["results"] == [{"entity_path": SERVICE, "key": "retry-pattern", "version": 1, "confidence": 0.92}]

    def test_each_query_is_one_event_under_its_own_name(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        mem.list(SERVICE)
        mem.my_entries()
        mem.info(SERVICE)
        mem.tree()
        mem.list_scopes()
        mem.cross_agent_reads()
        mem.agents_i_read_from()
        mem.briefing(SERVICE)
        mem.search(recall_config=RecallConfig())
        events = traces_of(captured, "a")[0]["events"]
        assert [(event["kind"], event["operation"], event.get("result_count")) for event in events] == [
            ("memory_query", "list", 2), ("memory_query", "my_entries", 0), ("memory_query", "info", 2),
            ("memory_query", "tree", None), ("memory_query", "list_scopes", 1), ("memory_query", "cross_agent_reads", 0),
            ("memory_query", "agents_i_read_from", 0), ("memory_query", "briefing", 0), ("memory_query", "search", 2),
        ]  # fmt: skip
        assert set(events[-1]["results"][0]) == {"entity_path", "key", "version", "confidence", "score"}

    def test_retrieve_is_a_query_and_a_read_of_its_first_hit(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        hits = mem.retrieve("retry")
        query, read = traces_of(captured, "a")[0]["events"]
        assert (query["kind"], query["operation"]) == ("memory_query", "retrieve")
        assert (read["kind"], read["operation"], read["parent"]) == ("memory_read", "retrieve", query["id"])
        assert f"{read['entity_path']}/{read['key']}" == hits[0].entry.entry_key
        assert read["value"] == hits[0].entry.value

    def test_a_briefing_that_credits_reuse_reads_what_it_shows(self, captured: Captured, handle: Handle) -> None:
        class Digest:
            summary: ClassVar[dict[str, Any]] = {
                "hot_context": [
                    {"entity_path": "p", "key": "k", "version": 2, "value": [1], "confidence": 0.5, "agent": "w"},
                    {"entity_path": "p", "key": "k", "version": 2, "value": [1], "confidence": 0.5, "agent": "w"},
                ]
            }

        mem = handle("a")
        mem.adapter.briefing = lambda **_: [Digest()]  # type: ignore[attr-defined]
        mem.briefing("p")
        mem.briefing("p", credit_reuse=True)
        events = traces_of(captured, "a")[0]["events"]
        assert [event["kind"] for event in events] == ["memory_query", "memory_query", "memory_read"]
        expected = {"operation": "briefing", "key": "k", "version": 2, "value": [1], "written_by": "w"}
        assert expected.items() <= events[2].items()

    def test_read_only_calls_are_no_events(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.history("p", "k")
        mem.graph_neighbors("p")
        mem.timeline()
        mem.list_traces()
        mem.stats()
        mem.verify()
        mem.explain()
        mem.checkout("side")
        mem.set_session_attributes({"customer": "acme"})
        mem.clear_read_log()
        mem.close()
        assert captured.close() == []


class TestWrites:
    def test_a_write_and_what_it_replaced(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        mem.read(SERVICE, "risk-race")
        mem.write(
            SERVICE, "risk-race", "fixed", confidence=0.5, memory_type=MemoryType.BELIEF,
            pattern_refs=[f"{SERVICE}/retry-pattern"], shared=False,
        )  # fmt: skip
        mem.write(SERVICE, "retry-pattern", "unread before")
        mem.write(SERVICE, "new", 1)
        first, second, third = said(traces_of(captured, "a")[0], Kind.MEMORY_WRITE)
        expected = {
            "operation": "write", "version": 2, "previous_version": 1, "created": False, "confidence": 0.5,
            "memory_type": "belief", "shared": False, "pattern_refs": [f"{SERVICE}/retry-pattern"],
            "value": "fixed", "previous_value": "charges twice",
        }  # fmt: skip
        assert expected.items() <= first.items()
        assert second["previous_version"] == 1
        assert "previous_value" not in second
        assert third["created"] is True
        assert "previous_version" not in third

    def test_a_transaction_is_a_commit_and_its_writes(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        with mem.transaction("two at once") as tx:
            tx.write("p", "k1", 1, pattern_refs=["p/x"])
            tx.write("p", "k2", {"n": 2}, confidence=0.4)
        with mem.transaction("nothing in it"):
            pass
        tx = mem.transaction("never")
        tx.write("p", "k3", 3)
        tx.__exit__(RuntimeError, RuntimeError("rolled back"), None)
        (trace,) = traces_of(captured, "a")
        assert kinds(trace) == ["commit", "memory_write", "memory_write"]
        commit, first, second = trace["events"]
        assert (commit["entry_count"], commit["summary"]) == (2, "two at once")
        assert first["commit_id"] == second["commit_id"] == commit["commit_id"]
        assert (first["parent"], first["value"], first["pattern_refs"]) == (commit["id"], 1, ["p/x"])
        assert (second["value"], second["confidence"], second["created"]) == ({"n": 2}, 0.4, True)

    def test_a_failed_write_passes_through_and_says_what_it_was_about(
        self, captured: Captured, handle: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mem = handle("a")
        error = OSError("disk full")

        def full(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(FilesystemAdapter, "write", full)
        with pytest.raises(OSError, match="disk full") as raised:
            mem.write("p", "k", "lost")
        assert raised.value is error
        (write,) = traces_of(captured, "a")[0]["events"]
        assert (write["status"], write["error_type"], write["error_message"]) == ("error", "OSError", "disk full")
        assert (write["value"], write["key"]) == ("lost", "k")


class TestReports:
    def test_context_action_model_call_attempt(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.record_context("pagerduty-incidents", "3 SEV-1", source="PagerDuty API")
        mem.record_action("rollback", {"to": "v41"}, result="done", duration_ms=1500, success=False)
        mem.record_llm_call("gpt", 10, 5, provider="openai", latency_ms=400.0, cost_usd=0.01)
        mem.record_attempt(outcome_type=OutcomeType.FAILURE, summary="did not work")
        context, action, model, attempt = traces_of(captured, "a")[0]["events"]
        expected = {"label": "pagerduty-incidents", "summary": "3 SEV-1", "source_name": "PagerDuty API"}
        assert expected.items() <= context.items()
        assert context["automatic"] is False
        assert abs(context["recorded_us"] - context["start_us"]) < 1_000_000
        expected = {"tool_name": "rollback", "arguments": {"to": "v41"}, "result": "done", "success": False}
        assert expected.items() <= action.items()
        assert action["observed"] == "reported"
        assert 1_500_000 <= action["end_us"] - action["start_us"] < 2_500_000
        expected = {"model": "gpt", "input_tokens": 10, "output_tokens": 5, "reported_cost_usd": 0.01}
        assert expected.items() <= model.items()
        assert model["observed"] == "reported"
        assert 400_000 <= model["end_us"] - model["start_us"] < 1_400_000
        expected = {"attempt_number": 1, "outcome_type": "failure", "lesson": "did not work", "action_indices": [0]}
        assert expected.items() <= attempt.items()

    def test_a_refused_call_is_an_error_event(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        with pytest.raises(ValueError, match="success"):
            mem.record_attempt(outcome_type=OutcomeType.SUCCESS)
        with pytest.raises(TypeError):
            mem.record_context("only a label")  # type: ignore[call-arg]
        with pytest.raises(AttributeError):
            mem.commit_outcome("REF", "success")  # type: ignore[arg-type]
        with pytest.raises(NotImplementedError):
            mem.room_join("room")
        (trace,) = traces_of(captured, "a")
        assert [(event["kind"], event["operation"], event["status"]) for event in trace["events"]] == [
            ("error", name, "error") for name in ("record_attempt", "record_context", "commit_outcome", "room_join")
        ]
        assert trace["events"][2]["error_type"] == "AttributeError"

    def test_texts_follow_the_policy(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.record_context("label", "CANARY-summary")
        mem.record_action("tool", {"x": "CANARY-argument"}, result="CANARY-result")
        mem.write("p", "k", "CANARY-value")
        mem.search(query="CANARY-query")
        captured.capture.windows.close_all(ClosedBy.EXIT)
        kept = str(captured.traces(LedgerContent.DECISION))
        assert "CANARY-summary" in kept
        assert "CANARY-value" in kept
        assert "CANARY-query" in kept
        assert "CANARY-argument" not in kept
        assert "CANARY-result" not in kept
        assert "CANARY" not in str(captured.traces(LedgerContent.NONE))
        on_spans = [(span.name, dict(span.attributes or {}), span.events) for span in captured.spans()]
        assert "CANARY" not in str(on_spans)


class TestOutcomes:
    def test_the_commit_closes_the_window_with_what_it_changed(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("deploy-agent")
        mem.read(SERVICE, "retry-pattern")
        mem.read(SERVICE, "risk-race")
        mem.set_session_attributes({"customer": "acme"})
        updated = mem.commit_outcome(
            "DEP-500", OutcomeType.SUCCESS, decision_summary="Rolled back", verified_by="ci", attributes={"team": "x"}
        )
        (trace,) = traces_of(captured, "deploy-agent")
        assert (trace["closed_by"], trace["record_kind"]) == ("commit", "decision")
        assert kinds(trace) == ["memory_read", "memory_read", "outcome", "confidence_change", "confidence_change"]
        outcome, first, second = trace["events"][2:]
        expected = {
            "outcome_ref": "DEP-500", "outcome_type": "success", "decision_summary": "Rolled back",
            "source_name": "ci", "attributes": {"customer": "acme", "team": "x"},
            "causal_keys": [
                {"entity_path": SERVICE, "key": "retry-pattern", "version": 1},
                {"entity_path": SERVICE, "key": "risk-race", "version": 1},
            ],
        }  # fmt: skip
        assert expected.items() <= outcome.items()
        by_key = {entry.key: entry.confidence for entry in updated}
        for change, before in ((first, 0.92), (second, 0.78)):
            assert change["parent"] == outcome["id"]
            assert (change["before"], change["after"]) == (before, by_key[change["key"]])
            assert (change["version_before"], change["version_after"], change["raced"]) == (1, 2, False)
            assert change["direction"] == "raised"

    def test_an_incident_lowers_and_discredits(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("review-agent")
        mem.read(SERVICE, "retry-pattern")
        mem.commit_outcome("INC-1042", OutcomeType.CRITICAL_FAILURE)
        (change,) = said(traces_of(captured, "review-agent")[0], Kind.CONFIDENCE_CHANGE)
        assert change["direction"] == "discredited"
        assert change["after"] < 0.3

    def test_an_empty_ref_is_recorded_as_the_library_took_it(self, captured: Captured, handle: Handle) -> None:
        mem = handle("hasty")
        mem.read(SERVICE, "retry-pattern")
        mem.commit_outcome("", OutcomeType.SUCCESS)
        (trace,) = traces_of(captured, "hasty")
        assert trace["closed_by"] == "commit"
        assert [event["outcome_ref"] for event in said(trace, Kind.OUTCOME)] == [""]

    def test_a_raced_change_says_so(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        slow, fast = handle("slow"), handle("fast")
        slow.read(SERVICE, "retry-pattern")
        fast.read(SERVICE, "retry-pattern")
        fast.commit_outcome("F", OutcomeType.SUCCESS)
        slow.commit_outcome("S", OutcomeType.SUCCESS)
        (change,) = said(traces_of(captured, "slow")[0], Kind.CONFIDENCE_CHANGE)
        assert (change["version_before"], change["version_after"], change["raced"]) == (1, 3, True)

    def test_the_lesson_of_a_failed_attempt_is_a_synthetic_write(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        mem.read(SERVICE, "retry-pattern")
        mem.record_attempt(summary="no")
        mem.read(SERVICE, "risk-race")
        mem.commit_outcome("DEP-1", OutcomeType.SUCCESS)
        (trace,) = traces_of(captured, "a")
        (lesson,) = said(trace, Kind.MEMORY_WRITE)
        assert lesson["synthetic"] is True
        assert lesson["key"].startswith("lesson-contrast")
        (outcome,) = said(trace, Kind.OUTCOME)
        assert [key["key"] for key in outcome["causal_keys"]] == ["risk-race"]
        (attempt,) = said(trace, Kind.ATTEMPT)
        assert attempt["causal_keys"] == [{"entity_path": SERVICE, "key": "retry-pattern", "version": 1}]

    def test_calls_reported_with_the_commit_are_in_its_trace(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.commit_outcome(
            "R", OutcomeType.SUCCESS, tool_calls=[{"tool_name": "deploy", "arguments": {"v": 1}}],
            llm_calls=[{"model": "gpt", "input_tokens": 3, "output_tokens": 4}],
        )  # fmt: skip
        (trace,) = traces_of(captured, "a")
        assert kinds(trace) == ["tool_call", "llm_call", "outcome"]

    def test_on_an_empty_window_it_is_an_outcome_record(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        late = handle("late")
        late.commit_outcome("DEP-500", OutcomeType.FAILURE, causal_entry_keys=[f"{SERVICE}/retry-pattern"])
        (trace,) = traces_of(captured, "late")
        assert (trace["record_kind"], trace["refs"]) == ("outcome", ())
        assert kinds(trace) == ["outcome", "confidence_change"]
        assert trace["events"][0]["causal_keys"] == [{"entity_path": SERVICE, "key": "retry-pattern"}]

    def test_after_idle_close_it_names_the_decision(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        mem.read(SERVICE, "retry-pattern")
        captured.capture.windows.close_idle(0.0, 0.0)
        mem.commit_outcome("DEP-500", OutcomeType.SUCCESS)
        decision, outcome = traces_of(captured, "a")
        assert (decision["closed_by"], outcome["record_kind"]) == ("idle", "outcome")
        assert outcome["refs"] == (("outcome_of", decision["record_id"]),)
        (change,) = said(outcome, Kind.CONFIDENCE_CHANGE)
        assert (change["before"], change["version_before"], change["direction"]) == (0.92, 1, "raised")

    def test_twice_with_one_ref_makes_two_decisions(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        for _ in range(2):
            mem.read(SERVICE, "retry-pattern")
            mem.commit_outcome("DEP-500", OutcomeType.SUCCESS)
        mem.commit_outcome("DEP-500", OutcomeType.SUCCESS)
        first, second, third = traces_of(captured, "a")
        assert [trace["record_kind"] for trace in (first, second, third)] == ["decision", "decision", "outcome"]
        # A commit closed the last one, so the third judges nothing of this session by itself.
        assert third["refs"] == ()


class TestSessions:
    def test_two_handles_interleaved_in_one_thread(self, captured: Captured, handle: Handle) -> None:
        one, two = handle("one"), handle("two")
        one.read("p", "k")
        model_call("for one")
        two.read("p", "k")
        model_call("for two")
        one.read("p", "k2")
        model_call("for one again")
        one.close()
        two.commit_outcome("T", OutcomeType.SUCCESS)
        traces = {trace["agent"]: trace for trace in captured.close()}
        assert set(traces) == {"one", "two"}
        assert kinds(traces["one"]) == ["memory_read", "llm_call", "memory_read", "llm_call"]
        assert kinds(traces["two"]) == ["memory_read", "llm_call", "outcome"]
        assert said(traces["two"], Kind.LLM_CALL)[0]["input_messages"] == "for two"

    def test_a_model_call_before_the_first_read_moves_into_the_window(self, captured: Captured, handle: Handle) -> None:
        model_call()
        handle("a").read("p", "k")
        (trace,) = captured.close()
        assert (trace["agent"], kinds(trace)) == ("a", ["llm_call", "memory_read"])

    def test_a_model_call_in_an_executor_joins_the_decision(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.read("p", "k")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model_call).result()
        mem.commit_outcome("R", OutcomeType.SUCCESS)
        (trace,) = captured.close()
        assert kinds(trace) == ["memory_read", "llm_call", "outcome"]
        assert said(trace, Kind.LLM_CALL)[0]["flags"] == "joined"

    async def test_two_tasks_with_a_handle_each_never_mix(self, captured: Captured, handle: Handle) -> None:
        async def request(name: str) -> None:
            mem = handle(name)
            for number in range(3):
                mem.read("p", f"{name}-{number}")
                await asyncio.sleep(0)
                model_call(name)
                await asyncio.to_thread(model_call, f"{name} in a thread")
            mem.commit_outcome(name, OutcomeType.SUCCESS)

        await asyncio.gather(request("one"), request("two"))
        traces = {trace["agent"]: trace for trace in captured.close()}
        assert set(traces) == {"one", "two"}
        for name, trace in traces.items():
            assert kinds(trace) == ["memory_read", "llm_call", "llm_call"] * 3 + ["outcome"]
            assert {call["input_messages"].partition(" ")[0] for call in said(trace, Kind.LLM_CALL)} == {name}

    def test_a_handle_outlives_a_capture(
        self, captured_with: Callable[..., Captured], captured: Captured, handle: Handle
    ) -> None:
        """As after a fork: the child has a capture of its own, and none of its parent's windows."""
        mem = handle("a")
        mem.read("p", "before")
        second = captured_with()
        mem.read("p", "after")
        mem.close()
        assert [[event["key"] for event in trace["events"]] for trace in second.close()] == [["after"]]
        (trace,) = captured.close()
        assert (trace["closed_by"], [event["key"] for event in trace["events"]]) == ("exit", ["before"])

    def test_six_threads_on_one_handle_are_one_session(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        start = threading.Barrier(6)

        def work(number: int) -> None:
            start.wait()
            mem.write("p", f"k{number}", number)
            mem.read("p", f"k{number}")
            model_call(str(number))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        mem.commit_outcome("R", OutcomeType.SUCCESS)
        (trace,) = captured.close()
        assert sorted(kinds(trace)) == sorted(
            ["memory_write", "memory_read", "llm_call"] * 6 + ["outcome"] + ["confidence_change"] * 6
        )
        assert len({event["id"] for event in trace["events"]}) == 25

    def test_as_agent_is_a_session_of_its_own(self, captured: Captured, handle: Handle) -> None:
        mem = handle("server")
        mem.read("p", "k")
        other = mem.as_agent("caller")
        other.read("p", "k")
        assert other.session_id == mem.session_id
        traces = captured.close()
        assert [(trace["agent"], len(trace["events"])) for trace in traces] == [("server", 1), ("caller", 1)]

    def test_a_tracker_scope_is_a_session_of_its_own(self, captured: Captured, handle: Handle) -> None:
        mem = handle("server")
        mem.read("p", "outside")
        for number in range(2):
            with engine.read_tracker_scope():
                mem.read("p", f"inside-{number}")
        gc.collect()
        mem.read("p", "outside again")
        traces = captured.close()
        keys = [[event["key"] for event in trace["events"]] for trace in traces]
        assert sorted(keys) == [["inside-0"], ["inside-1"], ["outside", "outside again"]]
        assert [trace["closed_by"] for trace in traces] == ["collected", "collected", "exit"]

    def test_close_and_with_close_the_window(self, captured: Captured, handle: Handle) -> None:
        with handle("a") as mem:
            mem.read("p", "k")
        handle("b").close()
        (trace,) = captured.traces()
        assert (trace["agent"], trace["closed_by"], trace["status"]) == ("a", "handle_closed", "complete")

    def test_a_handle_that_goes_away_closes_its_window(self, captured: Captured, handle: Handle) -> None:
        mem = handle("gone")
        mem.read("p", "k")
        del mem
        gc.collect()
        captured.capture.windows.close_idle(60.0, 60.0)
        (trace,) = captured.traces()
        assert (trace["agent"], trace["closed_by"]) == ("gone", "collected")

    def test_a_new_handle_never_inherits_a_dead_ones_session(self, captured: Captured, handle: Handle) -> None:
        for number in range(30):
            handle(f"agent-{number}").read("p", "k")
        gc.collect()
        traces = captured.close()
        assert sorted(trace["agent"] for trace in traces) == sorted(f"agent-{number}" for number in range(30))
        assert all(len(trace["events"]) == 1 for trace in traces)

    def test_clearing_the_read_log_keeps_the_window(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        mem.read(SERVICE, "retry-pattern")
        mem.clear_read_log()
        mem.read(SERVICE, "risk-race")
        mem.commit_outcome("R", OutcomeType.SUCCESS)
        (trace,) = traces_of(captured, "a")
        assert kinds(trace) == ["memory_read", "window_discarded", "memory_read", "outcome", "confidence_change"]
        assert said(trace, Kind.WINDOW_DISCARDED)[0]["discarded"] == 1

    def test_an_explicit_session_takes_the_events_of_every_handle(self, captured: Captured, handle: Handle) -> None:
        session = Session("session", "planner")
        token = explicit_session.set(session)
        handle("helper").read("p", "k")
        explicit_session.reset(token)
        capture.close_session(session, ClosedBy.SESSION_END)
        (trace,) = captured.traces()
        assert (trace["agent"], trace["events"][0]["agent"]) == ("planner", "helper")

    def test_the_sdks_own_thread_makes_no_events(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        with ThreadPoolExecutor(1, thread_name_prefix="amfs-sdk-bg") as pool:
            pool.submit(mem.read, "p", "k").result()
        assert captured.close() == []


class TestRun:
    def test_a_run_is_seen_through_the_calls_it_makes(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        run = Run(mem)
        run.begin("fix the retries", entity_path=SERVICE, situation="deploy")
        run.on_tool_result("deploy", {"v": 1}, "done")
        run.complete(OutcomeType.SUCCESS, outcome_ref="R")
        (trace,) = traces_of(captured, "a")
        events = [(event["kind"], event.get("operation")) for event in trace["events"]]
        assert events[:3] == [("memory_query", "briefing"), ("memory_query", "retrieve"), ("memory_read", "retrieve")]
        assert [kind for kind, _ in events[3:]] == ["tool_call", "outcome", "confidence_change"]
        assert said(trace, Kind.OUTCOME)[0]["attributes"]["situation"] == "deploy"


class TestExplain:
    def test_after_a_commit_one_warning_points_to_ours(
        self, captured: Captured, handle: Handle, caplog: pytest.LogCaptureFixture
    ) -> None:
        mem = handle("a")
        mem.record_context("x", "y")
        with caplog.at_level(logging.WARNING, "amfs_otel"):
            assert mem.explain("R")["external_contexts"]
            mem.commit_outcome("R", OutcomeType.SUCCESS)
            assert not caplog.records
            for _ in range(2):
                assert mem.explain("R")["causal_chain_length"] == 0
        assert [record.message.count("amfs_otel.explain(ref)") for record in caplog.records] == [1]

    def test_ours_answers_where_the_settings_say_so(
        self, captured_with: Callable[..., Captured], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        captured_with(answer_explain=True)
        instrumentor.instrument(["amfs"])
        known: dict[str, Any] = {
            "outcome_ref": "R",
            "causal_chain_length": 1,
            "causal_entries": [{}],
            "external_contexts": [],
        }
        capture.set_explainer(lambda ref: known if ref == "R" else None)
        mem = AgentMemory("a", adapter=FilesystemAdapter(tmp_path, "default"))
        mem.read("p", "k")
        mem.commit_outcome("R", OutcomeType.SUCCESS)
        assert mem.explain("R") is known
        assert mem.explain("unknown")["causal_chain_length"] == 0
        assert mem.explain()["outcome_ref"] is None

        def broken(_: str) -> None:
            raise OSError

        capture.set_explainer(broken)
        assert mem.explain("R")["causal_chain_length"] == 0


class TestSpans:
    def test_they_follow_the_profile(self, captured: Captured, handle: Handle) -> None:
        seeded(handle)
        mem = handle("a")
        mem.read(SERVICE, "retry-pattern")
        mem.retrieve("retry")
        with mem.transaction() as tx:
            tx.write("p", "k", 1)
        mem.record_context("label", "summary", source="git")
        mem.commit_outcome("R", OutcomeType.SUCCESS)
        spans = [span_from_readable(span) for span in captured.spans()]
        assert failures(check_spans(spans)) == []
        mine = [span for span in spans if span.attributes.get("amfs.operation") in ("read", "retrieve", "transaction")]
        assert [span.name for span in mine] == ["search_memory", "search_memory", "upsert_memory"]
        root = next(span for span in spans if span.name == "invoke_agent a")
        assert {span.parent_id for span in mine} == {root.span_id}
        assert {"amfs.context", "amfs.outcome", "amfs.confidence_change"} <= {event.name for event in root.events}

    def test_a_store_elsewhere_makes_client_spans(self, captured: Captured, tmp_path: Path) -> None:
        instrumentor.instrument(["amfs"])
        remote = type("RemoteAdapter", (FilesystemAdapter,), {"__module__": "amfs_postgres.adapter"})
        AgentMemory("a", adapter=remote(tmp_path, "default")).read("p", "k")
        (span,) = captured.spans()
        assert span.kind is SpanKind.CLIENT


class Hostile:
    """A value that hurts whoever looks at it."""

    touched: ClassVar[list[str]] = []

    def _hurt(self, name: str) -> Any:
        self.touched.append(name)
        raise RuntimeError(name)

    def __repr__(self) -> str:
        return self._hurt("repr")

    def __str__(self) -> str:
        return self._hurt("str")

    def __eq__(self, other: object) -> bool:
        return self._hurt("eq")

    def __bool__(self) -> bool:
        return self._hurt("bool")

    def __hash__(self) -> int:
        return self._hurt("hash")

    def __format__(self, spec: str) -> str:
        return self._hurt("format")

    def __iter__(self) -> Any:
        return self._hurt("iter")

    def __len__(self) -> int:
        return self._hurt("len")


def cyclic() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


HOSTILE_VALUES: list[Any] = [
    "nul \0 inside", "lone \ud800 surrogate", float("nan"), float("inf"), 2**63, 10**400, cyclic(),
    Hostile(), {"k": Hostile()}, [Hostile()], (i for i in range(3)), b"\xff", {1: 2}, {("a", "b"): 1}, object(),
]  # fmt: skip

PLACES: dict[str, Callable[[AgentMemory, Any], Any]] = {
    "read path": lambda mem, v: mem.read(v, "k"),
    "read key": lambda mem, v: mem.read("p", v),
    "read confidence": lambda mem, v: mem.read("p", "k", min_confidence=v),
    "read branch": lambda mem, v: mem.read("p", "k", branch=v),
    "read_from agent": lambda mem, v: mem.read_from(v, "p", "k"),
    "search query": lambda mem, v: mem.search(query=v),
    "search limit": lambda mem, v: mem.search(limit=v),
    "search paths": lambda mem, v: mem.search(entity_paths=[v]),
    "search since": lambda mem, v: mem.search(since=v),
    "retrieve query": lambda mem, v: mem.retrieve(v),
    "list path": lambda mem, v: mem.list(v),
    "write value": lambda mem, v: mem.write("p", "k", v),
    "write value inside": lambda mem, v: mem.write("p", "k", {"deep": [v]}),
    "write path": lambda mem, v: mem.write(v, "k", 1),
    "write refs": lambda mem, v: mem.write("p", "k", 1, pattern_refs=[v]),
    "write confidence": lambda mem, v: mem.write("p", "k", 1, confidence=v),
    "context label": lambda mem, v: mem.record_context(v, "summary"),
    "context summary": lambda mem, v: mem.record_context("label", v, source=v),
    "action": lambda mem, v: mem.record_action(v, v, source=v, duration_ms=v, success=v, action_key=v),
    "action result": lambda mem, v: mem.record_action("tool", {"k": v}, result=v),
    "model call": lambda mem, v: mem.record_llm_call("m", 1, 1, provider=v, call_id=v, latency_ms=v),
    "attempt": lambda mem, v: mem.record_attempt(summary=v, causal_entry_keys=["p/k"]),
    "outcome ref": lambda mem, v: mem.commit_outcome(v, OutcomeType.SUCCESS),
    "outcome type": lambda mem, v: mem.commit_outcome("R", v),
    "outcome keys": lambda mem, v: mem.commit_outcome("R", OutcomeType.SUCCESS, [v]),
    "outcome texts": lambda mem, v: mem.commit_outcome("R", OutcomeType.SUCCESS, decision_summary=v),
    "outcome attributes": lambda mem, v: mem.commit_outcome("R", OutcomeType.SUCCESS, attributes=v, evidence=v),
    "explain": lambda mem, v: mem.explain(v),
    "unknown keyword": lambda mem, v: AgentMemory.__dict__["search"].__get__(mem)(CANARY=v),
}


def shape(call: Callable[[], Any]) -> tuple[str, ...]:
    """Type of what a call gave or raised, and what it did to the value; the text of an error may be asked for."""
    Hostile.touched.clear()
    try:
        return "returned", type(call()).__name__, *Hostile.touched
    except Exception as error:
        return "raised", type(error).__name__


def test_eight_megabytes_in_every_place(captured: Captured, tmp_path: Path) -> None:
    """Large texts are shared, not copied, on the agent's thread."""
    text = "x" * (8 << 20)
    answers: list[list[Any]] = []
    for instrumented in (False, True):
        if instrumented:
            instrumentor.instrument(["amfs"])
        mem = AgentMemory("a", adapter=FilesystemAdapter(tmp_path / str(instrumented), "default"))
        answers.append([shape(partial(call, mem, text)) for call in PLACES.values()])
    assert answers[1] == answers[0]
    assert guard.counters() == {}
    held = [message.event for message in captured.sink.messages if isinstance(message, EventClosed)]
    (written,) = [e for e in held if e.kind is Kind.MEMORY_WRITE and e.fields.get("value") is text]
    assert written.result is not None
    assert all(len(str(value)) < 5000 for span in captured.spans() for value in (span.attributes or {}).values())


@pytest.mark.parametrize("place", PLACES)
def test_hostile_values_change_nothing_for_the_agent(place: str, captured: Captured, tmp_path: Path) -> None:
    """Each value in each place: the same result or error as without us, the same touches, nothing swallowed."""
    call = PLACES[place]
    answers: list[list[Any]] = []
    for instrumented in (False, True):
        if instrumented:
            instrumentor.instrument(["amfs"])
        answers.append([])
        for number, value in enumerate(HOSTILE_VALUES):
            mem = AgentMemory("a", adapter=FilesystemAdapter(tmp_path / f"{instrumented}{number}", "default"))
            answers[-1].append((number, *shape(partial(call, mem, value))))
    assert answers[1] == answers[0]
    assert guard.counters() == {}
    traces = captured.close()
    assert "CANARY" not in str(
        [{**trace, "events": [e for e in trace["events"] if "error_message" not in e]} for trace in traces]
    )


def test_our_own_failures_leave_the_results_alone(
    captured: Captured, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that raises: every call still answers, and after enough of it the patch is off."""
    seeded(handle)

    def broken(*_: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr(type(captured.sink), "put", broken)
    mem = handle("a")
    for _ in range(guard.LIMIT + 5):
        entry = mem.read(SERVICE, "retry-pattern")
        assert entry is not None
        assert entry.value == {"max_retries": 3}
    assert guard.is_off("amfs")


def test_every_mapping_may_fail(
    captured: Captured, handle: Handle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the real SDK: each mapping broken in turn, the same story runs through, and its window is closed."""
    patch = importlib.import_module("amfs_otel_instrumentation.amfs")
    mappings = [name for name in vars(patch) if "_from_" in name]

    def failing(*_args: Any, **_kwargs: Any) -> Any:
        raise ValueError("ours")

    def story(mem: AgentMemory) -> list[Any]:
        with mem.transaction("m") as tx:
            tx.write("p", "k1", 1)
        answers = [mem.write("p", "k", {"n": 1}).value, mem.read("p", "k"), mem.read_from("x", "p", "k")]
        answers += [len(mem.search(query="k")), len(mem.retrieve("k")), mem.record_context("l", "s")]
        answers += [
            mem.record_action("t"),
            mem.record_attempt(summary="s").attempt,
            mem.record_llm_call("m", 1, 1)["model"],
        ]
        mem.read("p", "k")
        answers.append([entry.version for entry in mem.commit_outcome("R", OutcomeType.SUCCESS)])
        return [getattr(answer, "version", answer) for answer in answers]

    expected = story(handle("expected"))
    for name in mappings:
        guard.reset()
        with monkeypatch.context() as broken:
            broken.setattr(patch, name, failing)
            mem = AgentMemory("a", adapter=FilesystemAdapter(tmp_path / name, "default"))
            assert story(mem) == expected, name
        assert captured.capture.windows.open_count() == 0, name


OLDEST = """
import json, sys
from importlib.metadata import version
from pathlib import Path
from opentelemetry import trace
from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture.content import Masker
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.runtime import Capture
from amfs_otel.model import EventClosed
from amfs_otel.settings import Settings

class Sink(list):
    put = list.append

sink = Sink()
settings = Settings(state_dir=Path(sys.argv[1]))
capture.install(Capture(settings, sink, Masker(), trace.get_tracer("amfs_otel"), ClientMetrics(None)))
instrumentor.instrument(["amfs"])
from amfs import AgentMemory, OutcomeType
from amfs_filesystem import FilesystemAdapter
mem = AgentMemory("a", adapter=FilesystemAdapter(Path(sys.argv[1]), "default"))
mem.write("p", "k", 1)
mem.read("p", "k")
mem.retrieve("k")
mem.record_attempt(summary="no")
with mem.transaction("t") as tx:
    tx.write("p", "k2", 2)
mem.commit_outcome("R", OutcomeType.SUCCESS)
mem.close()
(state,) = instrumentor.states()
kinds = [str(message.event.kind) for message in sink if isinstance(message, EventClosed)]
print(json.dumps([version("amfs"), state.state, state.missing, guard.counters(), kinds]))
"""


def test_the_oldest_release(tmp_path: Path) -> None:
    """The same patch on the oldest supported release, in its own environment."""
    python = python_of("oldest-amfs")
    done = subprocess.run([python, "-c", OLDEST, tmp_path], timeout=120, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        "0.5.27", "patched", [], {},
        [
            "memory_write", "memory_read", "memory_query", "memory_read", "attempt", "commit", "memory_write",
            "memory_write", "outcome", "confidence_change",
        ],
    ]  # fmt: skip


# -- the contract of all patches --------------------------------------------------------------------------------------


@asynccontextmanager
async def contract_calls(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    """Those that the contract is tried with."""
    root = mkdtemp(dir=request.getfixturevalue("tmp_path"))  # a memory of its own, each time
    mem: Any = AgentMemory("deploy-agent", adapter=FilesystemAdapter(Path(root), "default"))

    async def write() -> Any:
        return mem.write("checkout", "retry-pattern", {"max_retries": 3}).value

    async def read() -> Any:
        return mem.read("checkout", "retry-pattern").value

    async def search() -> Any:
        return [entry.key for entry in mem.search(query="retry")]

    async def note() -> Any:
        return mem.record_context("deploy", "asked to")

    async def refused() -> Any:
        return mem.record_attempt(outcome_type=OutcomeType.SUCCESS)

    yield write, read, search, note, refused


CONTRACT = Contract(contract_calls, ("_amfs_fields",))
