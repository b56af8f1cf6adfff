"""The openai patch and the application: what it gets, and what it gets told, is what it would get without us."""

import asyncio
import copy
import inspect
import json
import random
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, cast

import pytest
from openai import AsyncOpenAI, OpenAI

from amfs_otel import guard, instrumentor
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import SCENARIOS
from amfs_otel.demo.wire import completion_body, completion_chunks
from amfs_otel.demo.wire_responses import response_body
from tests.instrumentation.openai_calls import (
    HAS_RESPONSES,
    HELLO,
    TAKES_GENERATORS,
    TOOLS,
    ask,
    model_events,
    model_spans,
    respond,
)
from tests.instrumentation.recording import Captured

FUZZED_BODIES = 300


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[OpenAI]:
    instrumentor.instrument(["openai"])
    with OpenAI(base_url=model_server.base_url, api_key="test", max_retries=0) as made:
        yield made


class Bodies:
    """A server that answers every request with the bytes put into it."""

    def __init__(self) -> None:
        self.body, self.media = b"", "application/json"
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", owner.media)
                self.send_header("content-length", str(len(owner.body)))
                self.end_headers()
                self.wfile.write(owner.body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the library's
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"


@pytest.fixture
def bodies() -> Iterator[Bodies]:
    made = Bodies()
    yield made
    made.http.shutdown()
    made.http.server_close()


WRONG: list[Any] = [
    None,
    0,
    -1,
    1.5,
    "text",
    "\ud800",
    "\x00",
    [],
    {},
    [None],
    [[]],
    {"a": None},
    True,
    2**63,
    "x" * 5000,
]


def spoiled(value: Any, chance: random.Random, probability: float) -> Any:
    """A copy of a JSON value in which some members are null, missing or of another type."""
    if chance.random() < probability:
        return copy.deepcopy(chance.choice(WRONG))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {k: spoiled(v, chance, probability) for k, v in members.items() if chance.random() >= probability / 2}
    if isinstance(value, list):
        return [spoiled(item, chance, probability) for item in cast("list[Any]", value)]
    return value


def outcome(call: Any) -> tuple[str, str]:
    """What a call gave or raised, comparable."""
    try:
        result = call()
        if hasattr(result, "__next__"):
            result = list(result)
    except Exception as error:
        return type(error).__qualname__, str(error)
    return type(result).__qualname__, repr(result)


def fuzzed_outcomes(client: OpenAI, bodies: Bodies) -> list[tuple[str, str]]:
    """What a fixed series of broken bodies gives, over all surfaces."""
    chance = random.Random(20260315)
    request: Any = {"model": "gpt-4o-mini", "messages": HELLO, "input": "hello"}
    replies = [SCENARIOS[name] for name in ("text-and-tools", "reasoning", "refusal")]
    calls: dict[str, Any] = {"chat": lambda: ask(client, tools=TOOLS), "stream": lambda: ask(client, stream=True)}
    if HAS_RESPONSES:
        calls["responses"] = lambda: respond(client)
    found: list[tuple[str, str]] = []
    for number in range(FUZZED_BODIES):
        reply, surface = chance.choice(replies), chance.choice(list(calls))
        if surface == "stream":
            events = [json.loads(chunk[6:]) for chunk in completion_chunks(reply, request, number)]
            bodies.media = "text/event-stream"
            sent = [json.dumps(spoiled(event, chance, 0.08)).encode() for event in events]
            bodies.body = b"".join(b"data: " + event + b"\n\n" for event in sent) + b"data: [DONE]\n\n"
        else:
            whole = (completion_body if surface == "chat" else response_body)(reply, request, number)
            bodies.media = "application/json"
            bodies.body = json.dumps(spoiled(json.loads(whole), chance, 0.12)).encode()
        found.append(outcome(calls[surface]))
    return found


def test_three_hundred_fuzzed_bodies_give_what_they_give_without_us(captured: Captured, bodies: Bodies) -> None:
    with OpenAI(base_url=bodies.base_url, api_key="k", max_retries=0) as client:
        plain = fuzzed_outcomes(client, bodies)
        instrumentor.instrument(["openai"])
        ours = fuzzed_outcomes(client, bodies)
    assert ours == plain
    assert len({kind for kind, _ in plain}) > 3
    assert len(model_events(captured)) == len(model_spans(captured)) == FUZZED_BODIES
    assert guard.counters() == {}


def test_messages_and_tools_may_be_generators(captured: Captured, client: OpenAI, model_server: ModelServer) -> None:
    given: dict[str, Any] = {"messages": (message for message in HELLO), "tools": (tool for tool in TOOLS)}
    if not TAKES_GENERATORS:
        with pytest.raises(TypeError, match="generator is not JSON serializable"):
            ask(client, **given)
        assert next(given["messages"]) == HELLO[0]
        return
    ask(client, **given)
    sent = model_server.exchanges[0].request
    assert (sent["messages"], sent["tools"]) == (HELLO, TOOLS)
    (event,) = model_events(captured)
    assert "input_messages" not in event
    assert event["output_messages"][0]["parts"][0]["content"] == "You said: hello"


def test_a_reply_may_be_sent_back_as_a_message(captured: Captured, client: OpenAI, model_server: ModelServer) -> None:
    message = ask(client, "tools", tools=TOOLS).choices[0].message
    answer = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "on its way"}
    ask(client, messages=[*HELLO, message, answer])
    assert model_server.exchanges[1].request["messages"][1]["tool_calls"][0]["id"] == "call_look_up_order"
    (trace,) = captured.close()
    second = trace["events"][-1]
    assert second["input_messages"][1]["parts"][0]["name"] == "look_up_order"
    assert [event["kind"] for event in trace["events"]] == ["llm_call", "tool_call", "llm_call"]


def test_the_request_is_sent_unchanged(captured: Captured, client: OpenAI, model_server: ModelServer) -> None:
    given: dict[str, Any] = {"model": "gpt-4o-mini", "messages": copy.deepcopy(HELLO), "tools": copy.deepcopy(TOOLS)}
    before = copy.deepcopy(given)
    client.chat.completions.create(**given, stream=True).response.close()
    assert given == before
    assert set(model_server.exchanges[0].request) == {"model", "messages", "tools", "stream"}


def test_a_wrong_argument_is_a_type_error_and_no_event(captured: Captured, client: OpenAI) -> None:
    with pytest.raises(TypeError):
        ask(client, nonsense=1)
    asynchronous: Any = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="k").chat.completions.create
    with pytest.raises(TypeError):
        asynchronous(model="m", messages=HELLO, nonsense=1)
    assert captured.close() == []


def test_signatures_and_kinds_of_functions_stay(captured: Captured) -> None:
    client, asynchronous = OpenAI(api_key="k").chat.completions, AsyncOpenAI(api_key="k").chat.completions
    before = [
        (inspect.signature(x.create), inspect.iscoroutinefunction(x.create), x.create.__doc__)
        for x in (client, asynchronous)
    ]
    instrumentor.instrument(["openai"])
    after = [
        (inspect.signature(x.create), inspect.iscoroutinefunction(x.create), x.create.__doc__)
        for x in (client, asynchronous)
    ]
    assert after == before
    assert "messages" in inspect.signature(type(client).create).parameters


@pytest.mark.parametrize("broken", ["request", "reply"])
def test_mappings_that_raise_never_reach_the_application(
    captured: Captured, client: OpenAI, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    from amfs_otel_instrumentation import _openai_facts as facts
    from amfs_otel_instrumentation import openai as patch

    def raises(*_: Any) -> Any:
        raise ValueError("a mapping of ours")

    surface = cast("Any", patch)._chat
    object.__setattr__(surface, broken, raises)
    try:
        for _ in range(guard.LIMIT + 2):
            assert ask(client).choices[0].message.content == "You said: hello"
    finally:
        object.__setattr__(surface, broken, {"request": facts.chat_request, "reply": facts.chat_reply}[broken])
    assert guard.counters()["openai"] == {
        "errors": guard.LIMIT,
        "cause": f"ValueError at {__name__}:{raises.__code__.co_firstlineno + 1}",
        "off": True,
    }
    assert len(model_events(captured)) == (0 if broken == "request" else guard.LIMIT)


class Hostile(dict[str, Any]):
    """A dict whose own code must never run on our account."""

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    __hash__ = None  # type: ignore[assignment]


def test_values_of_any_kind_pass_and_are_bounded(captured: Captured, client: OpenAI) -> None:
    text = "a\x00b" + "x" * 8_000_000
    ask(client, messages=[{"role": "user", "content": text}], user="u")
    ask(client, messages=[{"role": "user", "content": "hi", "odd": Hostile(a=1)}])
    first, second = model_events(captured)
    assert len(repr(first)) < 3_000_000
    assert second["input_messages"] == [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]


def test_threads_and_tasks_each_have_their_own_call(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["openai"])

    async def many() -> None:
        async with AsyncOpenAI(base_url=model_server.base_url, api_key="k", max_retries=0) as client:
            create: Any = client.chat.completions.create
            await asyncio.gather(
                *(create(model="gpt-4o-mini", messages=[{"role": "user", "content": str(n)}]) for n in range(10))
            )

    asyncio.run(many())
    events = model_events(captured)
    assert len(events) == len(model_spans(captured)) == 10
    for event in events:
        asked = event["input_messages"][0]["parts"][0]["content"]
        assert event["output_messages"][0]["parts"][0]["content"] == f"You said: {asked}"
        assert "parent" not in event
