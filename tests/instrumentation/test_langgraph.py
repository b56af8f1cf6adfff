"""The langgraph patch: runs of agents, interrupts and resumption, stores, checkpoints."""

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
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

from amfs_otel import guard, instrumentor
from amfs_otel.capture import Kind
from amfs_otel.capture.metrics import ClientMetrics
from tests.instrumentation.recording import Captured, kinds
from tests.support.environments import python_of
from tests.support.oracle import check_metrics, check_spans, failures
from tests.support.otlp_decode import metrics_from_request, span_from_readable

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


class TestCheckpoints:
    @pytest.mark.parametrize("make", [InMemorySaver, Saver])
    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_each_is_one_event(self, captured: Captured, make: Any, asynchronous: bool) -> None:
        saver: BaseCheckpointSaver[Any] = make()
        made = agent(checkpointer=saver)
        await made.ainvoke(ASKED, on("t")) if asynchronous else made.invoke(ASKED, on("t"))
        (found,) = captured.traces()
        written = of_kind(found, Kind.CHECKPOINT)
        assert {event["label"] for event in written} == {one.checkpoint["id"] for one in saver.list(on("t"))}
        assert len(written) == len({event["label"] for event in written})
        assert written[0]["phase"] == "input"
        assert {event["thread_id"] for event in written} == {"t"}

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


if __name__ == "__main__":
    part(Path(sys.argv[1]), sys.argv[2])
