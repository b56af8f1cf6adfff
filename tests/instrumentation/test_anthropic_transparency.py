"""The anthropic patch and the application: what it gets, and what it gets told, is what it would get without us."""

import asyncio
import copy
import inspect
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from amfs_otel import guard, instrumentor
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Reply
from amfs_otel.demo.wire_messages import message_body, message_events
from amfs_otel_instrumentation import _anthropic_facts as facts
from tests.instrumentation.anthropic_calls import (
    EVERYTHING,
    HELLO,
    MODEL,
    TOOLS,
    ask,
    model_events,
    model_spans,
    raw,
    request,
)
from tests.instrumentation.fuzzed_bodies import Bodies, outcome, spoiled
from tests.instrumentation.recording import Captured

FUZZED_BODIES = 300


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[Anthropic]:
    instrumentor.instrument(["anthropic"])
    with Anthropic(base_url=model_server.origin, api_key="test", max_retries=0) as made:
        yield made


@pytest.fixture
def bodies() -> Iterator[Bodies]:
    with Bodies() as made:
        yield made


def beta(client: Anthropic) -> Any:
    create: Any = client.beta.messages.create
    return create(**request())


def helped(client: Anthropic) -> Any:
    with client.messages.stream(**request()) as stream:
        return list(stream)


SURFACES: dict[str, Callable[[Anthropic], Any]] = {
    "plain": lambda client: ask(client, tools=TOOLS),
    "beta": beta,
    "raw": lambda client: raw(client).parse(),
    "stream": lambda client: ask(client, stream=True),
    "helper": helped,
}


def fuzzed_outcomes(client: Anthropic, bodies: Bodies) -> list[tuple[str, str]]:
    """What a fixed series of broken bodies gives, over all surfaces."""
    chance = random.Random(20260315)
    replies: list[Reply] = [EVERYTHING, Reply(text="Hi."), Reply(text="x", finish_reason="length")]
    found: list[tuple[str, str]] = []
    for number in range(FUZZED_BODIES):
        reply, surface = chance.choice(replies), chance.choice(list(SURFACES))
        if surface in ("stream", "helper"):
            bodies.media = "text/event-stream"
            bodies.body = b"".join(spoiled_event(event, chance) for event in message_events(reply, request(), number))
        else:
            bodies.media = "application/json"
            whole = json.loads(message_body(reply, request(), number))
            bodies.body = json.dumps(spoiled(whole, chance, 0.12)).encode()
        found.append(outcome(lambda: SURFACES[surface](client)))  # noqa: B023  called at once
    return found


def spoiled_event(event: bytes, chance: random.Random) -> bytes:
    head, _, data = event.partition(b"data: ")
    return head + b"data: " + json.dumps(spoiled(json.loads(data), chance, 0.05)).encode() + b"\n\n"


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_three_hundred_fuzzed_bodies_give_what_they_give_without_us(captured: Captured, bodies: Bodies) -> None:
    with Anthropic(base_url=bodies.origin, api_key="k", max_retries=0) as client:
        plain = fuzzed_outcomes(client, bodies)
        instrumentor.instrument(["anthropic"])
        ours = fuzzed_outcomes(client, bodies)
    assert ours == plain
    assert len({kind for kind, _ in plain}) > 3
    assert len(model_events(captured)) == len(model_spans(captured)) == FUZZED_BODIES
    assert guard.counters() == {}


def test_messages_and_tools_may_be_generators(captured: Captured, client: Anthropic, model_server: ModelServer) -> None:
    ask(client, messages=(message for message in HELLO), tools=(tool for tool in TOOLS))
    sent = model_server.exchanges[0].request
    assert (sent["messages"], sent["tools"]) == (HELLO, TOOLS)
    (event,) = model_events(captured)
    assert event["output_messages"][0]["parts"][0]["content"] == "You said: hello"


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_the_request_is_sent_unchanged(
    captured: Captured, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, enabled: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_OPEN_TELEMETRY", enabled)
    given: dict[str, Any] = {**request(), "messages": copy.deepcopy(HELLO), "tools": copy.deepcopy(TOOLS)}
    before = copy.deepcopy(given)
    with Anthropic(base_url=model_server.origin, api_key="k", max_retries=0) as client:
        ask(client, **given)
        instrumentor.instrument(["anthropic"])
        ask(client, **given, extra_body={"temperature": 0.5})
    assert given == before
    bare, ours = model_server.exchanges
    assert ours.request == {**bare.request, "temperature": 0.5}
    assert ours.headers.keys() - {"traceparent", "tracestate"} == bare.headers.keys() - {"traceparent", "tracestate"}


def test_a_wrong_argument_is_a_type_error_and_no_event(captured: Captured, client: Anthropic) -> None:
    with pytest.raises(TypeError):
        ask(client, nonsense=1)
    asynchronous: Any = AsyncAnthropic(base_url="http://127.0.0.1:9", api_key="k").messages.create
    with pytest.raises(TypeError):
        asyncio.run(asynchronous(**request(nonsense=1)))
    assert captured.close() == []


def test_signatures_and_kinds_of_functions_stay(captured: Captured) -> None:
    surfaces: Any = (Anthropic(api_key="k").messages, AsyncAnthropic(api_key="k").messages)

    def shown() -> list[Any]:
        return [
            (inspect.signature(x.create), inspect.iscoroutinefunction(x.create), x.create.__doc__) for x in surfaces
        ]

    before = shown()
    instrumentor.instrument(["anthropic"])
    assert shown() == before


@pytest.mark.parametrize("broken", ["request_fields", "reply_fields"])
def test_mappings_that_raise_never_reach_the_application(
    captured: Captured, client: Anthropic, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def raises(*_: Any) -> Any:
        raise ValueError("a mapping of ours")

    monkeypatch.setattr(facts, broken, raises)
    for _ in range(guard.LIMIT + 2):
        assert ask(client).content[0].text == "You said: hello"
    assert guard.counters()["anthropic"] == {
        "errors": guard.LIMIT,
        "cause": f"ValueError at {__name__}:{raises.__code__.co_firstlineno + 1}",
        "off": True,
    }
    assert len(model_events(captured)) == (0 if broken == "request_fields" else guard.LIMIT)


class Hostile(dict[str, Any]):
    """A dict whose own code must never run on our account."""

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    __hash__ = None  # type: ignore[assignment]


def test_values_of_any_kind_pass_and_are_bounded(captured: Captured, client: Anthropic) -> None:
    ask(client, messages=[{"role": "user", "content": "a\x00b" + "x" * 8_000_000}])
    ask(client, messages=[{"role": "user", "content": "hi", "odd": Hostile(a=1)}])
    first, second = model_events(captured)
    assert len(repr(first)) < 3_000_000
    assert second["input_messages"] == [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]


def test_what_is_recorded_is_what_was_sent(captured: Captured, client: Anthropic) -> None:
    messages = copy.deepcopy(HELLO)
    reply = ask(client, messages=messages)
    messages[0]["content"] = "changed"
    reply.content[0].text = "changed"
    (event,) = model_events(captured)
    assert event["input_messages"][0]["parts"][0]["content"] == "hello"
    assert event["output_messages"][0]["parts"][0]["content"] == "You said: hello"


def test_tasks_each_have_their_own_call(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["anthropic"])

    async def many() -> None:
        async with AsyncAnthropic(base_url=model_server.origin, api_key="k", max_retries=0) as client:
            create: Any = client.messages.create
            said = [[{"role": "user", "content": str(number)}] for number in range(10)]
            await asyncio.gather(*(create(model=MODEL, max_tokens=9, messages=messages) for messages in said))

    asyncio.run(many())
    events = model_events(captured)
    assert len(events) == len(model_spans(captured)) == 10
    for event in events:
        asked = event["input_messages"][0]["parts"][0]["content"]
        assert event["output_messages"][0]["parts"][0]["content"] == f"You said: {asked}"
        assert "parent" not in event


def test_an_error_of_the_network_is_the_sdks(captured: Captured) -> None:
    instrumentor.instrument(["anthropic"])
    with (
        Anthropic(base_url="http://127.0.0.1:9", api_key="k", max_retries=0) as client,
        pytest.raises(anthropic.APIConnectionError),
    ):
        ask(client)
    (event,) = model_events(captured)
    assert (event["status"], event["error_type"]) == ("error", "anthropic.APIConnectionError")
