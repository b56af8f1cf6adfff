"""The anthropic patch and the application: what it gets, and what it gets told, is what it would get without us."""

import asyncio
import copy
import inspect
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import Message

from amfs_otel import guard, instrumentor
from amfs_otel.demo.model_server import ModelServer
from amfs_otel_instrumentation import _anthropic_facts as facts
from tests.instrumentation.anthropic_calls import HELLO, MODEL, TOOLS, ask, model_events, model_spans, request
from tests.instrumentation.recording import Captured


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[Anthropic]:
    instrumentor.instrument(["anthropic"])
    with Anthropic(base_url=model_server.origin, api_key="test", max_retries=0) as made:
        yield made


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


CITED = {"type": "char_location", "cited_text": "c", "document_index": 0, "start_char_index": 0, "end_char_index": 1}


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"type": "text", "text": "long " * 10_000}, [{"type": "text", "content": "long " * 10_000}]),
        ({"type": "text", "text": "so", "citations": [CITED]}, [{"type": "text", "content": "so"}]),  # holds a model
        ("no block", []),
    ],
    ids=["plain", "models", "others"],
)
def test_what_is_recorded_is_what_was_answered(block: Any, parts: list[Any]) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "find_order", "input": {"order": {"numbers": [73155]}}}
    reply: Any = Message.construct(content=[use, block], stop_reason="tool_use")
    given = facts.reply_fields(reply)
    reply.content[0].input["order"]["numbers"].append("changed")
    reply.content[0].name = "changed"
    reply.content.clear()
    assert given["requested_tools"] == [{"call_id": "t1", "tool_name": "find_order"}]
    told = given["output_messages"]
    call = {"type": "tool_call", "id": "t1", "name": "find_order", "arguments": {"order": {"numbers": [73155]}}}
    assert told.make(told.raw) == [{"role": "assistant", "parts": [call, *parts], "finish_reason": "tool_call"}]


def test_a_block_without_members_stays_one() -> None:
    told = facts.reply_fields({"content": [{}, "no block", None]})["output_messages"]
    assert told.make(told.raw) == [{"role": "assistant", "parts": [{"type": "unknown"}]}]


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
