"""What programs do with langchain and langgraph beside a plain call: batches, retries, fallbacks, caches, fans."""

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from amfs_otel import guard, instrumentor
from amfs_otel.capture import Kind
from tests.instrumentation.recording import Captured
from tests.support.oracle import check_spans, failures
from tests.support.otlp_decode import span_from_readable


@pytest.fixture(autouse=True)
def instrumented(captured: Captured) -> None:
    instrumentor.instrument(["langchain", "langgraph"])


class Model(BaseChatModel):
    """Fails so many times, and whenever it is asked for what is bad; waits for ever where it is told to."""

    fails: int = 0
    asked: int = 0
    waits: bool = False
    answer: AIMessage = AIMessage("ok")

    @property
    def _llm_type(self) -> str:
        return "model"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.asked += 1
        if self.asked <= self.fails or messages[-1].content == "bad":
            raise ValueError("no answer for you")
        return ChatResult(generations=[ChatGeneration(message=self.answer)])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        if self.waits:
            await asyncio.Event().wait()
        return self._generate(messages)


def told(captured: Captured, kind: Kind, *facts: str) -> list[tuple[Any, ...]]:
    """Facts of the events of a kind; each has a span that ended once and breaks no rule."""
    events = [event for trace in captured.close() for event in trace["events"] if event["kind"] == kind]
    spans = [span_from_readable(span) for span in captured.spans()]
    assert failures(check_spans(spans)) == []
    ids = [format(span.context.span_id, "016x") for span in captured.spans()]
    assert [ids.count(event["span"]) for event in events] == [1] * len(events)
    assert guard.counters() == {}
    return [tuple(event.get(fact) for fact in facts) for event in events]


def fan(items: list[str]) -> Any:
    """A graph that asks a model for each of its items at once."""

    class Fan(TypedDict):
        items: list[str]
        found: Annotated[list[Any], operator.add]

    graph: Any = StateGraph(Fan)
    graph.add_node("ask", lambda state: {"found": [Model().invoke(state["item"]).content]})
    graph.add_conditional_edges(START, lambda state: [Send("ask", {"item": item}) for item in state["items"]])
    return graph.compile(name="fan").invoke({"items": items, "found": []})


class TestModels:
    def test_a_batch_of_which_one_fails(self, captured: Captured) -> None:
        found: Any = Model().batch(["a", "bad", "c"], return_exceptions=True)
        assert [type(one) for one in found] == [AIMessage, ValueError, AIMessage]
        assert sorted(told(captured, Kind.LLM_CALL, "status")) == [("error",), ("ok",), ("ok",)]

    async def test_a_batch_in_the_order_of_its_answers(self, captured: Captured) -> None:
        found = [one async for one in Model().abatch_as_completed(["a", "bad", "c"], return_exceptions=True)]
        assert len(found) == 3
        assert sorted(told(captured, Kind.LLM_CALL, "status")) == [("error",), ("ok",), ("ok",)]

    def test_tried_again(self, captured: Captured) -> None:
        Model(fails=2).with_retry(stop_after_attempt=3, wait_exponential_jitter=False).invoke("x")
        assert told(captured, Kind.LLM_CALL, "status") == [("error",), ("error",), ("ok",)]

    def test_another_model_instead(self, captured: Captured) -> None:
        Model(fails=9).with_fallbacks([Model()]).invoke("x")
        assert told(captured, Kind.LLM_CALL, "status", "error_type") == [("error", "ValueError"), ("ok", None)]

    def test_an_answer_from_the_cache_costs_no_tokens_again(self, captured: Captured) -> None:
        usage: Any = {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}
        model = Model(cache=InMemoryCache(), answer=AIMessage("ok", usage_metadata=usage))
        assert model.invoke("x").content == model.invoke("x").content
        assert model.asked == 1
        assert told(captured, Kind.LLM_CALL, "input_tokens", "output_tokens") == [(30, 12), (None, None)]


class TestGraphs:
    def test_a_fan(self, captured: Captured) -> None:
        assert fan(["a", "b", "c"])["found"] == ["ok"] * 3
        (run,) = told(captured, Kind.AGENT_RUN, "id", "status")
        assert told(captured, Kind.LLM_CALL, "parent", "status") == [(run[0], "ok")] * 3
        assert run[1] == "ok"

    def test_a_fan_of_which_one_fails(self, captured: Captured) -> None:
        with pytest.raises(ValueError, match="no answer"):
            fan(["a", "bad", "c"])
        assert told(captured, Kind.AGENT_RUN, "status", "error_type") == [("error", "ValueError")]
        assert ("error",) in told(captured, Kind.LLM_CALL, "status")

    async def test_cancelled_while_a_model_is_asked(self, captured: Captured) -> None:
        begun = asyncio.Event()

        async def ask(state: Any) -> Any:
            begun.set()
            return {"messages": [await Model(waits=True).ainvoke(state["messages"])]}

        graph: Any = StateGraph(MessagesState)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        task = asyncio.create_task(graph.compile(name="slow").ainvoke({"messages": [("user", "x")]}))
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        error = ("error", "asyncio.exceptions.CancelledError")
        assert told(captured, Kind.AGENT_RUN, "status", "error_type") == [error]
        assert set(told(captured, Kind.LLM_CALL, "status", "error_type")) <= {error}

    def test_tools_at_once_of_which_two_fail(self, captured: Captured) -> None:
        @tool(response_format="content_and_artifact")
        def draw(x: int) -> Any:
            """Draws."""
            return f"drawn {x}", {"points": [x, x]}

        @tool
        def fail(x: int) -> str:
            """Fails."""
            raise ValueError(f"disk {x}")

        wanted = (("draw", 1, "c1"), ("fail", 2, "c2"), ("draw", "no", "c3"))
        calls: list[Any] = [{"name": name, "args": {"x": x}, "id": call_id} for name, x, call_id in wanted]
        graph: Any = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode([draw, fail], handle_tool_errors=True))
        graph.add_edge(START, "tools")
        graph.compile().invoke({"messages": [AIMessage("", tool_calls=calls)]})
        invalid = "pydantic_core._pydantic_core.ValidationError"
        assert sorted(told(captured, Kind.TOOL_CALL, "call_id", "status", "error_type", "result")) == [
            ("c1", "ok", None, "drawn 1"),
            ("c2", "error", "ValueError", None),
            ("c3", "error", invalid, None),
        ]

    def test_a_tool_that_gives_a_command_has_given_its_messages(self, captured: Captured) -> None:
        @tool
        def move(x: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
            """Moves."""
            return Command(update={"messages": [ToolMessage(f"moved {x}", tool_call_id=tool_call_id)]})

        call: Any = {"name": "move", "args": {"x": 2}, "id": "c1"}
        graph: Any = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode([move]))
        graph.add_edge(START, "tools")
        graph.compile().invoke({"messages": [AIMessage("", tool_calls=[call])]})
        assert told(captured, Kind.TOOL_CALL, "call_id", "arguments", "result") == [("c1", {"x": 2}, ["moved 2"])]
