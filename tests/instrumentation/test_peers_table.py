"""Twenty-two faults that instrumentors of others have had, each as a small test of ours, named after its row.

Rows 1 to 5, 12, 13, 15 and 17 run on both clients' neighbours in `test_openai*` and `test_anthropic*` in more variants.
"""

import asyncio
import gc
import inspect
import json
import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import wrapt
from anthropic import Anthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from openai import AsyncOpenAI, OpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from pydantic import SecretStr

from amfs_otel import api, guard, instrumentor
from amfs_otel.assemble.records import Origin, record_from_trace
from amfs_otel.capture import streams
from amfs_otel.chain.check import check_record
from amfs_otel.chain.keys import Key
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Failure, Reply
from amfs_otel.libraries import LIBRARIES, Library
from amfs_otel.model import ClosedBy
from amfs_otel.settings import LedgerContent
from tests.instrumentation import anthropic_calls
from tests.instrumentation.beside_others_program import Case
from tests.instrumentation.fuzzed_bodies import fuzzed_exchanges
from tests.instrumentation.openai_calls import HELLO, aask, ask, model_events, model_spans, only_event
from tests.instrumentation.peers_calls import SECRET, echo, odd_calls, secret_calls
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
from tests.instrumentation.test_contract import break_mapping, mappings_of, targets_of
from tests.support.environments import python_of
from tests.support.programs import ROOT, environment, ran
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


Asks = dict[str, Callable[..., Any]]
"""By library: asks a model, with the arguments of its call."""


@pytest.fixture
def asks(client: OpenAI, model_server: ModelServer) -> Iterator[Asks]:
    """Instrumented already: whoever wants it bare takes `uninstrument` first."""
    with Anthropic(base_url=model_server.origin, api_key="test", max_retries=0) as other:
        chat: Any = ChatOpenAI(base_url=model_server.base_url, api_key=SecretStr("k"), model="m", max_retries=0)
        yield {
            "openai": lambda **more: ask(client, **more).choices[0].message.content,
            "anthropic": lambda **more: anthropic_calls.ask(other, **more).content[0].text,
            "langchain": lambda **more: chat.invoke("hello", **more).content,
        }
        chat.root_client.close()


CLIENTS = pytest.mark.parametrize("library", ["openai", "anthropic"])
EACH = pytest.mark.parametrize("library", ["openai", "anthropic", "langchain"])


def row_of(name: str) -> Library:
    """The library's row in the table of libraries."""
    return next(library for library in LIBRARIES if library.name == name)


def ends(captured: Captured) -> list[Any]:
    """How the streams of all spans ended."""
    return [span.attributes.get("amfs.stream.exit") for span in model_spans(captured)]


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


@EACH
def test_06_fifty_sessions_with_three_tools_each_in_threads(captured: Captured, asks: Asks, library: str) -> None:
    """The threads serve all sessions at once; each tool asks a model in its thread."""

    def repeat(value: str) -> str:
        """Says it again, when it has asked a model."""
        asks[library]()
        return value

    plain = api.tool("repeat")(repeat)
    use = tool(repeat).invoke if library == "langchain" else lambda given: plain(**given)
    with ThreadPoolExecutor(16) as pool:

        def session(number: int) -> None:
            with api.session("agent", id=f"s{number}"):
                given = [f"{number}.{place}" for place in range(3)]
                running = [pool.submit(copy_context().run, use, {"value": one}) for one in given]
                assert [one.result() for one in running] == given

        at_once(session, 50)
    found = captured.close()
    assert sorted(trace["session_id"] for trace in found) == sorted(f"s{number}" for number in range(50))
    for one in found:
        tools = {event["id"]: event for event in one["events"] if event["kind"] == "tool_call"}
        said = sorted(event["arguments"]["value"] for event in tools.values())
        assert said == [f"{one['session_id'][1:]}.{place}" for place in range(3)]
        assert sorted(e["parent"] for e in one["events"] if e["kind"] == "llm_call") == sorted(tools)
        assert len(one["events"]) == 6
        assert not any(event.get("flags") for event in one["events"])
    check_no_orphans(captured, traces=50, spans=50 * (1 + 3 * 2))


def check_no_orphans(captured: Captured, *, traces: int, spans: int) -> None:
    """Every span leads to a root in its own trace."""
    found = {span.context.span_id: span for span in captured.spans()}
    assert len(found) == len(captured.spans()) == spans
    assert len({span.context.trace_id for span in found.values() if span.parent is None}) == traces
    for span in found.values():
        assert span.parent is None or found[span.parent.span_id].context.trace_id == span.context.trace_id


UNDER_THE_LAUNCHER = """
import sys
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Reply, Usage

library = sys.argv[1]
with ModelServer() as server:
    server.queue(Reply(text="yes", usage=Usage(11, 3, 0)))
    if library == "anthropic":
        import anthropic
        with anthropic.Anthropic(base_url=server.origin, api_key="k") as client:
            hello = [{"role": "user", "content": "hello"}]
            said = client.messages.create(model="m", max_tokens=9, messages=hello).content[0].text
    else:
        from langchain_openai import ChatOpenAI
        model = ChatOpenAI(base_url=server.base_url, api_key="k", model="m")
        said = model.invoke("hello").content
assert said == "yes", said
"""
"""One call, by a program without a line of instrumentation."""


def exported(text: str) -> list[dict[str, Any]]:
    """The spans that the console's exporter has printed."""
    spans: list[dict[str, Any]] = []
    while text := text.lstrip():
        span, end = json.JSONDecoder().raw_decode(text)
        spans.append(span)
        text = text[end:]
    return spans


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("library", "theirs"),
    [
        ("langchain", {"ChatOpenAI", "ChatCompletion", "openai.chat", "chat m", "POST"}),
        ("anthropic", {"messages.create", "anthropic.chat", "chat m", "POST"}),
    ],
)
def test_07_many_instrumentors_of_one_call_are_one_event(tmp_path: Path, library: str, theirs: set[str]) -> None:
    """Three vendors' of the client, three of langchain above it, that of httpx2 below: all loaded by the launcher."""
    python = python_of("beside-others")
    done = subprocess.run(
        [python.with_name("opentelemetry-instrument"), python, "-c", UNDER_THE_LAUNCHER, library],
        capture_output=True, text=True, timeout=120, check=False, cwd="/",
        env=environment(tmp_path, OTEL_TRACES_EXPORTER="console"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (record,) = spooled(tmp_path)
    (event,) = record.facts["events"]
    assert (event["kind"], event["status"], event["input_tokens"]) == ("llm_call", "ok", 11)
    spans = exported(done.stdout)
    (bearer,) = [span for span in spans if span["context"]["span_id"] == f"0x{event['span']}"]
    assert bearer["attributes"]["amfs.record.id"] == record.record.record_id
    names = [span["name"] for span in spans]
    assert sorted(name for name in names if not name.startswith("invoke_agent")) == sorted(theirs), names


@pytest.mark.timeout(400)
def test_07_in_both_orders_of_loading() -> None:
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
    written = [event["label"] for event in found["events"] if event.get("operation") == "put"]
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


SLACK_S = 0.1
"""What the fastest of a few calls may take longer than without us on a busy machine."""


@EACH
def test_15_extractors_that_raise_change_nothing(
    captured: Captured, asks: Asks, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """Every public function of the patch's mappings, all of them at once."""

    def outcomes() -> tuple[list[Any], float]:
        times_s: list[float] = []
        answers: list[Any] = []
        for _ in range(3):
            started_s = time.perf_counter()
            answers.append(asks[library]())
            times_s.append(time.perf_counter() - started_s)
        model_server.queue(Reply(failure=Failure(429, "No.", "requests")))
        with pytest.raises(Exception, match="No") as caught:
            asks[library]()
        return [*answers, type(caught.value), str(caught.value), type(caught.value.__cause__)], min(times_s)

    instrumentor.uninstrument()
    bare, bare_s = outcomes()
    instrumentor.instrument([library])
    for mapping in mappings_of(row_of(library)):
        break_mapping(mapping, monkeypatch)
    broken, broken_s = outcomes()
    assert broken == bare
    assert broken_s <= bare_s + SLACK_S
    counted = guard.counters()
    assert list(counted) == [library]
    assert counted[library]["errors"] == 4 * (2 if library == "langchain" else 1)  # its calls are announced first


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


@pytest.mark.parametrize("library", ["openai", "anthropic", "langchain", "langgraph"])
def test_17_undone_it_is_as_it_was(captured: Captured, asks: Asks, library: str) -> None:
    instrumentor.uninstrument()
    targets = list(targets_of(row_of(library)))
    for _ in range(2):
        instrumentor.instrument([library])
    assert all(isinstance(vars(t.parent)[t.attribute], wrapt.FunctionWrapper) for t in targets)
    instrumentor.uninstrument()
    assert [inspect.getattr_static(t.parent, t.attribute) for t in targets] == [t.original for t in targets]
    for ask_model in asks.values():
        assert ask_model()
    echo.invoke({"value": "x"})
    assert (captured.spans(), captured.close()) == ([], [])


@CLIENTS
def test_18_a_secret_is_nowhere_by_default(
    captured: Captured,
    model_server: ModelServer,
    client: OpenAI,
    caplog: pytest.LogCaptureFixture,
    library: str,
) -> None:
    """What goes on into Postgres is looked for in `tests/integration/test_peers_table_in_postgres.py`."""
    with caplog.at_level(logging.DEBUG, "amfs_otel"):
        secret_calls(library, model_server)
        captured.capture.windows.close_all(ClosedBy.EXIT)
    told = [captured.traces(LedgerContent.DECISION), *(span.to_json() for span in captured.spans())]
    assert len(told) > 3
    assert SECRET not in repr(told)
    assert SECRET not in repr([record.getMessage() for record in caplog.records if record.name.startswith("amfs")])


def innermost(result: Any) -> list[Any]:
    """The list at the bottom of a list that holds itself last: it is copied to a depth, and cut where it repeats."""
    while type(result[-1]) is list:
        result = result[-1]
    return result


@CLIENTS
def test_19_values_of_any_kind_are_digests_or_bounded(
    captured: Captured, client: OpenAI, model_server: ModelServer, library: str
) -> None:
    """The round trip through Postgres is in `tests/integration/test_peers_table_in_postgres.py`."""
    odd_calls(library, model_server)
    found = captured.close()
    assert len(json.dumps(found)) < 64_000
    texts = [text for record in captured.records() for text in record.texts if text.media == "application/json"]
    assert all(json.loads(text.data or b"null", parse_constant=pytest.fail) is not None for text in texts)
    events = [event for one in found for event in one["events"]]
    assert [(event["kind"], event["status"]) for event in events] == [("llm_call", "ok"), ("tool_call", "ok")]
    assert "sha256" in json.dumps(events[0]["input_messages"])
    assert {"$cut": "cycle"} in innermost(events[1]["result"])
    assert guard.counters() == {}


def test_20_after_a_fork_every_session_ends_and_nothing_is_doubled(tmp_path: Path) -> None:
    """How they are sealed is in `tests/integration/test_peers_table_in_postgres.py`."""
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


@EACH
def test_22_sampled_out_spans_leave_the_trace_whole(
    captured: Captured, asks: Asks, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """Nothing is lost against what a sampler that takes all leaves, and the record is signed."""
    shapes: list[Any] = []
    for sampler in (ALWAYS_ON, ALWAYS_OFF):
        captured.sink.messages.clear()
        captured.exporter.clear()
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(captured.exporter))
        monkeypatch.setattr(captured.capture, "tracer", provider.get_tracer("amfs_otel"))
        with api.session("agent"):
            assert asks[library]()
            assert echo.invoke({"value": "x"}) == "x"
        assert bool(captured.spans()) is (sampler is ALWAYS_ON)
        (found,) = captured.traces()
        drawn = ("id", "seq", "start_us", "end_us", "trace", "span", "response_id", "server_port")
        shapes.append([{key: e[key] for key in e if key not in drawn} for e in found["events"]])
    assert shapes[0] == shapes[1]
    assert [event["kind"] for event in shapes[1]] == ["llm_call", "tool_call"]
    assert shapes[1][0]["input_tokens"] == 143
    key, (trace_,) = Key(secrets.token_bytes(32)), captured.records()
    record = record_from_trace(trace_, log="default", key=key, origin=Origin({}), content=LedgerContent.DECISION)
    assert check_record(record, key) == []
    assert [f.code for f in check_record(record, Key(secrets.token_bytes(32)))] == ["BAD_SIGNATURE"]
