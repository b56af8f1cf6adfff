"""What is captured is what the provider's body says, through whichever method of the SDK it was asked.

Every recorded exchange is replayed through every method of its endpoint, without us and with us: by a synchronous and by
an asynchronous client in turn.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from amfs_otel import guard, instrumentor
from tests.instrumentation.entry_points import ENTRY_POINTS, EntryPoint, endpoint_of, fitting
from tests.instrumentation.fuzzed_bodies import FORMATS, Answer
from tests.instrumentation.openai_calls import breaches, model_events, model_spans
from tests.instrumentation.recorded_exchanges import PROVIDERS, Clients, Exchange, Provider, facts_of
from tests.instrumentation.recording import Captured

PARSING = [entry for entry in ENTRY_POINTS if entry.call.endswith(".parse") and ".with_" not in entry.call]
"""The methods that make a type of the reply before they give it."""


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    with Provider() as provider, Clients(provider) as made:
        yield made


def only_event(captured: Captured) -> dict[str, Any]:
    """The one model call since this was last asked."""
    (event,) = model_events(captured)
    captured.sink.messages.clear()
    return event


def differences(entry: EntryPoint, exchange: Exchange, event: dict[str, Any], seen: list[str]) -> dict[str, Any]:
    """What an event tells otherwise than the provider's body; facts → (told, expected).

    A method of the SDK may raise over a reply that `create` gives. Where it gives up a stream in the middle, what has
    not been read is unknown, and nothing else is told.
    """
    told, expected = facts_of(event), exchange.expected
    raised = seen[-1].partition(": ")[0].removeprefix("builtins.")
    if told["error_type"] == raised:
        expected = {**expected, "error_type": raised}
    if told["stream_exit"] == "closed_early" != expected["stream_exit"] and raised.endswith("Error"):
        assert entry.call.endswith(".stream")
        expected = {name: told[name] if unknown(told[name]) else value for name, value in expected.items()}
        expected["stream_exit"] = "closed_early"
    if entry in PARSING and exchange.name == "chat_custom_tool":
        expected = {**expected, "requested_tools": None}  # the SDK drops them from what it gives
    return {name: (told[name], value) for name, value in expected.items() if told[name] != value}


def unknown(value: Any) -> bool:
    """Whether nothing is told: of a usage, no count."""
    return value is None or (isinstance(value, dict) and set(value.values()) == {None})


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(("play", "turn"), [(Clients.play, 0), (Clients.play_async, 1)], ids=["play", "play_async"])
@pytest.mark.parametrize("entry", ENTRY_POINTS, ids=str)
def test_every_recorded_exchange_through(
    captured: Captured, clients: Clients, entry: EntryPoint, play: Callable[[Clients, Exchange], list[str]], turn: int
) -> None:
    exchanges = fitting(entry)[turn::2]
    alone = [play(clients, exchange) for exchange in exchanges]
    assert model_events(captured) == []
    instrumentor.instrument(["openai", "anthropic"])
    found: dict[str, Any] = {}
    for exchange, seen in zip(exchanges, alone, strict=True):
        assert play(clients, exchange) == seen, exchange.name
        event = only_event(captured)
        assert event["provider"] == PROVIDERS[entry.client]
        assert event["status"] == ("ok" if event.get("error_type") is None else "error")
        found[exchange.name] = differences(entry, exchange, event, seen)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert len(model_spans(captured)) == len(exchanges) > 0
    assert breaches(captured) == []
    assert guard.counters() == {}


@pytest.mark.parametrize("play", [Clients.play, Clients.play_async])
@pytest.mark.parametrize("entry", PARSING, ids=str)
def test_a_reply_that_parse_refuses_is_told_with_the_error(
    captured: Captured, clients: Clients, entry: EntryPoint, play: Callable[[Clients, Exchange], list[str]]
) -> None:
    instrumentor.instrument(["openai", "anthropic"])
    plain = next(exchange for exchange in fitting(entry) if exchange.name in ("chat_plain", "responses", "messages"))
    typed = replace(plain, request={**plain.request, FORMATS[endpoint_of(entry.call)]: Answer})
    error = play(clients, typed)[-1].partition(": ")[0]
    assert error == "pydantic_core._pydantic_core.ValidationError"
    event = only_event(captured)
    assert facts_of(event) == {**plain.expected, "error_type": error}
    assert (event["status"], event["output_messages"][0]["role"]) == ("error", "assistant")
    assert breaches(captured) == []
    assert guard.counters() == {}
