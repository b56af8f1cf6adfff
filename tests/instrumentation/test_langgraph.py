"""The langgraph patch: runs of agents, interrupts and resumption, stores, checkpoints."""

import asyncio
import contextlib
import gc
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.base.batch import AsyncBatchedBaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from opentelemetry import context
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from amfs_otel import api, guard, instrumentor
from amfs_otel.capture import Kind
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.model import ClosedBy
from tests.instrumentation.contract import Call, Contract
from tests.instrumentation.recording import Captured, kinds
from tests.support.environments import python_of
from tests.support.oracle import check_metrics, check_spans, failures
from tests.support.otlp_decode import metrics_from_request, span_from_readable


def check_spans_lie_as_events(captured: Captured) -> None:
    """The span of each event's parent is its span's parent."""
    events = [event for trace in captured.close() for event in trace["events"]]
    spans = {format(span.context.span_id, "016x"): span for span in captured.spans()}
    of_event = {event["id"]: event["span"] for event in events}
    for event in events:
        if "parent" in event:
            above = spans[event["span"]].parent
            assert above is not None
            assert (event["kind"], format(above.span_id, "016x")) == (event["kind"], of_event[event["parent"]])


ASKED: Any = {"messages": [{"role": "user", "content": "deploy?"}]}


@pytest.fixture(autouse=True)
def instrumented(captured: Captured) -> None:
    instrumentor.instrument(["langchain", "langgraph"])


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


class Scripted(FakeMessagesListChatModel):
    """Asks for the tool `look`, then answers."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def scripted(said: int = 0) -> Scripted:
    call: Any = {"name": "look", "args": {"service": "checkout"}, "id": "call_1"}
    return Scripted(responses=[AIMessage("", tool_calls=[call]), AIMessage("roll back")], i=said)


def agent(look: Any = None, name: str = "deploy-agent", said: int = 0, **compiled: Any) -> Any:
    """A model that calls a tool, built from public parts that every version has."""

    @tool("look")
    def plain(service: str) -> str:
        """Looks at a service."""
        return f"3 SEV-1 in {service}"

    model = scripted(said)
    tools = [look or plain]
    graph: Any = StateGraph(State)

    def asks(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    graph.add_node("model", asks)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    made = graph.compile(**compiled)
    made.name = name
    return made


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def of_kind(trace: dict[str, Any], *wanted: Kind) -> list[dict[str, Any]]:
    return [event for event in trace["events"] if event["kind"] in wanted]


RUN = ["agent_run", "llm_call", "tool_call", "llm_call"]


class TestRuns:
    @pytest.mark.parametrize("way", ["invoke", "stream", "messages", "ainvoke", "astream"])
    async def test_a_run_is_a_trace(self, captured: Captured, way: str) -> None:
        made, config = agent(), on("thread-7")
        if way == "invoke":
            assert made.invoke(ASKED, config)["messages"][-1].content == "roll back"
        elif way == "ainvoke":
            assert (await made.ainvoke(ASKED, config))["messages"][-1].content == "roll back"
        elif way == "astream":
            assert [chunk async for chunk in made.astream(ASKED, config)]
        else:
            assert list(made.stream(ASKED, config, stream_mode="messages" if way == "messages" else "updates"))
        (found,) = captured.traces()
        assert {key: found[key] for key in ("agent", "session_id", "opened_by", "closed_by", "status")} == {
            "agent": "deploy-agent",
            "session_id": "thread-7",
            "opened_by": "langgraph",
            "closed_by": "run_end",
            "status": "complete",
        }
        assert kinds(found) == RUN
        run, *inside = found["events"]
        assert {event["parent"] for event in inside} == {run["id"]}
        call = inside[1]
        assert (call["call_id"], call["arguments"], call["result"]) == (
            "call_1",
            {"service": "checkout"},
            "3 SEV-1 in checkout",
        )
        spans = [span_from_readable(span) for span in captured.spans()]
        assert failures(check_spans(spans)) == []
        assert [span.name for span in spans][-1] == "invoke_agent deploy-agent"

    def test_an_unnamed_graph_has_the_programs_name(self, captured: Captured) -> None:
        agent(name="LangGraph").invoke(ASKED)
        (found,) = captured.traces()
        assert found["agent"] == "test-program"
        assert "session_id" not in found

    def test_a_graph_in_a_graph_is_a_step(self, captured: Captured) -> None:
        inner, outer = agent(name="helper"), cast("Any", StateGraph(State))
        outer.add_node("asks", inner)

        def calls(_state: Any) -> Any:
            return {"messages": inner.invoke(ASKED)["messages"]}

        outer.add_node("calls", calls)
        outer.add_edge(START, "asks")
        outer.add_edge("asks", "calls")
        made = outer.compile()
        made.name = "planner"
        made.invoke(ASKED)
        (found,) = captured.traces()
        root, *others = of_kind(found, Kind.AGENT_RUN)
        assert (root["agent_name"], [other["agent_name"] for other in others]) == ("planner", ["helper", "helper"])
        assert [other["parent"] for other in others] == [root["id"]] * 2
        assert {event["parent"] for event in of_kind(found, Kind.LLM_CALL)} == {other["id"] for other in others}

    @pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
    @pytest.mark.parametrize("below", ["nothing", "a span", "a session"])
    async def test_spans_of_a_run_in_a_run_are_below_it(self, captured: Captured, way: str, below: str) -> None:
        """As a node, called in a node and called in a tool; beside it the outer run's own calls stay where they are."""
        inner = agent(name="helper")
        tools: list[Any] = []
        if not way.startswith("a"):

            @tool
            def look(service: str) -> str:
                """Has a helper look."""
                return f"{service}: {inner.invoke(ASKED)['messages'][-1].content}"

            tools.append(look)
        graph: Any = StateGraph(State)
        own, asked = scripted(), agent(*tools, name="asker")

        async def acalls(state: Any) -> Any:
            await inner.ainvoke(ASKED)
            return {"messages": [await own.ainvoke(state["messages"])]}

        def calls(state: Any) -> Any:
            list(inner.stream(ASKED))
            return {"messages": [own.invoke(state["messages"])]}

        for name, node in (("node", inner), ("asks", asked), ("calls", acalls if way.startswith("a") else calls)):
            graph.add_node(name, node)
        graph.add_edge(START, "node")
        graph.add_edge("node", "asks")
        graph.add_edge("asks", "calls")
        planner = graph.compile()
        planner.name = "planner"
        with contextlib.ExitStack() as around:
            if below == "a span":
                around.enter_context(captured.provider.get_tracer("web").start_as_current_span("GET /"))
            elif below == "a session":
                around.enter_context(api.session("web"))
            if way in ("invoke", "stream"):
                assert list(planner.stream(ASKED)) if way == "stream" else planner.invoke(ASKED)
            elif way == "ainvoke":
                await planner.ainvoke(ASKED)
            else:
                assert [chunk async for chunk in planner.astream(ASKED)]
        check_spans_lie_as_events(captured)
        found = {span.context.span_id: span for span in captured.spans()}
        owners = [found[s.parent.span_id].name for s in found.values() if s.parent and s.name.startswith("chat")]
        helpers = 2 if tools == [] else 3
        assert sorted(owners) == sorted(
            ["invoke_agent helper"] * 2 * helpers + ["invoke_agent asker"] * 2 + ["invoke_agent planner"]
        )

    def test_a_span_of_the_program_in_a_nested_run_keeps_what_is_in_it(self, captured: Captured) -> None:
        """What the program made current is nearer than what the framework says."""
        model, inner, outer = scripted(), cast("Any", StateGraph(State)), cast("Any", StateGraph(State))

        def asks(state: Any) -> Any:
            with captured.provider.get_tracer("app").start_as_current_span("plan"):
                return {"messages": [model.invoke(state["messages"])]}

        inner.add_node("asks", asks)
        inner.add_edge(START, "asks")
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        outer.compile().invoke(ASKED)
        spans = {span.name.split()[0]: span for span in captured.spans()}
        assert spans["chat"].parent == spans["plan"].context

    def test_the_calls_of_a_run_are_measured(self, captured: Captured) -> None:
        reader = InMemoryMetricReader()
        captured.capture.metrics = ClientMetrics(MeterProvider([reader]).get_meter("amfs_otel"))
        agent().invoke(ASKED)
        metrics = {metric.name: metric for metric in metrics_from_request(encode_metrics(reader.get_metrics_data()))}
        assert failures(check_metrics(metrics.values())) == []
        told = {what: metrics[f"gen_ai.invoke_agent.{what}"].points for what in ("inference_calls", "tool_calls")}
        named = {"gen_ai.agent.name": "deploy-agent"}
        assert told == {"inference_calls": ((named, (1, 2)),), "tool_calls": ((named, (1, 1)),)}

    def test_at_once_in_bare_threads(self, captured: Captured) -> None:
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(agent().invoke, ASKED, on(f"t{number}")) for number in range(8)]:
                done.result()
        found = captured.traces()
        assert sorted(trace["session_id"] for trace in found) == [f"t{number}" for number in range(8)]
        assert [kinds(trace) for trace in found] == [RUN] * 8
        assert captured.close() == found

    async def test_at_once_in_tasks(self, captured: Captured) -> None:
        await asyncio.gather(*(agent().ainvoke(ASKED, on(f"t{number}")) for number in range(8)))
        assert [kinds(trace) for trace in captured.traces()] == [RUN] * 8

    def test_a_failing_node(self, captured: Captured) -> None:
        def broken(_state: Any) -> Any:
            raise RuntimeError("disk full")

        graph: Any = StateGraph(State)
        graph.add_node("broken", broken)
        graph.add_edge(START, "broken")
        with pytest.raises(RuntimeError, match="disk full"):
            graph.compile().invoke(ASKED)
        (found,) = captured.traces()
        (run,) = found["events"]
        assert (run["status"], run["error_type"], found["status"]) == ("error", "RuntimeError", "complete")

    @pytest.mark.parametrize("closed", [True, False])
    def test_a_stream_that_nobody_reads_on(self, captured: Captured, closed: bool) -> None:
        before = context.get_current()
        stream = agent().stream(ASKED)
        next(stream)
        assert context.get_current() is before
        if closed:
            stream.close()
        del stream
        gc.collect()
        captured.capture.windows.close_due()
        self.left_unread(captured, "closed_early" if closed else "abandoned")

    @pytest.mark.parametrize("closed", [True, False])
    async def test_an_asynchronous_stream_that_nobody_reads_on(self, captured: Captured, closed: bool) -> None:
        stream = agent().astream(ASKED)
        await anext(stream)
        if closed:
            await stream.aclose()
        del stream
        gc.collect()
        await asyncio.sleep(0)  # the loop closes what was collected, in a task
        await asyncio.gather(*(asyncio.all_tasks() - {cast("Any", asyncio.current_task())}))
        captured.capture.windows.close_due()
        self.left_unread(captured, "closed_early" if closed else "abandoned")

    def test_a_stream_that_another_holds_is_not_abandoned(self, captured: Captured) -> None:
        """An id of a frame is used again: what was abandoned before says nothing about the next stream."""
        for _ in range(3):
            next(agent().stream(ASKED))
            gc.collect()
            stream = agent().stream(ASKED)
            next(stream)
            stream.close()
        captured.capture.windows.close_due()
        left = [trace["events"][0]["stream_exit"] for trace in captured.traces()]
        assert sorted(left) == ["abandoned"] * 3 + ["closed_early"] * 3

    def left_unread(self, captured: Captured, exit_: str) -> None:
        (found,) = captured.traces()
        assert (found["closed_by"], found["status"]) == ("run_end", "incomplete")
        run = found["events"][0]
        assert (run["kind"], run["status"], run["stream_exit"]) == ("agent_run", "incomplete", exit_)

    def test_leaving_for_the_parent_graph_is_no_failure(self, captured: Captured) -> None:
        inner: Any = StateGraph(State)

        def leaves(_state: Any) -> Any:
            return Command(graph=Command.PARENT, goto="after")

        def after(_state: Any) -> Any:
            return {"messages": [AIMessage("done")]}

        inner.add_node("leaves", leaves)
        inner.add_edge(START, "leaves")
        outer: Any = StateGraph(State)
        outer.add_node("inner", inner.compile())
        outer.add_node("after", after)
        outer.add_edge(START, "inner")
        outer.add_edge("after", END)
        outer.compile().invoke(ASKED)
        (found,) = captured.traces()
        assert found["status"] == "complete"
        assert {event["status"] for event in found["events"]} == {"ok"}

    def test_capture_costs_no_result(self, captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
        from amfs_otel_instrumentation import langchain, langgraph

        def failing(*_args: Any, **_kwargs: Any) -> Any:
            raise ValueError("a mapping of ours")

        for module in (langchain, langgraph):
            for name in [name for name in vars(module) if "_from_" in name]:
                monkeypatch.setattr(module, name, failing)
        store = InMemoryStore()
        made = agent(checkpointer=InMemorySaver(), store=store)
        assert made.invoke(ASKED, on("t"))["messages"][-1].content == "roll back"
        store.put(("a",), "k", {"v": 1})
        found = store.get(("a",), "k")
        assert found is not None
        assert found.value == {"v": 1}
        assert guard.counters()


class TestInterrupts:
    def paused_and_resumed(self, captured: Captured, made: Any, answer: Any) -> list[dict[str, Any]]:
        made.invoke(ASKED, on("thread-7"))
        assert made.invoke(answer, on("thread-7"))["messages"][-1].content == "roll back"
        found = captured.traces()
        assert [trace["status"] for trace in found] == ["paused", "complete"]
        assert [trace["session_id"] for trace in found] == ["thread-7"] * 2
        assert len({trace["record_id"] for trace in found}) == 2
        assert all(event["status"] != "error" for trace in found for event in trace["events"])
        return found

    def test_in_a_tool(self, captured: Captured) -> None:
        @tool
        def look(service: str) -> str:
            """Asks somebody."""
            return cast("str", interrupt(f"may I look at {service}?"))

        made = agent(look, checkpointer=InMemorySaver())
        first, second = self.paused_and_resumed(captured, made, Command(resume="yes"))
        assert [call["status"] for call in of_kind(first, Kind.TOOL_CALL)] == ["incomplete"]
        assert [call["result"] for call in of_kind(second, Kind.TOOL_CALL)] == ["yes"]

    def test_before_a_node(self, captured: Captured) -> None:
        made = agent(checkpointer=InMemorySaver(), interrupt_before=["tools"])
        self.paused_and_resumed(captured, made, None)

    async def test_asynchronous(self, captured: Captured) -> None:
        made = agent(checkpointer=InMemorySaver(), interrupt_before=["tools"])
        await made.ainvoke(ASKED, on("t"))
        await made.ainvoke(None, on("t"))
        assert [trace["status"] for trace in captured.traces()] == ["paused", "complete"]

    def test_streamed(self, captured: Captured) -> None:
        made = agent(checkpointer=InMemorySaver(), interrupt_after=["model"])
        list(made.stream(ASKED, on("t")))
        list(made.stream(None, on("t")))
        assert [trace["status"] for trace in captured.traces()][:2] == ["paused", "paused"]

    def test_in_another_process(self, tmp_path: Path) -> None:
        def run(answer: str) -> Any:
            done = subprocess.run(
                [sys.executable, __file__, str(tmp_path / "threads"), answer],
                capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2],
                env={"PYTHONPATH": ".:instrumentation"},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        (first,), (second,) = run(""), run("yes")
        assert [first["session_id"], second["session_id"]] == ["thread-7"] * 2
        assert [first["status"], second["status"]] == ["paused", "complete"]


class Elsewhere(BaseStore):
    """A store as another package would bring it."""

    def __init__(self) -> None:
        self.inner = InMemoryStore()

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        return self.inner.batch(ops)

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        return self.batch(ops)


class Gathering(AsyncBatchedBaseStore):
    """A store whose calls are gathered by a task of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = InMemoryStore()

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        return self.inner.batch(ops)

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        return await self.inner.abatch(ops)


def memory(captured: Captured) -> list[tuple[Any, ...]]:
    """Kind, operation, path and key of all memory events."""
    return [
        (event["kind"], event["operation"], event.get("entity_path"), event.get("key"))
        for trace in captured.close()
        for event in of_kind(trace, Kind.MEMORY_READ, Kind.MEMORY_QUERY, Kind.MEMORY_WRITE)
    ]


EVERY = [
    ("memory_write", "put", "team/checkout", "retry"),
    ("memory_read", "get", "team/checkout", "retry"),
    ("memory_query", "search", None, None),
    ("memory_query", "list_namespaces", None, None),
    ("memory_write", "delete", "team/checkout", "retry"),
]
HERE = ("team", "checkout")


class TestStores:
    def test_what_was_read_and_written(self, captured: Captured) -> None:
        store = InMemoryStore()
        store.put(HERE, "retry", {"max": 3})
        item = store.get(HERE, key="retry")
        assert item is not None
        item.value["max"] = 99
        assert store.get(HERE, "none") is None
        assert len(store.search(("team",), filter={"max": 99}, limit=5)) == 1
        write, read, missed, query = captured.close()[0]["events"]
        assert (write["entity_path"], write["key"], write["value"]) == ("team/checkout", "retry", {"max": 3})
        assert (read["found"], read["value"], missed["found"]) == (True, {"max": 3}, False)
        assert query["parameters"] == {"entity_path": "team", "other_parameters": {"max": 99}, "limit": 5}
        assert query["results"] == [{"entity_path": "team/checkout", "key": "retry"}]
        spans = [span_from_readable(span) for span in captured.spans()]
        assert failures(check_spans(spans)) == []

    @pytest.mark.parametrize("make", [InMemoryStore, Elsewhere])
    def test_every_method(self, captured: Captured, make: Any) -> None:
        store = make()
        agent(store=store)
        store.put(HERE, "retry", {"max": 3})
        store.get(HERE, "retry")
        store.search(HERE)
        store.list_namespaces(prefix=("team",))
        store.delete(HERE, "retry")
        assert memory(captured) == EVERY

    @pytest.mark.parametrize("make", [InMemoryStore, Elsewhere, Gathering])
    async def test_every_asynchronous_method(self, captured: Captured, make: Any) -> None:
        store = make()
        agent(store=store)
        await store.aput(HERE, "retry", {"max": 3})
        await store.aget(HERE, "retry")
        await store.asearch(HERE)
        await store.alist_namespaces(prefix=("team",))
        await store.adelete(HERE, "retry")
        assert memory(captured) == EVERY

    @pytest.mark.parametrize("make", [InMemoryStore, Elsewhere, Gathering])
    async def test_a_batch_is_its_operations(self, captured: Captured, make: Any) -> None:
        store = make()
        agent(store=store)
        ops = [
            PutOp(HERE, "retry", {"max": 3}),
            GetOp(HERE, "retry"),
            SearchOp(HERE),
            ListNamespacesOp(),
            PutOp(HERE, "retry", None),
        ]
        assert len(await store.abatch(ops)) == 5
        assert memory(captured) == EVERY

    @pytest.mark.parametrize("failing", ["fields_from_arguments", "result_from_return"])
    def test_a_batch_of_which_one_cannot_be_mapped(
        self, captured: Captured, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        """It costs that one's facts; nothing is left open."""
        from amfs_otel_instrumentation import langgraph

        mapping = getattr(langgraph, failing)

        def fails_for_get(operation: str, given: Any) -> Any:
            if operation == "get":
                raise ValueError("a mapping of ours")
            return mapping(operation, given)

        monkeypatch.setattr(langgraph, failing, fails_for_get)
        InMemoryStore().batch([PutOp(HERE, "retry", {"max": 3}), GetOp(HERE, "retry"), SearchOp(HERE)])
        captured.capture.windows.close_all(ClosedBy.IDLE)
        (found,) = captured.traces()
        told = [(event["operation"], event["status"]) for event in found["events"]]
        read = [("get", "ok")] if failing == "result_from_return" else []
        assert told == [("put", "ok"), *read, ("search", "ok")]

    def test_a_store_that_answers_too_little(self, captured: Captured) -> None:
        class Terse(Elsewhere):
            def batch(self, ops: Iterable[Any]) -> list[Any]:
                return super().batch(ops)[:1]

        store = Terse()
        agent(store=store)
        store.batch([GetOp(HERE, "a"), GetOp(HERE, "b")])
        first, second = captured.close()[0]["events"]
        assert (first["status"], first["found"], second["status"]) == ("ok", False, "ok")
        assert "found" not in second

    def test_a_failing_store(self, captured: Captured) -> None:
        with pytest.raises(Exception, match="amespace"):
            InMemoryStore().put((), "k", {})
        (found,) = captured.close()
        assert found["events"][0]["status"] == "error"

    def test_in_a_tool_it_is_a_part_of_the_call(self, captured: Captured) -> None:
        store = InMemoryStore()

        @tool
        def look(service: str) -> str:
            """Remembers."""
            store.put(("seen",), service, {"n": 1})
            return "ok"

        agent(look, store=store).invoke(ASKED)
        (found,) = captured.traces()
        (call,), (write,) = of_kind(found, Kind.TOOL_CALL), of_kind(found, Kind.MEMORY_WRITE)
        assert write["parent"] == call["id"]


class Saver(InMemorySaver):
    """A checkpointer as another package would bring it."""

    def put(self, *args: Any, **kwargs: Any) -> Any:
        return super().put(*args, **kwargs)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)


class Threaded(InMemorySaver):
    """A checkpointer whose asynchronous methods ask the others in bare threads, with copies of what they were given."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        put = partial(self.put_writes, dict(config), list(writes), task_id, task_path)
        await asyncio.get_running_loop().run_in_executor(None, put)


class Full(InMemorySaver):
    """A checkpointer that has no room for writes."""

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        raise OSError("no space left")


def checkpoints(trace: dict[str, Any], operation: str) -> list[dict[str, Any]]:
    return [event for event in of_kind(trace, Kind.CHECKPOINT) if event["operation"] == operation]


class TestCheckpoints:
    @pytest.mark.parametrize("make", [InMemorySaver, Saver])
    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_each_is_one_event(self, captured: Captured, make: Any, asynchronous: bool) -> None:
        saver: BaseCheckpointSaver[Any] = make()
        made = agent(checkpointer=saver)
        await made.ainvoke(ASKED, on("t")) if asynchronous else made.invoke(ASKED, on("t"))
        (found,) = captured.traces()
        written = checkpoints(found, "put")
        assert {event["label"] for event in written} == {one.checkpoint["id"] for one in saver.list(on("t"))}
        assert len(written) == len({event["label"] for event in written})
        assert written[0]["phase"] == "input"
        assert {event["thread_id"] for event in written} == {"t"}

    @pytest.mark.parametrize("make", [InMemorySaver, Saver, Threaded])
    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_each_tasks_writes_are_one_event(self, captured: Captured, make: Any, asynchronous: bool) -> None:
        """What the saver holds of them: of which task, beside which checkpoint, to which channels."""
        saver: Any = make()
        made = agent(checkpointer=saver)
        await made.ainvoke(ASKED, on("t")) if asynchronous else made.invoke(ASKED, on("t"))
        (found,) = captured.traces()
        written = checkpoints(found, "put_writes")
        held = {
            (key[2], task, channel)
            for key, writes in saver.writes.items()
            for task, channel, *_ in (kept for kept in writes.values())
        }
        told = [(event["label"], event["task_id"], one["key"]) for event in written for one in event["writes"]]
        assert sorted(told) == sorted(held)
        assert len(written) == len({(event["label"], event["task_id"]) for event in written}) == 4
        assert all(event["write_count"] == len(event["writes"]) for event in written)
        assert {(event["thread_id"], event["parent"]) for event in written} == {("t", found["events"][0]["id"])}
        assert not any("value" in json.dumps(event) or "roll back" in json.dumps(event) for event in written)

    def test_an_interrupt_and_its_answer_are_writes(self, captured: Captured) -> None:
        @tool
        def look(service: str) -> str:
            """Asks somebody."""
            return cast("str", interrupt(f"may I look at {service}?"))

        made = agent(look, checkpointer=InMemorySaver())
        made.invoke(ASKED, on("t"))
        made.invoke(Command(resume="yes"), on("t"))
        first, second = (
            [one["key"] for event in checkpoints(trace, "put_writes") for one in event["writes"]]
            for trace in captured.traces()
        )
        assert "__interrupt__" in first
        assert "__resume__" in second

    def test_writes_that_fail_are_none(self, captured: Captured) -> None:
        saver = Full()
        agent(checkpointer=saver)
        with pytest.raises(OSError, match="no space"):
            saver.put_writes(on("t"), [("messages", 1)], "task-1")
        assert captured.close() == []

    def test_writes_of_any_shape(self, captured: Captured) -> None:
        """Many channels are counted, and what can be read but once is left to the saver."""

        class Taking(InMemorySaver):
            def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
                self.taken = list(writes)

        saver = Taking()
        agent(checkpointer=saver)
        config = {"configurable": {"thread_id": 7, "checkpoint_ns": "inner:1", "checkpoint_id": "c-1"}}
        for writes in ([(f"c{number}", number) for number in range(100)], ((f"c{n}", n) for n in range(100))):
            saver.put_writes(cast("Any", config), writes, "task-1")
            assert len(saver.taken) == 100
        many, once = checkpoints(captured.close()[0], "put_writes")
        assert (many["write_count"], [one["key"] for one in many["writes"]]) == (100, [f"c{n}" for n in range(20)])
        assert ("write_count" in once, once["task_id"]) == (False, "task-1")
        assert (once["thread_id"], once["namespace"], once["label"]) == ("7", "inner:1", "c-1")

    def test_taken_back_classes_are_as_they_were(self, captured: Captured) -> None:
        before = vars(Saver)["put"]
        agent(checkpointer=Saver())
        assert vars(Saver)["put"] is not before
        instrumentor.uninstrument()
        assert vars(Saver)["put"] is before


@pytest.mark.timeout(400)
def test_the_oldest_releases() -> None:
    """This file and its neighbour on the oldest releases, in an environment of their own."""
    python = python_of("oldest-langchain")
    folder = Path(__file__).parent
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "default",
         folder / "test_langchain.py", folder / "test_langgraph.py", "-k", "not oldest"],
        capture_output=True, text=True, timeout=380, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


class Kept(InMemorySaver):
    """Keeps its threads in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.path = path
        if path.exists():
            import pickle

            storage, writes, blobs = pickle.loads(path.read_bytes())
            for thread, spaces in storage.items():
                for space, checkpoints in spaces.items():
                    self.storage[thread][space].update(checkpoints)
            self.writes.update(writes)
            self.blobs.update(blobs)

    def save(self) -> None:
        import pickle

        storage = {
            thread: {space: dict(found) for space, found in spaces.items()} for thread, spaces in self.storage.items()
        }
        self.path.write_bytes(pickle.dumps((storage, dict(self.writes), dict(self.blobs))))


def part(path: Path, answer: str) -> None:
    """One process's part of an interrupted run; prints its traces."""
    from tests.support.capturing import capturing, resolved

    @tool
    def look(service: str) -> str:
        """Asks somebody."""
        return cast("str", interrupt(f"may I look at {service}?"))

    with capturing() as bench:
        instrumentor.instrument(["langchain", "langgraph"])
        saver = Kept(path)
        made = agent(look, checkpointer=saver, said=1 if answer else 0)
        made.invoke(Command(resume=answer) if answer else ASKED, on("thread-7"))
        saver.save()
        print(json.dumps([resolved(trace) for trace in bench.traces()]))


# -- the contract of all patches --------------------------------------------------------------------------------------


@asynccontextmanager
async def contract_calls(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    """Those that the contract is tried with."""

    class State(TypedDict):
        count: int

    class Broken(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            raise LookupError("no store")

    def count(state: State) -> State:
        return {"count": state["count"] + 1}

    graph: Any = StateGraph(State)
    graph.add_node("counts", count)
    graph.add_edge(START, "counts")
    graph.add_edge("counts", END)
    made, store, place = graph.compile(checkpointer=InMemorySaver()), InMemoryStore(), ("team", "checkout")

    async def put() -> Any:
        return store.put(place, "retry-pattern", {"max_retries": 3})

    async def get() -> Any:
        found: Any = await store.aget(place, "retry-pattern")
        return found.value

    async def search() -> Any:
        return [found.key for found in store.search(("team",))]

    async def batch() -> Any:
        return [found.value for found in store.batch([GetOp(place, "retry-pattern")])]

    async def run() -> Any:
        return made.invoke({"count": 1}, {"configurable": {"thread_id": "thread-7"}})

    async def refused() -> Any:
        return Broken().get(place, "retry-pattern")

    yield put, get, search, batch, run, refused


CONTRACT = Contract(contract_calls, ("_langgraph_memory",))


if __name__ == "__main__":
    part(Path(sys.argv[1]), sys.argv[2])
