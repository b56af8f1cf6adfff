"""The langchain patch: runs, model calls, tools and retrievals, with and without an instrumented client below."""

import asyncio
import copy
import gc
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManager
from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, tool
from openai import OpenAI
from opentelemetry import context, trace

from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture import Kind
from amfs_otel.capture.content import Masker
from amfs_otel.capture.span_content import Remembered, content_attributes
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.model import ClosedBy
from amfs_otel_instrumentation import langchain as patch
from amfs_otel_instrumentation._langchain_messages import request_from_start
from tests.instrumentation.contract import Call, Contract
from tests.instrumentation.recording import Captured
from tests.support.oracle import check_spans, failures
from tests.support.otlp_decode import span_from_readable

USAGE: Any = {
    "input_tokens": 30,
    "output_tokens": 12,
    "total_tokens": 42,
    "input_token_details": {"cache_read": 8},
    "output_token_details": {"reasoning": 5},
}


@pytest.fixture(autouse=True)
def instrumented(captured: Captured) -> None:
    instrumentor.instrument(["langchain", "langgraph", "openai"])


class Chunks(BaseChatModel):
    """Streams words; fails, or waits for ever, where it is told to."""

    words: tuple[str, ...] = ("roll", " back")
    fails_after: int | None = None
    waits: bool = False

    @property
    def _llm_type(self) -> str:
        return "chunks"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        if self.fails_after is not None:
            raise ValueError("no answer for you")
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="".join(self.words)))])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        if self.waits:
            await asyncio.Event().wait()
        return self._generate(messages)

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for number, word in enumerate(self.words):
            if number == self.fails_after:
                raise ValueError("broken stream")
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages):
            yield chunk


class Shelf(BaseRetriever):
    """Finds one document, or fails."""

    broken: bool = False

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if self.broken:
            raise LookupError("no shelf")
        return [Document("retry pattern v3", metadata={"key": "checkout/retry-pattern", "score": 0.9})]


@tool
def get_incidents(service: str) -> str:
    """Open incidents of a service."""
    return f"3 SEV-1 in {service}"


def events(captured: Captured, *kinds: Kind) -> list[dict[str, Any]]:
    return [event for trace in captured.close() for event in trace["events"] if not kinds or event["kind"] in kinds]


def only(captured: Captured, kind: Kind) -> dict[str, Any]:
    (event,) = events(captured, kind)
    return event


class TestModelCalls:
    def test_what_was_asked_and_answered(self, captured: Captured) -> None:
        call = {"name": "get_incidents", "args": {"service": "checkout"}, "id": "call_1"}
        answer = AIMessage("look", id="resp-7", tool_calls=[cast("Any", call)], usage_metadata=USAGE)
        answer.response_metadata = {"finish_reason": "tool_calls", "model_name": "gpt-x-2"}
        given = [SystemMessage("be brief"), HumanMessage("deploy?")]
        result = FakeMessagesListChatModel(responses=[answer]).invoke(given)
        assert result == answer
        event = only(captured, Kind.LLM_CALL)
        assert {key: event[key] for key in ("source", "operation", "provider", "status")} == {
            "source": "langchain",
            "operation": "chat",
            "provider": "fakemessageslistchatmodel",
            "status": "ok",
        }
        assert event["response_id"] == "resp-7"
        assert event["response_model"] == "gpt-x-2"
        assert event["finish_reasons"] == ["tool_calls"]
        assert [event[f"{name}_tokens"] for name in ("input", "cached", "output", "reasoning")] == [30, 8, 12, 5]
        assert event["requested_tools"] == [{"call_id": "call_1", "tool_name": "get_incidents"}]
        assert event["input_messages"] == [
            {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
            {"role": "user", "parts": [{"type": "text", "content": "deploy?"}]},
        ]
        assert event["output_messages"] == [
            {
                "role": "assistant",
                "finish_reason": "tool_call",
                "parts": [
                    {"type": "text", "content": "look"},
                    {
                        "type": "tool_call",
                        "id": "call_1",
                        "name": "get_incidents",
                        "arguments": {"service": "checkout"},
                    },
                ],
            }
        ]

    def test_a_completion_of_a_text(self, captured: Captured) -> None:
        assert FakeListLLM(responses=["yes"]).invoke("deploy?") == "yes"
        event = only(captured, Kind.LLM_CALL)
        assert event["operation"] == "text_completion"
        assert event["input_messages"][0]["parts"] == [{"type": "text", "content": "deploy?"}]
        assert event["output_messages"][0]["parts"] == [{"type": "text", "content": "yes"}]

    def test_a_failure_is_the_callers_and_an_error(self, captured: Captured) -> None:
        with pytest.raises(ValueError, match="no answer") as caught:
            Chunks(fails_after=0).invoke("deploy?")
        event = only(captured, Kind.LLM_CALL)
        assert (event["status"], event["error_type"]) == ("error", "ValueError")
        assert event["error_message"] == "no answer for you"
        assert "amfs_otel" not in "".join(str(frame) for frame in caught.traceback)

    def test_what_the_program_changes_afterwards_is_recorded_as_it_was(self, captured: Captured) -> None:
        given: list[BaseMessage] = [HumanMessage("deploy?")]
        Chunks().invoke(given)
        given[0].content = "something else"
        given.append(HumanMessage("more"))
        assert [m["parts"][0]["content"] for m in only(captured, Kind.LLM_CALL)["input_messages"]] == ["deploy?"]

    def test_a_batch_is_a_call_each(self, captured: Captured) -> None:
        Chunks().batch(["a", "b", "c"])
        texts = [event["input_messages"][0]["parts"][0]["content"] for event in events(captured, Kind.LLM_CALL)]
        assert sorted(texts) == ["a", "b", "c"]

    def test_a_cancelled_call(self, captured: Captured) -> None:
        async def cancelled() -> None:
            task = asyncio.create_task(Chunks(waits=True).ainvoke("deploy?"))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        assert only(captured, Kind.LLM_CALL)["error_type"].endswith("CancelledError")


class TestStreams:
    def test_read_to_the_end(self, captured: Captured) -> None:
        assert "".join(cast("str", chunk.content) for chunk in Chunks().stream("deploy?")) == "roll back"
        event = only(captured, Kind.LLM_CALL)
        assert (event["stream"], event["stream_exit"], event["status"]) == (True, "complete", "ok")
        assert event["chunks"] >= 2
        assert event["time_to_first_chunk_ms"] >= 0
        assert event["output_messages"][0]["parts"] == [{"type": "text", "content": "roll back"}]

    async def test_asynchronous(self, captured: Captured) -> None:
        assert [chunk async for chunk in Chunks().astream("deploy?")]
        assert only(captured, Kind.LLM_CALL)["stream_exit"] == "complete"

    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_a_request_that_is_changed_meanwhile_is_recorded_as_it_was(
        self, captured: Captured, asynchronous: bool
    ) -> None:
        """From the first chunk on the program has the word, and its messages are its own."""
        call: Any = {"name": "get_incidents", "args": {"service": "checkout"}, "id": "call_1"}
        asked = AIMessage("", tool_calls=[call])
        given: list[BaseMessage] = [HumanMessage("deploy?"), asked, HumanMessage([{"type": "text", "text": "now?"}])]

        def change() -> None:
            given[0].content = "something else"
            asked.tool_calls[0]["args"]["service"] = "another"
            cast("Any", given[2].content)[0]["text"] = "later?"
            given.append(HumanMessage("more"))

        if asynchronous:
            async for _ in Chunks().astream(given):
                change()
        else:
            for _ in Chunks().stream(given):
                change()
        first, second, third = only(captured, Kind.LLM_CALL)["input_messages"]
        assert first["parts"] == [{"type": "text", "content": "deploy?"}]
        assert [part["arguments"] for part in second["parts"]] == [{"service": "checkout"}]
        assert third["parts"] == [{"type": "text", "content": "now?"}]

    def test_closed_early(self, captured: Captured) -> None:
        stream = Chunks().stream("deploy?")
        next(iter(stream))
        cast("Any", stream).close()
        event = only(captured, Kind.LLM_CALL)
        assert (event["stream_exit"], event["status"], event["chunks"]) == ("closed_early", "ok", 1)

    def test_dropped(self, captured: Captured) -> None:
        next(iter(Chunks().stream("deploy?")))
        gc.collect()
        assert only(captured, Kind.LLM_CALL)["stream_exit"] == "closed_early"

    def test_broken(self, captured: Captured) -> None:
        with pytest.raises(ValueError, match="broken stream"):
            list(Chunks(fails_after=1).stream("deploy?"))
        event = only(captured, Kind.LLM_CALL)
        assert (event["stream_exit"], event["error_type"]) == ("error", "ValueError")

    def test_nothing_is_current_between_chunks(self, captured: Captured) -> None:
        before = context.get_current()
        for _ in Chunks().stream("deploy?"):
            assert context.get_current() is before


class TestClientBelow:
    """With the openai client instrumented, too, one call is one event and one span: the client's."""

    @pytest.fixture
    def model(self, model_server: ModelServer) -> Iterator[BaseChatModel]:
        from langchain_openai import ChatOpenAI

        made = ChatOpenAI(
            base_url=model_server.base_url, api_key="test", model="gpt-4o-mini", stream_usage=True, max_retries=0
        )
        yield made
        made.root_client.close()

    def one(self, captured: Captured, count: int = 1) -> list[dict[str, Any]]:
        found = events(captured, Kind.LLM_CALL)
        assert [event["source"] for event in found] == ["openai"] * count
        assert sum(span.name.startswith("chat") for span in captured.spans()) == count
        assert all(event["input_tokens"] for event in found)
        return found

    def test_invoke(self, captured: Captured, model: BaseChatModel) -> None:
        model.invoke("hello")
        self.one(captured)

    def test_stream(self, captured: Captured, model: BaseChatModel) -> None:
        assert list(model.stream("hello"))
        (event,) = self.one(captured)
        assert event["stream"] is True

    async def test_asynchronous(self, captured: Captured, model: BaseChatModel) -> None:
        await model.ainvoke("hello")
        assert [chunk async for chunk in model.astream("hello")]
        await cast("Any", model).root_async_client.close()
        self.one(captured, 2)

    @pytest.mark.filterwarnings("ignore:Unexpected type for token usage")
    async def test_several_at_once(self, captured: Captured, model: BaseChatModel) -> None:
        await model.agenerate([[HumanMessage("a")], [HumanMessage("b")]])
        await model.abatch(["c", "d"])
        await cast("Any", model).root_async_client.close()
        model.generate([[HumanMessage("e")], [HumanMessage("f")]])
        model.batch(["g", "h"])
        self.one(captured, 8)

    def test_a_call_between_two_chunks_is_another_call(
        self, captured: Captured, model: BaseChatModel, model_server: ModelServer
    ) -> None:
        with OpenAI(base_url=model_server.base_url, api_key="test") as client:
            stream = Chunks().stream("hello")
            next(iter(stream))
            client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "between"}])
            list(stream)
        assert sorted(event["source"] for event in events(captured, Kind.LLM_CALL)) == ["langchain", "openai"]

    def test_a_client_out_of_sight(self, captured: Captured, model: BaseChatModel, model_server: ModelServer) -> None:
        """In a thread without the context capture sees two calls; the trace tells of one, by the response's id."""
        client = OpenAI(base_url=model_server.base_url, api_key="test")

        class Elsewhere(Chunks):
            def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
                done: list[Any] = []
                ask = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}
                create: Any = client.chat.completions.create
                thread = threading.Thread(target=lambda: done.append(create(**ask)))
                thread.start()
                thread.join()
                message = AIMessage("ok", response_metadata={"id": done[0].id})
                return ChatResult(generations=[ChatGeneration(message=message)])

        with client:
            Elsewhere().invoke("hello")
        assert [event["source"] for event in events(captured, Kind.LLM_CALL)] == ["openai"]

    @pytest.mark.parametrize("streamed", [False, True])
    def test_the_clients_span_is_below_the_run_in_a_run(
        self, captured: Captured, model: BaseChatModel, streamed: bool
    ) -> None:
        outer = CallbackManager.configure().on_chain_start({}, {}, name="AgentExecutor")
        inner = outer.get_child().on_chain_start({}, {}, name="AgentExecutor")
        if streamed:
            assert list(model.stream("hello", {"callbacks": inner.get_child()}))
        else:
            model.invoke("hello", {"callbacks": inner.get_child()})
        inner.on_chain_end({})
        outer.on_chain_end({})
        self.one(captured)
        first, second, third = captured.spans()
        assert (first.parent, second.parent, third.parent) == (second.context, third.context, None)

    def test_the_clients_event_lies_where_the_framework_says(self, captured: Captured, model: BaseChatModel) -> None:
        @tool
        def ask() -> str:
            """Asks."""
            return cast("str", model.invoke("hello").content)

        ask.invoke({})
        trace_ = captured.close()[0]
        call, model_call = trace_["events"]
        assert (call["kind"], model_call["kind"]) == ("tool_call", "llm_call")
        assert model_call["parent"] == call["id"]


class TestTools:
    def test_arguments_and_result(self, captured: Captured) -> None:
        call = {"name": "get_incidents", "args": {"service": "checkout"}, "id": "call_9", "type": "tool_call"}
        get_incidents.invoke(cast("Any", call))
        event = only(captured, Kind.TOOL_CALL)
        assert (event["tool_name"], event["call_id"], event["success"]) == ("get_incidents", "call_9", True)
        assert event["arguments"] == {"service": "checkout"}
        assert event["result"] == "3 SEV-1 in checkout"

    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_its_body_runs_inside_it_and_nothing_is_left_behind(
        self, captured: Captured, asynchronous: bool
    ) -> None:
        seen: list[Any] = []

        @tool
        def outer(service: str) -> str:
            """Looks."""
            seen.append(trace.get_current_span())
            Shelf().invoke("retry")
            return get_incidents.invoke({"service": service})

        before = context.get_current()
        await outer.ainvoke({"service": "x"}) if asynchronous else outer.invoke({"service": "x"})
        assert context.get_current() is before
        first, retrieval, inner = events(captured)
        assert (retrieval["parent"], inner["parent"]) == (first["id"], first["id"])
        assert [span.name for span in captured.spans()][-2] == "execute_tool outer"
        assert format(seen[0].get_span_context().span_id, "016x") == first["span"]

    async def test_a_cancelled_tool_leaves_no_context(self, captured: Captured) -> None:
        @tool
        async def wait() -> str:
            """Waits."""
            await asyncio.Event().wait()
            return ""

        before = context.get_current()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await wait.ainvoke({})
        assert context.get_current() is before
        event = only(captured, Kind.TOOL_CALL)
        assert event["status"] in ("error", "incomplete")

    def test_a_failure(self, captured: Captured) -> None:
        @tool
        def broken() -> str:
            """Fails."""
            raise RuntimeError("disk full")

        with pytest.raises(RuntimeError, match="disk full"):
            broken.invoke({})
        event = only(captured, Kind.TOOL_CALL)
        assert (event["status"], event["error_type"], event["error_message"]) == ("error", "RuntimeError", "disk full")

    def test_a_context_that_was_lost_costs_no_event(self, captured: Captured) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(get_incidents.invoke, {"service": "checkout"}).result()
        (found,) = captured.close()
        assert (found["inferred"], found["events"][0]["kind"]) == (True, "tool_call")


class TestRetrieval:
    def test_documents_by_id_and_text(self, captured: Captured) -> None:
        assert Shelf().invoke("retry")[0].page_content == "retry pattern v3"
        event = only(captured, Kind.RETRIEVAL)
        assert (event["source_name"], event["query"], event["result_count"]) == ("Shelf", "retry", 1)
        assert event["results"] == [{"document_id": "checkout/retry-pattern", "score": 0.9}]
        assert event["documents"] == [{"id": "checkout/retry-pattern", "score": 0.9, "content": "retry pattern v3"}]

    def test_a_failure(self, captured: Captured) -> None:
        with pytest.raises(LookupError):
            Shelf(broken=True).invoke("retry")
        assert only(captured, Kind.RETRIEVAL)["error_type"] == "LookupError"


class TestChains:
    def test_a_chain_is_transparent(self, captured: Captured) -> None:
        """A prompt piped into a model is no agent: a loop of such calls is one trace."""
        chain = ChatPromptTemplate.from_messages([("user", "{question}")]) | Chunks()
        for question in ("deploy?", "now?"):
            chain.invoke({"question": question})
        (found,) = captured.close()
        assert [event["kind"] for event in found["events"]] == ["llm_call", "llm_call"]
        assert found["opened_by"] == "implicit"

    def test_the_classic_executor_is_an_agent(self, captured: Captured) -> None:
        manager = CallbackManager.configure()
        run = manager.on_chain_start({}, {}, name="AgentExecutor")
        Chunks().invoke("deploy?", {"callbacks": run.get_child()})
        run.on_chain_end({})
        (found,) = captured.traces()
        assert (found["opened_by"], found["closed_by"]) == ("langchain", str(ClosedBy.RUN_END))
        agent, call = found["events"]
        assert (agent["kind"], call["parent"]) == ("agent_run", agent["id"])

    def test_what_did_not_end_before_its_agent_is_left_incomplete(self, captured: Captured) -> None:
        run = CallbackManager.configure().on_chain_start({}, {}, name="AgentExecutor")
        child = run.get_child()
        child.on_tool_start({"name": "search"}, "x")
        child.on_chat_model_start({}, [[HumanMessage("deploy?")]])
        run.on_chain_error(KeyError("x"))
        (found,) = captured.traces()
        assert [(event["kind"], event["status"]) for event in found["events"]] == [
            ("agent_run", "error"),
            ("tool_call", "incomplete"),
            ("llm_call", "error"),
        ]


class TestTransparency:
    def test_taken_back_it_hears_nothing(self, captured: Captured) -> None:
        instrumentor.uninstrument(["langchain"])
        Chunks().invoke("deploy?")
        get_incidents.invoke({"service": "x"})
        assert captured.close() == []
        instrumentor.instrument(["langchain"])
        Chunks().invoke("deploy?")
        assert len(events(captured, Kind.LLM_CALL)) == 1

    def test_twice_is_once(self, captured: Captured) -> None:
        instrumentor.instrument(["langchain"])
        Chunks().invoke("deploy?")
        assert len(events(captured, Kind.LLM_CALL)) == 1

    def test_suppressed(self, captured: Captured) -> None:
        token = context.attach(context.set_value("suppress_instrumentation", True))
        try:
            Chunks().invoke("deploy?")
        finally:
            context.detach(token)
        assert captured.close() == []

    def test_copies_of_callbacks_hold_the_same_handler(self, captured: Captured) -> None:
        (ours,) = [h for h in CallbackManager.configure().handlers if type(h).__name__ == "AmfsOtelHandler"]
        assert copy.deepcopy(ours) is ours
        assert copy.copy(ours) is ours
        assert isinstance(ours, BaseCallbackHandler)

    def test_failures_of_ours_cost_the_event_only(self, captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
        def failing(*_args: Any, **_kwargs: Any) -> Any:
            raise ValueError("a mapping of ours")

        for name in ("request_from_start", "reply_from_result", "documents_from_result", "call_id_from_output"):
            monkeypatch.setattr(patch, name, failing)
        assert Chunks().invoke("deploy?").content == "roll back"
        assert get_incidents.invoke({"service": "x"}) == "3 SEV-1 in x"
        assert len(Shelf().invoke("retry")) == 1
        assert cast("int", guard.counters()["langchain"]["errors"]) >= 3

    @pytest.mark.parametrize("failing", ["call_id_from_output", "documents_from_result"])
    def test_a_result_that_cannot_be_mapped_leaves_nothing_open(
        self, captured: Captured, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        def fails(*_args: Any) -> Any:
            raise ValueError("a mapping of ours")

        monkeypatch.setattr(patch, failing, fails)
        run = CallbackManager.configure().on_chain_start({}, {}, name="AgentExecutor")
        get_incidents.invoke({"service": "x"}, {"callbacks": run.get_child()})
        Shelf().invoke("retry", {"callbacks": run.get_child()})
        assert captured.capture.windows.open_count() == 1
        assert [span.name for span in captured.spans()] == ["execute_tool get_incidents", "retrieval"]
        run.on_chain_end({})
        (found,) = captured.traces()
        _, call, retrieval = found["events"]
        assert (call["status"], retrieval["status"], found["status"]) == ("ok", "ok", "complete")
        assert ("result" in call, "results" in retrieval) == (
            failing != "call_id_from_output",
            failing != "documents_from_result",
        )

    def test_arguments_by_name(self, captured: Captured, caplog: pytest.LogCaptureFixture) -> None:
        """Other libraries call handlers with all arguments named."""
        run = CallbackManager.configure().on_chat_model_start({}, [[HumanMessage("deploy?")]])[0]
        run.on_llm_new_token(token="roll")
        run.on_llm_end(response=Chunks().generate([[HumanMessage("deploy?")]]))
        assert caplog.records == []

    def test_spans_follow_the_profile(self, captured: Captured) -> None:
        Shelf().invoke("retry")
        get_incidents.invoke({"service": "x"})
        list(Chunks().stream("deploy?"))
        captured.close()
        spans = [span_from_readable(span) for span in captured.spans()]
        assert failures(check_spans(spans)) == []

    def test_tools_keep_their_type(self, captured: Captured) -> None:
        assert isinstance(get_incidents, BaseTool)
        assert inspect.iscoroutinefunction(BaseTool.arun)


ORDER = """
import {first}
from amfs_otel import instrumentor
instrumentor.instrument(["langchain"])
import langchain_core.runnables, langchain_core.tools, langchain_core.retrievers, langchain_core.language_models
from langchain_core.callbacks import CallbackManager
manager = CallbackManager.configure()
assert "AmfsOtelHandler" in {{type(handler).__name__ for handler in manager.handlers}}, manager.handlers
instrumentor.settle("langchain")  # as the first run does
assert hasattr(langchain_core.tools.BaseTool.run, "__wrapped__")
(state,) = instrumentor.states()
assert (state.state, state.missing) == ("patched", []), state
"""


@pytest.mark.parametrize(
    "first",
    ["langchain_core.tools", "langchain_core.tracers"],
)
def test_any_order_of_imports(first: str) -> None:
    done = subprocess.run([sys.executable, "-c", ORDER.format(first=first)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["langchain_core.tools", "langchain_core.tracers.context"])
def test_instrumented_before_anything_is_imported(module: str) -> None:
    program = f"from amfs_otel import instrumentor\ninstrumentor.instrument(['langchain'])\nimport {module}\n"
    done = subprocess.run(
        [sys.executable, "-c", program + ORDER.format(first="sys")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "amfs-otel" not in done.stderr


def test_a_run_that_never_ends_makes_way(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    from amfs_otel_instrumentation import _langchain_runs as runs

    monkeypatch.setattr(runs, "REMEMBERED_RUNS", 3)
    monkeypatch.setattr(runs, "_runs", {})
    for _ in range(5):
        CallbackManager.configure().on_tool_start({"name": "endless"}, "x")
    assert len(runs._runs) == 3


async def test_no_run_is_known_when_all_are_over(captured: Captured) -> None:
    """Neither what ended, nor what was cancelled, transparent runs in it or not, inside an agent's run or outside."""
    from amfs_otel_instrumentation import _langchain_runs as runs

    @tool
    async def waits() -> str:
        """Waits in a chain for a model."""
        return (await (ChatPromptTemplate.from_messages([("user", "deploy?")]) | Chunks(waits=True)).ainvoke({})).text

    async def cancelled(callbacks: Any) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await waits.ainvoke({}, {"callbacks": callbacks})

    before = set(runs._runs)
    await cancelled([])
    run = CallbackManager.configure().on_chain_start({}, {}, name="AgentExecutor")
    child = run.get_child()
    await cancelled(child)
    (ChatPromptTemplate.from_messages([("user", "deploy?")]) | Chunks()).invoke({}, {"callbacks": child})
    child.on_chain_start({}, {}, name="left open")
    run.on_chain_end({})
    assert set(runs._runs) == before
    statuses = [(event["kind"], event["status"]) for trace in captured.close() for event in trace["events"]]
    cut = [("tool_call", "error"), ("llm_call", "error")]
    assert sorted(statuses) == sorted([("agent_run", "ok"), ("llm_call", "ok"), *cut, *cut])


def test_an_explicit_session_holds_the_run(captured: Captured) -> None:
    session = capture.Session("session", "planner")
    capture.explicit_session.set(session)
    run = CallbackManager.configure().on_chain_start({}, {}, name="AgentExecutor")
    run.on_chain_end({})
    capture.explicit_session.set(None)
    capture.close_session(session, ClosedBy.SESSION_END)
    (found,) = captured.traces()
    assert (found["agent"], found["opened_by"], found["closed_by"]) == ("planner", "session", "session_end")


# -- the contract of all patches --------------------------------------------------------------------------------------


@asynccontextmanager
async def contract_calls(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    """Those that the contract is tried with."""

    class Shelf(BaseRetriever):
        broken: bool = False

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            if self.broken:
                raise LookupError("no shelf")
            return [Document("retry pattern v3", metadata={"key": "checkout/retry-pattern"})]

    @tool
    def look(service: str) -> str:
        """Looks at a service."""
        return f"3 SEV-1 in {service}"

    model = FakeMessagesListChatModel(responses=[AIMessage("roll back")])
    asked: Any = {"name": "look", "args": {"service": "checkout"}, "id": "call_1", "type": "tool_call"}

    async def plain() -> Any:
        return model.invoke("deploy?").content

    async def awaited() -> Any:
        return (await model.ainvoke("deploy?")).content

    async def tool_call() -> Any:
        return look.invoke(asked).content

    async def retrieval() -> Any:
        return [found.page_content for found in Shelf().invoke("retry")]

    async def refused() -> Any:
        return Shelf(broken=True).invoke("retry")

    yield plain, awaited, tool_call, retrieval, refused


CONTRACT = Contract(contract_calls, ("_langchain_messages",))


def test_a_prompt_of_a_class_of_its_own_is_the_text_that_it_is(captured: Captured) -> None:
    class Prompt(str):  # noqa: SLOT000  an application's
        """A text as templates of applications make them; it can have attributes."""

    FakeListLLM(responses=["a"]).generate([Prompt("What holds?")])
    assert "What holds?" in str(only(captured, Kind.LLM_CALL)["input_messages"])


def test_a_message_that_was_said_before_looks_on_a_span_as_it_is_now() -> None:
    call: Any = {"name": "get_incidents", "args": {"service": "checkout"}, "id": "call_1"}
    broken: Any = {"name": "get_incidents", "args": "{", "id": "call_3", "error": None, "type": "invalid_tool_call"}
    asked, answer = AIMessage("", tool_calls=[call]), ToolMessage("none", tool_call_id="call_1")
    given, other = HumanMessage([{"type": "text", "text": "now?"}]), ChatMessage("so be it", role="critic")
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: setattr(answer, "content", "two"),
        lambda: setattr(answer, "tool_call_id", "call_2"),
        lambda: setattr(other, "name", "ada"),
        lambda: setattr(other, "role", "judge"),
        lambda: asked.tool_calls[0]["args"].update(service="payments"),
        lambda: asked.invalid_tool_calls.append(broken),
        lambda: cast("Any", given.content)[0].update(text="later?"),
        lambda: setattr(given, "type", "system"),
    ]
    remembered, before = Remembered(), dict[str, Any]()
    for change in changes:
        change()
        fields = request_from_start([given, asked, answer, other], {}, {}, streamed=False)
        for _ in range(2):
            shown = content_attributes(Kind.LLM_CALL, fields, Masker(), None, remembered)
            assert shown == content_attributes(Kind.LLM_CALL, fields, Masker(), None)
        assert shown != before
        before = shown
