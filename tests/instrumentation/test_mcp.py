"""The mcp patch: clients, servers, both in one process, both versions of the SDK, over every way between them."""

import asyncio
import inspect
import json
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import mcp
import pytest
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import SpanKind

from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture import Kind
from amfs_otel.capture.ambient import SUPPRESS
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.model import ClosedBy
from amfs_otel.settings import LedgerContent
from amfs_otel_instrumentation import _mcp_tools
from tests.instrumentation import mcp_sides as sides
from tests.instrumentation.contract import Call, Contract
from tests.instrumentation.mcp_sides import (
    IN_PROCESS,
    bare_request,
    connected,
    failed,
    lowlevel,
    made,
    said,
    stops,
    uri,
)
from tests.instrumentation.recording import Captured, kinds
from tests.support.environments import not_run_in, python_of
from tests.support.not_run import not_run
from tests.support.oracle import Rules, check_metrics, check_spans, failures
from tests.support.otlp_decode import Metric, metrics_from_request, span_from_readable
from tests.support.programs import environment
from tests.support.spooled import Spooled, spooled

WAY = pytest.mark.parametrize("way", IN_PROCESS)
BOTH = pytest.mark.parametrize("way", [way for way in IN_PROCESS if way != "http"])


@pytest.fixture(autouse=True)
def instrumented(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patched, and the SDK's own spans go where ours go."""
    capture.current_request.set(None)
    native_spans_to(captured, monkeypatch)
    instrumentor.instrument(["mcp"])


def native_spans_to(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sides.FIRST:
        from mcp.shared import _otel

        monkeypatch.setattr(_otel, "_tracer", captured.provider.get_tracer("mcp-python-sdk"))


def events(captured: Captured) -> list[dict[str, Any]]:
    """All events, in order."""
    return [event for found in captured.close() for event in found["events"]]


def call_spans(captured: Captured) -> list[Any]:
    """The spans of requests that are events, whoever made them, checked by the conventions."""
    ours = [span for span in captured.spans() if span.instrumentation_scope.name == "amfs_otel"]
    assert failures(check_spans([span_from_readable(span) for span in ours])) == []
    wanted = ("tools/call", "resources/read")
    return [span for span in captured.spans() if (span.attributes or {}).get("mcp.method.name") in wanted]


def measured(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    """Where the metrics go from here on."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("amfs_otel")
    monkeypatch.setattr(captured.capture, "metrics", ClientMetrics(meter))
    return reader


def metrics_of(reader: InMemoryMetricReader, name: str) -> list[Metric]:
    """The metrics of that name, checked by the conventions."""
    data = reader.get_metrics_data()
    assert data is not None
    found = [metric for metric in metrics_from_request(encode_metrics(data)) if metric.name == name]
    assert failures(check_metrics(found)) == []
    return found


@contextmanager
def suppressed() -> Iterator[None]:
    """What runs inside is not captured."""
    token = context.attach(context.set_value(SUPPRESS, True))
    try:
        yield
    finally:
        context.detach(token)


def test_this_release_has_every_hook() -> None:
    state = next(state for state in instrumentor.states() if state.name == "mcp")
    assert (state.state, state.missing) == ("patched", [])


class TestOneProcess:
    """What a client asks and a server of the same process answers is one event."""

    @WAY
    async def test_a_call(self, captured: Captured, way: str) -> None:
        async with connected(made(), way) as client:
            result = await client.call_tool("look", {"service": "checkout", "depth": 2})
        assert (said(result), failed(result)) == ("3 SEV-1 in checkout, depth 2", False)
        (event,) = events(captured)
        assert {key: event.get(key) for key in ("kind", "source", "status", "tool_name", "arguments", "success")} == {
            "kind": "tool_call",
            "source": "mcp",
            "status": "ok",
            "tool_name": "look",
            "arguments": {"service": "checkout", "depth": 2},
            "success": True,
        }
        assert event["result"]["content"] == [{"type": "text", "text": "3 SEV-1 in checkout, depth 2"}]
        assert (event["source_name"], event["remote"], "served" in event) == ("memory", True, False)
        assert event["end_us"] > event["start_us"]
        (span,) = call_spans(captured)
        assert (span.name, span.kind, span.instrumentation_scope.name) == (
            "tools/call look",
            SpanKind.CLIENT,
            "amfs_otel",
        )
        assert span.attributes["gen_ai.operation.name"] == "execute_tool"
        assert span.attributes["mcp.protocol.version"] == event["protocol_version"]
        assert ("jsonrpc.request.id" in span.attributes) == (way != "direct")

    @WAY
    async def test_a_tools_error(self, captured: Captured, way: str) -> None:
        async with connected(made(), way) as client:
            assert failed(await client.call_tool("boom", {}))
        (event,) = events(captured)
        assert (event["status"], event["error_type"], event["success"]) == ("error", "tool_error", False)
        assert event["result"]["content"][0]["text"].startswith("Error executing tool boom")
        (span,) = call_spans(captured)
        assert (span.attributes["error.type"], span.status.is_ok) == ("tool_error", False)
        assert not span.events

    @WAY
    async def test_a_refusal(self, captured: Captured, way: str) -> None:
        async with connected(made(), way) as client:
            with pytest.raises(Exception, match="Unknown resource") as caught:
                await client.read_resource(uri("memo://nobody/x"))
        code = str(caught.value.error.code)  # type: ignore[attr-defined]
        (event,) = events(captured)
        assert (event["kind"], event["status"], event["error_type"], event["status_code"]) == (
            *("retrieval", "error"),
            *(code, code),
        )
        assert "Unknown resource" in event["error_message"]
        assert event["results"] == [{"document_id": "memo://nobody/x"}]
        (span,) = call_spans(captured)
        assert span.attributes["rpc.response.status_code"] == code

    @WAY
    async def test_a_resource_is_a_retrieval_and_other_requests_are_nothing(self, captured: Captured, way: str) -> None:
        async with connected(made(), way) as client:
            await client.list_tools()
            await client.get_prompt("greeting")
            result = await client.read_resource(uri("memo://teams/a"))
        assert result.contents[0].text == "memo of a"
        (event,) = events(captured)
        assert (event["kind"], event["source_name"], event["result_count"]) == ("retrieval", "memory", 1)
        assert event["results"] == [{"document_id": "memo://teams/a"}]
        assert event["documents"] == [{"uri": "memo://teams/a", "mimeType": "text/plain", "text": "memo of a"}]
        (span,) = call_spans(captured)
        assert (span.name, "gen_ai.operation.name" in span.attributes) == ("resources/read", False)
        assert "mcp.resource.uri" not in span.attributes
        others = {(span.attributes or {}).get("mcp.method.name") for span in captured.spans()} - {"resources/read"}
        assert sides.FIRST or {"tools/list", "prompts/get"} <= others

    @WAY
    async def test_what_the_tool_does_is_a_part_of_the_call(self, captured: Captured, way: str) -> None:
        def remembers(service: str) -> str:
            """Does something that is captured, too."""
            capture.instant(Kind.CONTEXT, "amfs_otel", {"label": service, "summary": "x"})
            return "ok"

        async with connected(made((remembers,)), way) as client:
            await client.call_tool("remembers", {"service": "checkout"})
        call, note = events(captured)
        assert (note["kind"], note["parent"]) == ("context", call["id"])

    @WAY
    async def test_a_tool_that_calls_another_server(self, captured: Captured, way: str) -> None:
        inner = made(name="inner")

        async def look_there(service: str) -> str:
            """Asks a server of its own."""
            async with connected(inner, way) as client:
                return said(await client.call_tool("look", {"service": service}))

        async with connected(made((look_there,)), way) as client:
            assert said(await client.call_tool("look_there", {"service": "a"})) == "3 SEV-1 in a, depth 1"
        outer, call = events(captured)
        assert [(one["tool_name"], one["source_name"]) for one in (outer, call)] == [
            ("look_there", "memory"),
            ("look", "inner"),
        ]
        assert call["parent"] == outer["id"]

    @WAY
    async def test_many_at_once(self, captured: Captured, way: str) -> None:
        async def one(client: Any, number: int) -> str:
            return said(await client.call_tool("look", {"service": f"s{number}", "depth": number}))

        async with connected(made(), way) as client:
            answers = await asyncio.gather(*(one(client, number) for number in range(20)))
        found = events(captured)
        assert len(found) == len(call_spans(captured)) == 20
        for number, event in enumerate(sorted(found, key=lambda event: event["arguments"]["depth"])):
            assert event["arguments"] == {"service": f"s{number}", "depth": number}
            assert event["result"]["content"][0]["text"] == answers[number]

    @BOTH
    @pytest.mark.parametrize("arguments", [{"service": "a"}, {"service": "a", "depth": 3}])
    async def test_without_spans(
        self, captured_with: Callable[..., Captured], way: str, arguments: dict[str, Any]
    ) -> None:
        captured = captured_with(sdk_disabled=True)
        captured.capture.tracer = trace.NoOpTracer()
        instrumentor.instrument(["mcp"])
        async with connected(made(), way) as client:
            await client.call_tool("look", arguments)
        (event,) = events(captured)
        assert event["arguments"] == arguments

    async def test_with_the_session_of_the_caller(self, captured: Captured) -> None:
        session = capture.handle_session("session", "planner", "s-1")
        token = capture.explicit_session.set(session)
        async with connected(made(), "memory") as client:
            await client.call_tool("look", {"service": "a"})
        capture.explicit_session.reset(token)
        capture.close_session(session, ClosedBy.SESSION_END)
        (found,) = captured.traces()
        assert (found["agent"], found["session_id"], kinds(found)) == ("planner", "s-1", ["tool_call"])


class TestTheUsersView:
    @WAY
    async def test_results_are_what_they_were(self, captured: Captured, way: str) -> None:
        async def everything(client: Any) -> list[Any]:
            results = [
                await client.call_tool("look", {"service": "a"}),
                await client.call_tool("boom"),
                await client.call_tool("nobody", {}),
                await client.read_resource(uri("memo://teams/a")),
            ]
            return [(type(one), one.model_dump()) for one in results]

        instrumentor.uninstrument(["mcp"])
        async with connected(made(), way) as client:
            bare = await everything(client)
        instrumentor.instrument(["mcp"])
        async with connected(made(), way) as client:
            assert await everything(client) == bare

    @WAY
    async def test_arguments_are_recorded_as_they_were_and_stay_as_they_are(self, captured: Captured, way: str) -> None:
        given: dict[str, Any] = {"service": "a", "depth": 1}

        def look_back(service: str, depth: int) -> str:
            """Changes the caller's own dict meanwhile."""
            given["depth"] = 99
            return f"{service}{depth}"

        async with connected(made((look_back,)), way) as client:
            await client.call_tool("look_back", given)
        assert given == {"service": "a", "depth": 99}
        (event,) = events(captured)
        assert event["arguments"] == {"service": "a", "depth": 1}

    @WAY
    async def test_a_handlers_context_has_the_span_and_no_baggage(self, captured: Captured, way: str) -> None:
        async with connected(made(), way) as client:
            trace_id, span_id, baggage = said(await client.call_tool("meta", {})).split(" ", 2)
        (span,) = call_spans(captured)
        ids = span.get_span_context()
        assert (trace_id, span_id, baggage) == (f"{ids.trace_id:032x}", f"{ids.span_id:016x}", "[]")

    @WAY
    async def test_the_applications_own_meta_arrives_beside_ours(self, captured: Captured, way: str) -> None:
        def sees(asked: Any) -> str:
            """The names in `_meta`."""
            found = asked.request_context.meta
            return " ".join(sorted(found if isinstance(found, dict) else found.model_extra))

        sees.__annotations__["asked"] = sides.handlers_context()
        async with connected(made((sees,)), way) as client:
            takes_meta = "meta" in inspect.signature(client.call_tool).parameters
            given: dict[str, Any] = {"meta": {"mine": 1}} if takes_meta else {}
            names = said(await client.call_tool("sees", {}, **given)).split()
        ours = [] if way == "direct" else ["baggage", "traceparent"]
        assert [name for name in names if "/" not in name] == sorted([*ours, *given.get("meta", ())])

    @WAY
    async def test_hostile_arguments(self, captured: Captured, way: str) -> None:
        values = [float("nan"), 2**70, "x" * 100_000, {"a": [None, {}]}, b"\x00", "\0"]
        if way != "http":  # over which the SDK does not survive it
            values.append("\ud800")

        def anything(value: Any) -> str:
            """Takes it."""
            return type(value).__name__

        async def outcomes() -> list[str]:
            async with connected(made((anything,)), way) as client:
                return [said(await client.call_tool("anything", {"value": value})) for value in values]

        instrumentor.uninstrument(["mcp"])
        bare = await outcomes()
        instrumentor.instrument(["mcp"])
        assert await outcomes() == bare
        assert guard.counters() == {}
        assert [event["tool_name"] for event in events(captured)] == ["anything"] * len(values)

    async def test_an_argument_whose_methods_fail(self, captured: Captured) -> None:
        class Hostile:
            def _fails(self, *_: Any) -> Any:
                raise RuntimeError("no")

            __eq__ = __bool__ = __repr__ = __iter__ = _fails  # type: ignore[assignment]
            __hash__ = None  # type: ignore[assignment]

        async with connected(made(), "memory") as client:
            with pytest.raises(Exception, match=r".") as caught:
                await client.call_tool("look", {"service": Hostile()})
        assert type(caught.value).__module__.startswith("pydantic")
        assert guard.counters() == {}
        (event,) = events(captured)
        assert event["status"] == "error"

    @pytest.mark.parametrize(
        "arguments", [(), (7,), ("",), (object(),)], ids=["none", "a-number", "empty", "an-object"]
    )
    async def test_a_call_of_nothing(self, captured: Captured, arguments: tuple[Any, ...]) -> None:
        async with connected(made(), "memory") as client:
            error = await stops(client.call_tool(*arguments))
        assert guard.counters() == {}
        assert error is None or not isinstance(error, RuntimeError)

    async def test_suppressed(self, captured: Captured) -> None:
        with suppressed():
            async with connected(made(), "memory") as client:
                assert said(await client.call_tool("look", {"service": "a"})) == "3 SEV-1 in a, depth 1"
        assert events(captured) == []

    async def test_taken_back_during_a_call(self, captured: Captured) -> None:
        def takes_back() -> str:
            """Takes the patch back."""
            instrumentor.uninstrument(["mcp"])
            return "done"

        async with connected(made((takes_back,)), "memory") as client:
            assert said(await client.call_tool("takes_back", {})) == "done"
            await client.call_tool("look", {"service": "a"})
        (event,) = events(captured)
        assert (event["tool_name"], event["status"]) == ("takes_back", "ok")


class Slow:
    """A tool that answers nobody before the test lets it; 1.x's clients do not tell a server that they have left."""

    def __init__(self) -> None:
        self.begun = self.released = False

    async def waits(self) -> str:
        """Waits."""
        self.begun = True
        await sides.until(lambda: self.released)
        return "late"


class TestEnds:
    """Each call ends once, however it ends."""

    @WAY
    async def test_cancelled(self, captured: Captured, way: str) -> None:
        slow = Slow()
        async with connected(made((slow.waits,)), way) as client:
            task = asyncio.ensure_future(client.call_tool("waits", {}))
            await sides.until(lambda: slow.begun)
            task.cancel()
            assert isinstance(await stops(task), asyncio.CancelledError)
            slow.released = True
            assert said(await client.call_tool("look", {"service": "a"})) == "3 SEV-1 in a, depth 1"
        waited, looked = sorted(events(captured), key=lambda event: event["seq"])
        assert (waited["status"], waited["error_type"]) == ("error", "asyncio.exceptions.CancelledError")
        assert looked["status"] == "ok"
        assert Counter(span.name for span in call_spans(captured)) == {"tools/call waits": 1, "tools/call look": 1}

    @WAY
    async def test_timed_out(self, captured: Captured, way: str) -> None:
        slow = Slow()
        limit: Any = timedelta(seconds=0.3) if sides.FIRST else 0.3
        async with connected(made((slow.waits,)), way) as client:
            error = await stops(client.call_tool("waits", {}, read_timeout_seconds=limit))
            slow.released = True
            await client.call_tool("look", {"service": "a"})  # the late answer comes before the end
        code = str(int(error.error.code))  # type: ignore[union-attr]
        waited, looked = sorted(events(captured), key=lambda event: event["seq"])
        assert (waited["status"], waited["error_type"], waited["status_code"]) == ("error", code, code)
        assert looked["status"] == "ok"
        assert Counter(span.name for span in call_spans(captured)) == {"tools/call waits": 1, "tools/call look": 1}

    async def test_the_server_goes_away(self, captured: Captured) -> None:
        slow = Slow()
        async with connected(made((slow.waits,)), "memory") as client:
            task = asyncio.ensure_future(client.call_tool("waits", {}))
            await sides.until(lambda: slow.begun)
        task.cancel()  # for 1.x's client, which waits on
        assert await stops(task) is not None
        (waited,) = events(captured)
        assert waited["status"] == "error"
        assert len(call_spans(captured)) == 1


class TestContent:
    CANARY = "canary-4711"

    async def traffic(self) -> None:
        async with connected(made(), "memory") as client:
            await client.call_tool("look", {"service": self.CANARY})
            await client.read_resource(uri(f"memo://teams/{self.CANARY}"))
            await stops(client.read_resource(uri(f"memo://{self.CANARY}/x")))
            assert self.CANARY in said(await client.call_tool("look", {"service": [self.CANARY]}))

    async def test_by_default_it_is_nowhere_on_spans(self, captured: Captured) -> None:
        await self.traffic()
        shown = "".join(span.to_json() for span in captured.spans())
        assert "tools/call look" in shown
        assert self.CANARY not in shown

    async def test_by_default_the_ledger_withholds_it(self, captured: Captured) -> None:
        await self.traffic()
        captured.close()
        for found in captured.traces(LedgerContent.DECISION):
            for event in found["events"]:
                texts = [event.get(name) for name in ("arguments", "result", "documents", "error_message")]
                assert set(texts) == {None}

    async def test_where_spans_may_show_it(
        self, captured_with: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from amfs_otel.settings import SpanContent

        captured = captured_with(span_content=SpanContent.SPAN_ONLY)
        native_spans_to(captured, monkeypatch)
        async with connected(made(), "memory") as client:
            await client.call_tool("look", {"service": self.CANARY})
        events(captured)
        (span,) = [span for span in captured.spans() if span.name == "tools/call look"]
        assert failures(check_spans([span_from_readable(span)], Rules(content=True))) == []
        attributes: Any = span.attributes
        assert json.loads(attributes["gen_ai.tool.call.arguments"]) == {"service": self.CANARY}
        assert self.CANARY in attributes["gen_ai.tool.call.result"]

    @BOTH
    async def test_media_is_its_digest(self, captured: Captured, way: str) -> None:
        def picture() -> Any:
            """An image."""
            if sides.FIRST:
                from mcp.server.fastmcp import Image
            else:
                from mcp.server.mcpserver import Image
            return Image(data=b"\x89PNG" * 4096, format="png")

        picture.__annotations__.clear()
        async with connected(made((picture,)), way) as client:
            await client.call_tool("picture", {})
        (event,) = events(captured)
        (block,) = event["result"]["content"]
        assert (block["type"], block["mimeType"]) == ("image", "image/png")
        assert block["data"].startswith("sha256:")

    @BOTH
    async def test_every_kind_of_content_is_shown_as_on_the_wire(self, captured: Captured, way: str) -> None:
        from mcp import types

        document = {"uri": "memo://teams/a", "mimeType": "text/plain", "text": "memo"}
        given: list[dict[str, Any]] = [
            {"type": "text", "text": "x"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": document},
            {"type": "resource", "resource": {"uri": "memo://teams/b", "blob": "AAAA"}},
        ]
        kinds_of = {"text": types.TextContent, "image": types.ImageContent, "resource": types.EmbeddedResource}

        def everything() -> Any:
            """Each kind of block."""
            return [kinds_of[block["type"]].model_validate(block) for block in given]

        everything.__annotations__.clear()
        async with connected(made((everything,)), way) as client:
            result = await client.call_tool("everything", {})
        (event,) = events(captured)
        assert event["result"] == {"content": given}
        shown = [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in result.content]
        assert shown == given

    async def test_a_key_in_a_tools_name_and_uri(self, captured: Captured) -> None:
        async with connected(made(), "memory") as client:
            await client.call_tool("sk-abcdefghijklmnopqrstuvwx", {})
            await stops(client.read_resource(uri("memo://user:hunter22@teams/a")))
        shown = json.dumps(events(captured)) + "".join(
            span.to_json() for span in captured.spans() if "amfs" in span.instrumentation_scope.name
        )
        assert "sk-abc" not in shown
        assert "hunter22" not in shown


FORGED = "0123456789abcdef" * 2


@asynccontextmanager
async def client_elsewhere() -> AsyncIterator[Any]:
    """A client that has seen the tools, so that its calls are all that it asks for."""
    async with connected(made(), "memory") as client:
        await client.list_tools()
        yield client


class TestServer:
    """A server whose clients are elsewhere: here, below what is patched of a client."""

    async def test_a_call_is_a_trace_of_its_own(self, captured: Captured) -> None:
        async with client_elsewhere() as client:
            assert said(await bare_request(client, "look", {"service": "a"})) == "3 SEV-1 in a, depth 1"
        (found,) = captured.traces()
        assert (found["closed_by"], found["status"], found["inferred"]) == ("session_end", "complete", True)
        (event,) = found["events"]
        assert (event["kind"], event["tool_name"], event["source_name"]) == ("tool_call", "look", "memory")
        assert (event["served"], event["success"], event["arguments"]) == (True, True, {"service": "a"})
        assert event["result"]["content"] == [{"type": "text", "text": "3 SEV-1 in a, depth 1"}]
        assert event["request_id"].isdigit()
        served = [span for span in call_spans(captured) if span.kind is SpanKind.SERVER]
        assert [(span.name, span.instrumentation_scope.name) for span in served] == [("tools/call look", "amfs_otel")]

    async def test_errors(self, captured: Captured) -> None:
        async with client_elsewhere() as client:
            await bare_request(client, "boom", {})
            await bare_request(client, "nobody", None)
        assert [(event["status"], event["error_type"]) for event in events(captured)] == [("error", "tool_error")] * 2

    async def test_a_gateway_is_answered_with_what_it_says_itself(self, captured: Captured) -> None:
        """Its tool asks another server, whose answer is given inside the call of the gateway's."""
        inner = made(name="inner")

        async def ask(service: str) -> str:
            """Asks the other server."""
            async with connected(inner, "memory") as client:
                return "they say: " + said(await client.call_tool("look", {"service": service}))

        async with connected(made((ask,), name="gateway"), "memory") as client:
            await client.list_tools()
            answer = said(await bare_request(client, "ask", {"service": "a"}))
        assert answer == "they say: 3 SEV-1 in a, depth 1"
        found = {event["tool_name"]: event["result"]["content"] for event in events(captured)}
        assert found == {"ask": [{"type": "text", "text": answer}], "look": [{"type": "text", "text": answer[10:]}]}

    async def test_a_name_that_the_client_made_up_is_in_the_event_alone(
        self, captured: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else whoever calls a server makes as many spans' names and series of metrics as he likes."""
        reader = measured(captured, monkeypatch)
        async with client_elsewhere() as client:
            for number in range(3):
                await bare_request(client, f"made-up-{number}", {})
            await bare_request(client, "boom", {})
        assert [event["tool_name"] for event in events(captured)] == ["made-up-0", "made-up-1", "made-up-2", "boom"]
        spans = [span for span in call_spans(captured) if span.kind is SpanKind.SERVER]
        assert [span.name for span in spans] == [*["tools/call"] * 3, "tools/call boom"]
        assert [span.attributes.get("gen_ai.tool.name") for span in spans] == [*[None] * 3, "boom"]
        (metric,) = metrics_of(reader, "mcp.server.operation.duration")
        counted = {attributes.get("gen_ai.tool.name"): point[0] for attributes, point in metric.points}
        assert counted == {None: 3, "boom": 1}

    async def test_a_tool_becomes_known_when_a_call_of_it_is_answered_well(
        self, captured: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader, server = measured(captured, monkeypatch), made()
        async with connected(server, "memory") as client:
            for name, arguments in (("boom", {}), ("look", {"service": "a"}), ("boom", {}), ("look", {"service": "b"})):
                await bare_request(client, name, arguments)
        found = [(event["tool_name"], event.get("unlisted")) for event in events(captured)]
        assert found == [("boom", True), ("look", False), ("boom", True), ("look", None)]
        spans = [span for span in call_spans(captured) if span.kind is SpanKind.SERVER]
        assert [span.name for span in spans] == ["tools/call", "tools/call look", "tools/call", "tools/call look"]
        (metric,) = metrics_of(reader, "mcp.server.operation.duration")
        counted = {attributes.get("gen_ai.tool.name"): point[0] for attributes, point in metric.points}
        assert counted == {None: 2, "look": 2}

    async def test_a_server_that_answers_to_any_name_has_so_many_tools_at_most(
        self, captured: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_mcp_tools, "LIMIT", 2)
        server = object.__new__(type("Server", (), {}))
        _mcp_tools.learn(server, ["a", 7, "b", "c"])
        assert [_mcp_tools.is_known(server, name) for name in ("a", "<int>", "b", "c")] == [True, True, False, False]

    async def test_cancelled_by_the_client(self, captured: Captured) -> None:
        slow = Slow()
        async with connected(made((slow.waits,)), "memory") as client:
            await client.list_tools()
            task = asyncio.ensure_future(bare_request(client, "waits", {}))
            await sides.until(lambda: slow.begun)
            task.cancel()
            await stops(task)
        (event,) = events(captured)
        assert (event["tool_name"], event["status"]) == ("waits", "error")
        assert "Cancel" in event["error_type"]
        assert len([span for span in call_spans(captured) if span.kind is SpanKind.SERVER]) == 1

    async def test_a_parent_in_meta(self, captured: Captured) -> None:
        meta = {"traceparent": f"00-{FORGED}-00f067aa0ba902b7-01", "baggage": f"amfs.session.id={FORGED}"}
        async with client_elsewhere() as client:
            await bare_request(client, "look", {"service": "a"}, meta)
        (found,) = captured.traces()
        # 2.x's client writes a context of its own over the application's.
        assert sides.FIRST is (found["events"][0]["trace"] == FORGED)
        assert found["claimed_session"] == FORGED

    async def test_a_forged_session_joins_nothing(self, captured: Captured) -> None:
        session = capture.handle_session("session", "planner", None)
        token = capture.explicit_session.set(session)
        capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "x", "summary": "y"})
        capture.explicit_session.reset(token)
        async with client_elsewhere() as client:
            await bare_request(client, "look", {"service": "a"}, {"baggage": f"amfs.session.id={session.id}"})
        capture.close_session(session, ClosedBy.SESSION_END)
        served, planned = captured.traces()
        assert (served["opened_by"], served["claimed_session"]) == ("implicit", session.id)
        assert kinds(planned) == ["context"]

    async def test_a_session_that_is_trusted(
        self, captured_with: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        captured = captured_with(trust_baggage=True)
        native_spans_to(captured, monkeypatch)
        async with connected(made(), "memory") as client:
            await bare_request(client, "look", {"service": "a"}, {"baggage": f"amfs.session.id={FORGED}"})
        captured.close()
        (record,) = captured.records()
        assert (record.window.session, record.window.opened_by) == (FORGED, "remote")

    @pytest.mark.parametrize(
        "meta",
        [
            {"traceparent": 5, "baggage": ["x"], "tracestate": None},
            {"traceparent": "00-zz", "baggage": "%%%;;=,"},
            {"traceparent": {"a": "b"}, "progressToken": 3},
            {"baggage": "amfs.session.id=" + "x" * 9000},
        ],
    )
    async def test_meta_of_any_kind(self, captured: Captured, meta: dict[str, Any]) -> None:
        async with client_elsewhere() as client:
            assert said(await bare_request(client, "look", {"service": "a"}, meta)) == "3 SEV-1 in a, depth 1"
        assert guard.counters() == {}
        assert len(events(captured)) == 1

    @pytest.mark.parametrize("asks_for", ["a", "b"])
    async def test_whoever_received_a_call_cannot_hide_another_behind_it(
        self, captured: Captured, asks_for: str
    ) -> None:
        """A tool elsewhere calls back with the ids of the call that it serves: only that very call is the same one."""
        from amfs_otel_instrumentation import _mcp_sent

        here = made()

        async def look(service: str) -> str:
            """Asks the caller's own server."""
            for sent in _mcp_sent._sent.values():  # as though this ran elsewhere
                sent.taken = False
            current = trace.get_current_span().get_span_context()
            meta = {"traceparent": f"00-{current.trace_id:032x}-{current.span_id:016x}-01"}
            async with connected(here, IN_PROCESS[0]) as back:
                return said(await bare_request(back, "look", {"service": asks_for}, meta)) + service

        elsewhere = sides.new_server("elsewhere")
        elsewhere.tool()(look)
        async with connected(elsewhere, "memory") as client:
            await client.call_tool("look", {"service": "a"})
        found = [(event["arguments"]["service"], event.get("served")) for event in events(captured)]
        assert found == [("a", None), *([("b", True)] if asks_for == "b" else [])]


def test_two_processes(captured: Captured, tmp_path: Path) -> None:
    """A server under `amfs-otel run`: its trace is linked to the client's by the trace id, and claims its session."""
    served = asyncio.run(over_stdio(tmp_path / "state"))
    (asked,) = captured.close()
    (event,) = served.facts["events"]
    assert (event["tool_name"], event["served"], event["source_name"]) == ("look", True, "memory")
    assert event["trace"] == asked["events"][0]["trace"]
    (record,) = captured.records()
    assert served.facts["claimed_session"] == record.window.session
    assert served.facts["opened_by"] == "implicit"


def test_two_processes_that_trust_each_other(captured: Captured, tmp_path: Path) -> None:
    served = asyncio.run(over_stdio(tmp_path / "state", AMFS_OTEL_TRUST_BAGGAGE="true"))
    captured.close()
    (record,) = captured.records()
    assert served.facts["opened_by"] == "remote"
    assert served.record.session == record.window.session


async def over_stdio(state: Path, **settings: str) -> Spooled:
    env = environment(state, **settings)
    async with sides.connected_to_process(sides.program("stdio"), env) as client:
        assert said(await client.call_tool("look", {"service": "a"})) == "3 SEV-1 in a, depth 1"
    (found,) = [one for one in spooled(state) if one.kind == "decision"]
    return found


def test_two_processes_over_http(captured: Captured, tmp_path: Path) -> None:
    process = subprocess.Popen(
        sides.program("http"), env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        asyncio.run(over_http(f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"))
    finally:
        process.terminate()
        process.communicate(timeout=60)
    (asked,) = captured.close()
    served = [one.facts for one in spooled(tmp_path) if one.kind == "decision"]
    assert [(event["tool_name"], event["trace"]) for one in served for event in one["events"]] == [
        ("look", asked["events"][0]["trace"])
    ]


async def over_http(url: str) -> None:
    async with sides.connected_to_url(url) as client:
        assert said(await client.call_tool("look", {"service": "a"})) == "3 SEV-1 in a, depth 1"


def tasks_of(server: Any) -> None:
    """Has a server of late 1.x answer calls with tasks, in the way that it offers."""
    low = lowlevel(server)
    low.experimental.enable_tasks()

    @low.call_tool()
    async def call(name: str, _arguments: Any) -> Any:
        from mcp import types

        async def work(_task: Any) -> Any:
            return types.CallToolResult(content=[types.TextContent(type="text", text=f"done {name}")])

        return await low.request_context.experimental.run_task(work)


@pytest.mark.filterwarnings("ignore:The experimental tasks API")
async def test_a_call_that_becomes_a_task(captured: Captured) -> None:
    if not hasattr(mcp.ClientSession, "experimental"):
        not_run("tasks of mcp; those of 1.x came with 1.23 and went with 2.0")
    server = made()
    tasks_of(server)
    async with connected(server, "memory") as client:
        made_task = await client.experimental.call_tool_as_task("look", {"service": "a"})
    (event,) = events(captured)
    assert (event["tool_name"], event["status"], event["remote"], "success" in event) == (
        "look",
        "incomplete",
        True,
        False,
    )
    assert event["arguments"] == {"service": "a"}
    assert event["result"]["task"]["taskId"] == made_task.task.taskId
    (span,) = call_spans(captured)
    assert (span.name, span.kind) == ("tools/call look", SpanKind.CLIENT)


@pytest.mark.timeout(400)
def test_calls_that_become_tasks() -> None:
    """On the newest release that has them, in an environment of its own."""
    chosen = "becomes_a_task or every_hook or made_up or becomes_known or gateway"
    assert not_run_in("newest-mcp-1", [Path(__file__)], f"({chosen}) and not oldest") == {}


@pytest.mark.timeout(400)
def test_the_oldest_release() -> None:
    """This file on the oldest release, in an environment of its own."""
    done = subprocess.run(
        [python_of("oldest-mcp"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "default",
         __file__, "-k", "not oldest and not tasks"],
        capture_output=True, text=True, timeout=380, cwd=Path(__file__).parents[2], env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


# -- the contract of all patches --------------------------------------------------------------------------------------


@asynccontextmanager
async def contract_calls(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    """Those that the contract is tried with."""
    async with connected(made(), "memory") as client:

        async def tool_call() -> Any:
            return said(await client.call_tool("look", {"service": "checkout"}))

        async def resource() -> Any:
            return (await client.read_resource(uri("memo://teams/checkout"))).contents[0].text

        async def refused() -> Any:
            return await client.read_resource(uri("memo://nobody/x"))

        yield tool_call, resource, refused


CONTRACT = Contract(contract_calls, ("_mcp_fields",))
