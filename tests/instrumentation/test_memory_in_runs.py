"""Tools of a graph that use AMFS, and a commit after the run."""

from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from amfs import AgentMemory, OutcomeType
from amfs_filesystem import FilesystemAdapter
from langgraph.graph import START, StateGraph

from amfs_otel import capture, instrumentor
from amfs_otel.capture import Kind
from amfs_otel.model import ClosedBy
from tests.instrumentation.recording import Captured


class State(TypedDict):
    service: str


@pytest.fixture
def memory(captured: Captured, tmp_path: Path) -> AgentMemory:
    assert captured.capture is not None
    instrumentor.instrument(["amfs", "langchain", "langgraph"])
    return AgentMemory("review-agent", adapter=FilesystemAdapter(tmp_path, "default"))


def run(memory: AgentMemory, in_node: Literal["read", "commit"]) -> None:
    def node(state: State) -> Any:
        memory.read(state["service"], "risk")
        if in_node == "commit":
            memory.commit_outcome("INC-1", OutcomeType.SUCCESS)
        return state

    graph: Any = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.compile().invoke({"service": "checkout"})


def test_a_commit_after_the_run_judges_the_run_that_used_the_memory(captured: Captured, memory: AgentMemory) -> None:
    run(memory, "read")
    memory.commit_outcome("INC-1", OutcomeType.SUCCESS)
    decision, outcome = captured.records()
    assert [event["kind"] for event in captured.traces()[0]["events"]] == ["agent_run", "memory_read"]
    assert outcome.window.refs == (("outcome_of", decision.window.record_id),)


def test_a_commit_inside_the_run_leaves_nothing_to_judge_after_it(captured: Captured, memory: AgentMemory) -> None:
    run(memory, "commit")
    memory.commit_outcome("INC-2", OutcomeType.SUCCESS)
    _, outcome = captured.records()
    assert outcome.window.refs == ()


def test_a_tracker_with_a_newer_window_of_its_own_keeps_it(captured: Captured) -> None:
    memory = capture.handle_session("amfs", "agent", "m")
    session = capture.Session("session", "agent")
    token = capture.explicit_session.set(session)
    capture.instant(Kind.MEMORY_READ, "amfs", {"operation": "read"}, memory=memory)
    capture.explicit_session.reset(token)
    capture.instant(Kind.MEMORY_READ, "amfs", {"operation": "read"}, memory=memory)
    own = memory.window
    assert own is not None
    captured.capture.windows.close(own, ClosedBy.IDLE)
    capture.close_session(session, ClosedBy.SESSION_END)
    capture.commit("amfs", {"outcome_ref": "REF"}, [], memory=memory)
    assert captured.records()[-1].window.refs == (("outcome_of", own.record_id),)
