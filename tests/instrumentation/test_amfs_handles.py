"""Several handles of AMFS on one tracker, and what a session says of itself."""

# amfs ships without a type marker:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable
from pathlib import Path
from typing import Any

import amfs_core.engine as engine
import pytest
from amfs import AgentMemory, OutcomeType
from amfs_filesystem import FilesystemAdapter

from amfs_otel import capture, instrumentor
from amfs_otel.capture.ambient import explicit_session
from amfs_otel.capture.sessions import Session
from amfs_otel.model import ClosedBy
from amfs_otel.settings import LedgerContent
from tests.instrumentation.recording import Captured

Handle = Callable[[str], AgentMemory]
ACME = {"customer": "acme"}


@pytest.fixture
def handle(captured: Captured, tmp_path: Path) -> Handle:
    """Makes handles on one filesystem store, instrumented."""
    instrumentor.instrument(["amfs"])
    return lambda agent_id: AgentMemory(agent_id, adapter=FilesystemAdapter(tmp_path / "memory", "default"))


def who(trace: dict[str, Any]) -> list[tuple[str, str]]:
    """Kind and agent of each event."""
    return [(event["kind"], event.get("agent", trace["agent"])) for event in trace["events"]]


class TestOneTracker:
    def test_handles_in_one_scope_are_one_chain_and_each_act_has_its_own_agent(
        self, captured: Captured, handle: Handle
    ) -> None:
        """As AMFS' HTTP server works: one handle for all, and one for whom a request speaks."""
        handle("seeder").write("p", "k", 1)
        captured.close()
        server = handle("server")
        with engine.read_tracker_scope():
            server.read("p", "k")
            caller = server.as_agent("caller")
            caller.read_from("seeder", "p", "k")
            caller.write("p", "own", 2)
            caller.record_context("price", "90 EUR")
            with caller.transaction() as transaction:
                transaction.write("p", "in a transaction", 4)
            server.search(entity_path="p")
            caller.commit_outcome("R", OutcomeType.SUCCESS)
        (trace,) = (trace for trace in captured.close() if trace["agent"] == "server")
        assert (trace["agent"], trace["closed_by"]) == ("server", "commit")
        acts = [(kind, agent) for kind, agent in who(trace) if kind != "confidence_change"]
        assert acts == [
            ("memory_read", "server"),
            ("memory_read", "caller"),
            ("agent_interaction", "caller"),
            ("memory_write", "caller"),
            ("context", "caller"),
            ("commit", "caller"),
            ("memory_write", "caller"),
            ("memory_query", "server"),
            ("outcome", "caller"),
        ]

    def test_in_a_session_of_the_application_too(self, captured: Captured, handle: Handle) -> None:
        session = Session("session", "planner")
        token = explicit_session.set(session)
        server = handle("server")
        with engine.read_tracker_scope():
            server.read("p", "k")
            server.as_agent("caller").read("p", "k")
            server.as_agent("planner").read("p", "k")
        explicit_session.reset(token)
        capture.close_session(session, ClosedBy.SESSION_END)
        (trace,) = captured.traces()
        assert who(trace) == [("memory_read", name) for name in ("server", "caller", "planner")]


class TestAttributes:
    def test_a_trace_without_an_outcome_has_them(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.set_session_attributes(ACME)
        mem.read("p", "k")
        mem.read("p", "k")
        mem.set_session_attributes({"task_type": "deploy"})
        mem.record_context("l", "s")
        mem.close()
        (trace,) = captured.traces()
        assert [event.get("attributes") for event in trace["events"]] == [ACME, None, {**ACME, "task_type": "deploy"}]

    def test_each_trace_of_a_session_has_them(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.set_session_attributes(ACME)
        mem.read("p", "k")
        captured.capture.windows.close_all(ClosedBy.IDLE)
        mem.read("p", "k")
        mem.commit_outcome("R", OutcomeType.SUCCESS)
        mem.read("p", "k")
        idle, committed, after = captured.close()
        assert [event.get("attributes") for event in idle["events"]] == [ACME]
        assert [event.get("attributes") for event in committed["events"]] == [ACME, ACME]
        assert [event.get("attributes") for event in after["events"]] == [None], "the commit has emptied them"

    def test_they_follow_the_content_policy(self, captured: Captured, handle: Handle) -> None:
        mem = handle("a")
        mem.set_session_attributes({"customer": "CANARY-customer"})
        mem.read("p", "k")
        mem.close()
        assert "CANARY" not in str(captured.traces(LedgerContent.NONE))
        assert "CANARY" in str(captured.traces(LedgerContent.DECISION))
        assert all("CANARY" not in str(dict(span.attributes or {})) for span in captured.spans())
