"""The openai patch and the application: what it gets, and what it gets told, is what it would get without us."""

import asyncio
import copy
import inspect
from collections.abc import Iterator
from typing import Any, cast

import pytest
from openai import AsyncOpenAI, OpenAI

from amfs_otel import guard, instrumentor
from amfs_otel.demo.model_server import ModelServer
from tests.instrumentation.openai_calls import HELLO, TAKES_GENERATORS, TOOLS, ask, model_events, model_spans
from tests.instrumentation.recording import Captured


@pytest.fixture
def client(captured: Captured, model_server: ModelServer) -> Iterator[OpenAI]:
    instrumentor.instrument(["openai"])
    with OpenAI(base_url=model_server.base_url, api_key="test", max_retries=0) as made:
        yield made


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
