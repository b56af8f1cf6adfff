"""Tools of MCP servers that a model asks for: one event, whoever calls them; and what only 2.x can be asked."""

import json
from typing import Any, cast

import pytest
from anthropic import AsyncAnthropic
from langchain_core.tools import StructuredTool
from openai import AsyncOpenAI
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from amfs_otel import capture, instrumentor
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Reply, ToolCall
from amfs_otel.model import Kind
from amfs_otel.settings import LedgerContent
from tests.instrumentation.mcp_sides import bare_request, connected, made, said
from tests.instrumentation.recording import Captured, kinds
from tests.support.oracle import check_metrics, failures
from tests.support.otlp_decode import metrics_from_request

ASKED = (ToolCall("call_a", "look", '{"service": "a"}'), ToolCall("call_b", "look", '{"service": "b"}'))


@pytest.fixture(autouse=True)
def instrumented(captured: Captured) -> None:
    capture.current_request.set(None)
    instrumentor.instrument(["mcp", "openai", "anthropic", "langchain"])


def tool_calls(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["events"] if event["kind"] == Kind.TOOL_CALL]


class TestALoopOfOnesOwn:
    """The application hands what the model asks for to an MCP client, and the answer back in the next request."""

    async def test_openai(self, captured: Captured, model_server: ModelServer) -> None:
        model_server.queue(Reply(tool_calls=ASKED), Reply(text="done"))
        client = AsyncOpenAI(base_url=model_server.base_url, api_key="any", max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "look"}]
        async with client, connected(made(), "memory") as tools:
            for _ in range(2):
                reply = await client.chat.completions.create(model="m", messages=messages)
                answer = reply.choices[0].message
                messages.append(answer.model_dump(exclude_none=True))
                for call in reversed(answer.tool_calls or []):
                    function = cast("Any", call).function
                    found = said(await tools.call_tool(function.name, json.loads(function.arguments)))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
        (trace,) = captured.close()
        assert kinds(trace) == ["llm_call", "tool_call", "tool_call", "llm_call"]
        told = [(one["call_id"], one["arguments"], one["source"], "observed" in one) for one in tool_calls(trace)]
        assert told == [("call_b", {"service": "b"}, "mcp", False), ("call_a", {"service": "a"}, "mcp", False)]

    async def test_anthropic(self, captured: Captured, model_server: ModelServer) -> None:
        model_server.queue(Reply(tool_calls=ASKED[:1]), Reply(text="done"))
        client = AsyncAnthropic(base_url=model_server.origin, api_key="any", max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "look"}]
        async with client, connected(made(), "direct") as tools:
            for _ in range(2):
                reply = await client.messages.create(model="m", max_tokens=9, messages=messages)
                messages.append({"role": "assistant", "content": reply.content})
                uses = [block for block in reply.content if block.type == "tool_use"]
                for use in uses:
                    found = said(await tools.call_tool(use.name, cast("Any", use.input)))
                    answer = {"type": "tool_result", "tool_use_id": use.id, "content": found}
                    messages.append({"role": "user", "content": [answer]})
        captured.close()
        for content in LedgerContent:
            (trace,) = captured.traces(content)
            assert kinds(trace) == ["llm_call", "tool_call", "llm_call"]
            assert [one["call_id"] for one in tool_calls(trace)] == ["call_a"]


class TestLangchain:
    """A tool of langchain that stands for one of a server's, as adapters make them."""

    @pytest.mark.parametrize("name", ["look", "memory_look"])
    async def test_one_event_that_knows_the_server(self, captured: Captured, name: str) -> None:
        async with connected(made(), "memory") as client:

            async def look(service: str) -> str:
                return said(await client.call_tool("look", {"service": service}))

            tool = StructuredTool.from_function(coroutine=look, name=name, description="Looks.")
            await tool.ainvoke({"type": "tool_call", "name": name, "id": "call_a", "args": {"service": "a"}})
        (trace,) = captured.close()
        (call,) = trace["events"]
        assert (call["source"], call["tool_name"], call["call_id"]) == ("langchain", name, "call_a")
        assert (call["source_name"], call["result"]) == ("memory", "3 SEV-1 in a, depth 1")

    async def test_another_tool_is_another_event(self, captured: Captured) -> None:
        async with connected(made(), "memory") as client:

            async def plan(service: str) -> str:
                return said(await client.call_tool("look", {"service": service}))

            tool = StructuredTool.from_function(coroutine=plan, name="plan", description="Plans.")
            await tool.ainvoke({"service": "a"})
        (trace,) = captured.close()
        outer, inner = tool_calls(trace)
        assert (inner["tool_name"], inner["parent"]) == ("look", outer["id"])


class TestRounds:
    """2.x's servers may ask back before they answer: the client's call is one event all the same."""

    @staticmethod
    def server() -> Any:
        from mcp import types
        from mcp.server.lowlevel import Server

        schema: Any = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
        asking = types.ElicitRequest(params=types.ElicitRequestFormParams(message="sure?", requested_schema=schema))

        async def on_call_tool(_context: Any, params: Any) -> Any:
            if params.input_responses is None:
                return types.InputRequiredResult(input_requests={"sure": asking})
            return types.CallToolResult(content=[types.TextContent(text="done")])

        async def on_list_tools(_context: Any, _params: Any) -> Any:
            return types.ListToolsResult(tools=[types.Tool(name="ask", input_schema={"type": "object"})])

        return Server("asks", on_call_tool=on_call_tool, on_list_tools=on_list_tools)

    async def test_two_requests_of_one_call(self, captured: Captured) -> None:
        from mcp import types

        async def sure(_context: Any, _params: Any) -> Any:
            return types.ElicitResult(action="accept", content={"sure": True})

        async with connected(self.server(), "direct", elicitation_callback=sure) as client:
            assert said(await client.call_tool("ask", {})) == "done"
        (trace,) = captured.close()
        (call,) = trace["events"]
        assert (call["status"], call["result"]) == ("ok", {"content": [{"type": "text", "text": "done"}]})

    async def test_the_first_alone_is_incomplete(self, captured: Captured) -> None:
        async with connected(self.server(), "direct") as client:
            await client.session.call_tool("ask", {}, allow_input_required=True)
        (trace,) = captured.close()
        assert [event["status"] for event in trace["events"]] == ["incomplete"]


async def test_metrics_are_those_of_the_protocol(captured: Captured) -> None:
    reader = InMemoryMetricReader()
    captured.capture.metrics = ClientMetrics(MeterProvider([reader]).get_meter("amfs_otel"))
    async with connected(made(), "memory") as client:
        await client.call_tool("look", {"service": "a"})
        await client.call_tool("boom", {})
        await client.read_resource("memo://teams/a")
        await bare_request(client, "look", {"service": "a"})
    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric for metric in metrics_from_request(encode_metrics(data))}
    assert failures(check_metrics(found.values())) == []
    assert found.keys() == {"mcp.client.operation.duration", "mcp.server.operation.duration"}
    told = {
        (point["mcp.method.name"], point.get("gen_ai.tool.name"), point.get("error.type"))
        for point, _ in found["mcp.client.operation.duration"].points
    }
    assert told == {("tools/call", "look", None), ("tools/call", "boom", "tool_error"), ("resources/read", None, None)}
