"""Twenty-two faults that instrumentors of others have had, each as a small test of ours, named after its row.

Rows 1 to 5, 12, 13, 15 and 17 run on both clients' neighbours in `test_openai*` and `test_anthropic*` in more variants.
"""

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import openai
import pytest
from anthropic import Anthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from openai import AsyncOpenAI, OpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from amfs_otel import api, capture, guard, instrumentor
from amfs_otel.capture import streams
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Failure, Reply
from amfs_otel.model import ClosedBy
from amfs_otel.settings import LedgerContent
from amfs_otel_instrumentation import _openai_facts as facts
from tests.instrumentation.beside_others_program import Case
from tests.instrumentation.fuzzed_bodies import fuzzed_exchanges
from tests.instrumentation.openai_calls import HELLO, aask, ask, model_events, model_spans, only_event
from tests.instrumentation.recorded_exchanges import FOLDER, Clients, Provider, exchange_from
from tests.instrumentation.recording import Captured
from tests.instrumentation.serving import at_once
from tests.instrumentation.test_beside_others import (
    FAMILIES,
    ORDERS,
    assert_one_event,
    instrumentor_of,
    models_of_ours,
    run,
)
from tests.support.programs import ROOT, ran
from tests.support.spooled import spooled


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[OpenAI]:
    instrumentor.instrument(["openai", "anthropic", "langchain", "langgraph"])
    with OpenAI(base_url=model_server.base_url, api_key="test", max_retries=0) as made:
        yield made


@pytest.fixture
def aclient(captured: Captured, client: OpenAI, model_server: ModelServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=model_server.base_url, api_key="test", max_retries=0)


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    with Provider() as provider, Clients(provider) as made:
        yield made


def ends(captured: Captured) -> list[Any]:
    """How the streams of all spans ended."""
    return [span.attributes.get("amfs.stream.exit") for span in model_spans(captured)]


@tool
def echo(value: str) -> str:
    """Says it again."""
    return value


def test_01_early_close_is_one_span_with_its_partial_text(captured: Captured, client: OpenAI) -> None:
    with ask(client, "slow", stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    assert ends(captured) == ["closed_early"]
    assert only_event(captured)["output_messages"][0]["parts"][0]["content"] == "one"


def test_02_dropped_and_unread_streams_are_abandoned(captured: Captured, client: OpenAI) -> None:
    stream: Any = ask(client, stream=True)
    for _ in stream:
        break
    del stream, _
    gc.collect()
    stream = ask(client, stream=True)
    del stream
    gc.collect()
    assert ends(captured) == ["abandoned", "abandoned"]


def test_03_cancelled_while_reading_is_cancelled_and_quiet(
    captured: Captured, aclient: AsyncOpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    async def cancelled() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in await aask(aclient, "hang", stream=True):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with caplog.at_level(logging.DEBUG, "opentelemetry.context"):
        asyncio.run(cancelled())
    assert ends(captured) == ["cancelled"]
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


def test_04_an_async_generator_left_by_return_detaches_nothing(
    captured: Captured, aclient: AsyncOpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent() -> AsyncIterator[str]:
        async for chunk in await aask(aclient, stream=True):
            yield chunk.id

    async def first() -> str:
        async for found in agent():
            return found
        return ""

    async def leave() -> None:
        with captured.provider.get_tracer("callers").start_as_current_span("caller") as caller:
            assert await first()
            gc.collect()
            await asyncio.sleep(0)
            assert trace.get_current_span() is caller

    asyncio.run(leave())
    gc.collect()
    # httpx2 may lose a race between closing and collecting, which asyncio logs; the traceback then keeps the stream.
    streams.end_all()
    assert len(ends(captured)) == 1
    ours = ("amfs_otel", "opentelemetry")
    assert [record.getMessage() for record in caplog.records if record.name.startswith(ours)] == []


def test_05_a_timeout_inside_an_async_generator_fires(captured: Captured, aclient: AsyncOpenAI) -> None:
    async def agent() -> AsyncIterator[Any]:
        async with asyncio.timeout(0.1):
            async for chunk in await aask(aclient, "hang", stream=True):
                yield chunk

    async def read() -> None:
        async for _ in agent():
            pass

    with pytest.raises(TimeoutError):
        asyncio.run(read())
    assert len(model_spans(captured)) == 1


def test_06_fifty_sessions_with_three_tools_each_in_threads(captured: Captured, client: OpenAI) -> None:
    with ThreadPoolExecutor(8) as pool:

        def session(number: int) -> None:
            with api.session("agent", id=f"s{number}"):
                for place in range(3):
                    pool.submit(copy_context().run, echo.invoke, {"value": f"{number}.{place}"}).result()

        at_once(session, 50)
    found = captured.close()
    assert sorted(trace["session_id"] for trace in found) == sorted(f"s{number}" for number in range(50))
    for one in found:
        said = [event["arguments"]["value"] for event in one["events"] if event["kind"] == "tool_call"]
        assert said == [f"{one['session_id'][1:]}.{place}" for place in range(3)]
    roots = {span.context.span_id for span in captured.spans() if span.name.startswith("invoke_agent")}
    tools = [span for span in captured.spans() if span.name.startswith("execute_tool")]
    assert len(tools) == 150
    assert all(span.parent is not None and span.parent.span_id in roots for span in tools)


@pytest.mark.timeout(400)
def test_07_many_instrumentors_of_one_call_are_one_event() -> None:
    others = [instrumentor_of(family, "openai") for family in FAMILIES]
    for found in run([Case(order, "langchain", others) for order in ORDERS]):
        for call in found["calls"]:
            assert_one_event(call, "openai")
            assert models_of_ours(call) == []


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_08_native_spans_on_or_off_are_one_event(
    captured: Captured, client: OpenAI, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, enabled: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_OPEN_TELEMETRY", enabled)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", captured.provider)
    with Anthropic(base_url=model_server.origin, api_key="k") as theirs:
        theirs.messages.create(model="claude-sonnet-5", max_tokens=9, messages=[{"role": "user", "content": "hello"}])
    assert len(model_events(captured)) == len(model_spans(captured)) == 1


def test_09_a_method_and_the_one_that_it_overrides_are_one_event(captured: Captured, client: OpenAI) -> None:
    class Saver(InMemorySaver):
        def put(self, *args: Any, **kwargs: Any) -> Any:
            return super().put(*args, **kwargs)

    graph: Any = StateGraph(dict)
    graph.add_node("one", lambda _: {"a": 1})
    graph.add_edge(START, "one")
    saver = Saver()
    graph.compile(checkpointer=saver).invoke({"a": 0}, {"configurable": {"thread_id": "t"}})
    (found,) = captured.traces()
    written = [event["label"] for event in found["events"] if event["kind"] == "checkpoint"]
    assert sorted(written) == sorted(one.checkpoint["id"] for one in saver.list({"configurable": {"thread_id": "t"}}))


def test_10_a_run_counts_no_tokens_beside_its_leaf(
    captured: Captured, client: OpenAI, model_server: ModelServer
) -> None:
    model: Any = ChatOpenAI(base_url=model_server.base_url, api_key="k", model="gpt-4o-mini")
    graph: Any = StateGraph(dict)
    graph.add_node("one", lambda _: {"a": model.invoke("hello").content})
    graph.add_edge(START, "one")
    graph.add_edge("one", END)
    graph.compile().invoke({"a": 0})
    model.root_client.close()
    (found,) = captured.traces()
    assert [event["input_tokens"] for event in found["events"] if "input_tokens" in event] == [143]
    counted = [span for span in captured.spans() if "gen_ai.usage.input_tokens" in (span.attributes or {})]
    assert len(counted) == 1


@pytest.mark.parametrize(
    "name",
    [
        "chat_cached", "chat_cached_streamed", "chat_reasoning", "chat_reasoning_streamed", "chat_usage_split_over_chunks",
        "messages_cache_read_and_written", "messages_cache_read_and_written_streamed", "messages_usage_corrected",
        "messages_thinking_streamed", "responses_reasoning_streamed",
    ],
)  # fmt: skip
def test_11_the_usage_table(captured: Captured, client: OpenAI, clients: Clients, name: str) -> None:
    exchange = exchange_from(FOLDER / f"{name}.json")
    clients.play(exchange)
    event, usage = only_event(captured), exchange.expected["usage"]
    assert (event["input_tokens"], event["output_tokens"]) == (usage["input"], usage["output"])
    details = [event.get(fact) for fact in ("cached_tokens", "cache_write_tokens", "reasoning_tokens")]
    assert details == [usage[count] for count in ("cached", "cache_write", "reasoning")]


def test_12_a_stream_without_usage_is_unknown(captured: Captured, client: OpenAI, clients: Clients) -> None:
    clients.play(exchange_from(FOLDER / "chat_streamed_usage_not_asked_for.json"))
    (span,) = model_spans(captured)
    assert span.attributes["amfs.usage.unknown"] is True
    assert not [name for name in span.attributes if name.startswith("gen_ai.usage")]
    assert "input_tokens" not in only_event(captured)


def types_of_every_way(server: ModelServer) -> list[type]:
    """The types of what the caller gets, by each way of asking."""
    given: Any = {"model": "gpt-4o-mini", "messages": HELLO}
    with OpenAI(base_url=server.base_url, api_key="k") as client:
        completions: Any = client.chat.completions
        raw = completions.with_raw_response.create(**given)
        raw_stream = completions.with_raw_response.create(**given, stream=True)
        stream = raw_stream.parse()
        list(stream)
        with completions.with_streaming_response.create(**given) as streaming:
            found = [raw, raw.parse(), raw_stream, stream, streaming, streaming.parse(), completions.parse(**given)]
    return [type(item) for item in found]


def test_13_every_way_of_asking_gives_its_own_type_and_one_span(captured: Captured, model_server: ModelServer) -> None:
    alone = types_of_every_way(model_server)
    instrumentor.instrument(["openai"])
    assert types_of_every_way(model_server) == alone
    assert len(model_spans(captured)) == 4


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_14_nulls_and_fuzzed_bodies_change_no_result(captured: Captured, clients: Clients) -> None:
    nulls = [exchange_from(FOLDER / f"{name}.json") for name in ("chat_choices_null", "messages_content_null")]
    exchanges = [*nulls, *fuzzed_exchanges({"openai"}, 300, seed=3)]
    alone = [clients.play(exchange) for exchange in exchanges]
    instrumentor.instrument(["openai", "anthropic"])
    assert [clients.play(exchange) for exchange in exchanges] == alone
    assert len(model_events(captured)) == 302


def test_15_extractors_that_raise_change_nothing(
    captured: Captured, client: OpenAI, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: Any) -> Any:
        raise ValueError("ours")

    for name in ("chat_facts", "_request", "usage_from_openai"):
        monkeypatch.setattr(facts, name, raises)
    assert ask(client).choices[0].message.content == "You said: hello"
    model_server.queue(Reply(failure=Failure(429, "No.", "requests")))
    with pytest.raises(openai.RateLimitError):
        ask(client)
    assert guard.counters()["openai"]["errors"] == 2


def test_16_a_missing_target_is_named_and_the_rest_works(
    captured: Captured, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("openai.resources.embeddings.Embeddings.create")
    instrumentor.instrument(["openai"])
    with OpenAI(base_url=model_server.base_url, api_key="k") as client:
        ask(client)
    (state,) = [state for state in instrumentor.states() if state.name == "openai"]
    assert (state.state, state.missing) == ("partial", ["openai.resources.embeddings:Embeddings.create"])
    assert len(model_events(captured)) == 1
    instrumentor.uninstrument()


def test_17_undone_it_is_as_it_was(captured: Captured, model_server: ModelServer) -> None:
    from openai.resources.chat.completions import Completions

    before = vars(Completions)["create"]
    for _ in range(2):
        instrumentor.instrument(["openai"])
    instrumentor.uninstrument()
    assert vars(Completions)["create"] is before
    with OpenAI(base_url=model_server.base_url, api_key="k") as client:
        ask(client)
    assert captured.spans() == []


def test_18_a_secret_is_nowhere_by_default(
    captured: Captured, client: OpenAI, model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "canary-7Q2"
    model_server.queue(
        Reply(text=f"said {secret}"), Reply(failure=Failure(400, f"bad {secret}", "invalid_request_error"))
    )
    with caplog.at_level(logging.DEBUG, "amfs_otel"):
        asking = client.with_options(api_key=f"sk-{secret}")
        said: Any = [{"role": "user", "content": secret}]
        ask(asking, messages=said, metadata={"m": secret}, extra_headers={"x-mine": secret})
        with pytest.raises(openai.BadRequestError, match=secret):
            ask(asking, messages=said)
        echo.invoke({"value": secret})
        captured.capture.windows.close_all(ClosedBy.EXIT)
    told = [captured.traces(LedgerContent.DECISION), *(span.to_json() for span in captured.spans())]
    assert len(told) > 3
    assert secret not in repr(told)
    assert secret not in repr([record.getMessage() for record in caplog.records if record.name.startswith("amfs")])


def test_19_values_of_any_kind_are_digests_or_bounded(captured: Captured, client: OpenAI) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2_000_000}}
    ask(client, messages=[{"role": "user", "content": [image]}])

    @tool
    def odd(value: Any) -> Any:
        """Gives what JSON has no form for."""
        cycle: list[Any] = [float("nan"), 2**63, "\ud800", b"\x00\xff"]
        cycle.append(cycle)
        return cycle

    assert len(odd.invoke({"value": float("inf")})) == 5
    found = captured.close()
    stored = json.dumps(found)
    assert len(stored) < 64_000
    texts = [text for record in captured.records() for text in record.texts if text.media == "application/json"]
    assert all(json.loads(text.data or b"null", parse_constant=pytest.fail) is not None for text in texts)
    events = [event for one in found for event in one["events"]]
    assert [(event["kind"], event["status"]) for event in events] == [("llm_call", "ok"), ("tool_call", "ok")]
    assert "sha256" in json.dumps(events[0]["input_messages"])
    assert guard.counters() == {}


def test_20_after_a_fork_every_session_ends_and_nothing_is_doubled(tmp_path: Path) -> None:
    program = """
    tool("before")
    child = os.fork()
    if not child:
        with api.session("child"):
            tool("in the child")
        assert api.flush()
        os._exit(0)
    os.waitpid(child, 0)
    tool("after")
    """
    done = ran(program, tmp_path / "state")
    assert (done.code, done.err) == (0, "")
    records = spooled(tmp_path / "state")
    names = sorted([event["tool_name"] for event in one.facts["events"]] for one in records)
    assert names == [["before", "after"], ["in the child"]]
    assert len({one.facts["events"][0]["id"] for one in records}) == 2


def test_21_an_interrupt_is_resumed_in_another_process(tmp_path: Path) -> None:
    def part(answer: str) -> Any:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("test_langgraph.py"), tmp_path / "threads", answer],
            capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "instrumentation")])},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)
        return found

    first, second = part(""), part("yes")
    assert (first["status"], second["status"]) == ("paused", "complete")
    assert first["session_id"] == second["session_id"] == "thread-7"
    assert not [event for event in first["events"] if event["status"] == "error"]


def test_22_sampled_out_spans_leave_the_trace_whole(
    captured: Captured, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured.capture, "tracer", TracerProvider(sampler=ALWAYS_OFF).get_tracer("amfs_otel"))
    assert capture.active() is not None
    ask(client)
    echo.invoke({"value": "x"})
    found = captured.close()
    assert captured.spans() == []
    assert [event["kind"] for one in found for event in one["events"]] == ["llm_call", "tool_call"]
    assert found[0]["events"][0]["input_tokens"] == 143
