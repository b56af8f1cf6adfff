"""What servers and clients of MCP do while a tool runs: progress, questions to the client, calls of the tool itself."""

import asyncio
from typing import Any

import pytest
from mcp import types
from pydantic import BaseModel

from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture import Kind
from tests.instrumentation.mcp_sides import IN_PROCESS, connected, failed, handlers_context, made, said
from tests.instrumentation.recording import Captured
from tests.instrumentation.test_mcp import call_spans, native_spans_to

Context: Any = handlers_context()
WAY = pytest.mark.parametrize("way", IN_PROCESS)


@pytest.fixture(autouse=True)
def instrumented(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    capture.current_request.set(None)
    native_spans_to(captured, monkeypatch)
    instrumentor.instrument(["mcp"])


class Sure(BaseModel):
    yes: bool


class Weather(BaseModel):
    degrees: float
    hours: list[int]


def calls(captured: Captured, *facts: str) -> list[tuple[Any, ...]]:
    """Facts of the tool calls; each has one span, which ended once."""
    events = [event for trace in captured.close() for event in trace["events"] if event["kind"] == Kind.TOOL_CALL]
    spans = [format(span.context.span_id, "016x") for span in call_spans(captured)]
    assert sorted(spans) == sorted(event["span"] for event in events)
    assert guard.counters() == {}
    return [tuple(event.get(fact) for fact in facts) for event in events]


@WAY
async def test_a_tool_that_tells_its_progress(captured: Captured, way: str) -> None:
    async def work(steps: int, ctx: Context) -> str:
        """Works."""
        for step in range(steps):
            await ctx.report_progress(step, steps)
        return "done"

    heard: list[float] = []

    async def hear(progress: float, _total: Any, _message: Any) -> None:
        heard.append(progress)

    async with connected(made((work,)), way) as client:
        assert said(await client.call_tool("work", {"steps": 3}, progress_callback=hear)) == "done"
    assert heard == [0, 1, 2]
    assert calls(captured, "tool_name", "arguments", "status") == [("work", {"steps": 3}, "ok")]


async def test_a_tool_that_asks_the_clients_user(captured: Captured) -> None:
    async def ask(ctx: Context) -> str:
        """Asks."""
        return str((await ctx.elicit("sure?", Sure)).data.yes)

    async def answer(_context: Any, _params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"yes": True})

    async with connected(made((ask,)), "memory", elicitation_callback=answer) as client:
        assert said(await client.call_tool("ask", {})) == "True"
    assert calls(captured, "tool_name", "status") == [("ask", "ok")]


@pytest.mark.filterwarnings("ignore:The sampling capability is deprecated")
async def test_a_model_that_a_tool_asks_the_client_for_is_a_part_of_its_call(captured: Captured) -> None:
    async def think(ctx: Context) -> str:
        """Thinks."""
        asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="hi"))
        return str((await ctx.session.create_message(messages=[asked], max_tokens=9)).content.text)

    async def answer(_context: Any, _params: Any) -> Any:
        capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "sampled", "summary": "x"})
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="yo"), model="m")

    async with connected(made((think,)), "memory", sampling_callback=answer) as client:
        assert said(await client.call_tool("think", {})) == "yo"
    call, note = captured.close()[0]["events"]
    assert (call["kind"], note["kind"], note["parent"]) == ("tool_call", "context", call["id"])
    assert calls(captured, "status") == [("ok",)]


@WAY
async def test_a_structured_result(captured: Captured, way: str) -> None:
    def weather(city: str) -> Weather:
        """The weather."""
        return Weather(degrees=len(city) + 0.5, hours=[1, 2])

    async with connected(made((weather,)), way) as client:
        assert not failed(await client.call_tool("weather", {"city": "abc"}))
    ((result,),) = calls(captured, "result")
    assert result["structuredContent"] == {"degrees": 3.5, "hours": [1, 2]}


@WAY
async def test_a_tool_that_calls_itself(captured: Captured, way: str) -> None:
    clients: list[Any] = []

    async def again(times: int) -> str:
        """Calls itself."""
        return said(await clients[0].call_tool("again", {"times": times - 1})) if times else "end"

    async with connected(made((again,)), way) as client:
        clients.append(client)
        assert said(await client.call_tool("again", {"times": 2})) == "end"
    outer, middle, inner = calls(captured, "id", "parent", "arguments")
    assert [one[2] for one in (outer, middle, inner)] == [{"times": 2}, {"times": 1}, {"times": 0}]
    assert (middle[1], inner[1]) == (outer[0], middle[0])


@WAY
async def test_the_same_call_four_times_at_once(captured: Captured, way: str) -> None:
    async with connected(made(), way) as client:
        await asyncio.gather(*(client.call_tool("look", {"service": "x"}) for _ in range(4)))
    assert calls(captured, "status", "parent") == [("ok", None)] * 4
