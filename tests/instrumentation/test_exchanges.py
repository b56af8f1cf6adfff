"""What is captured of a call is what the provider's body says, in every recorded exchange.

Each is played without us and with us, by a synchronous and by an asynchronous client: what the caller gets is the same.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amfs_otel import guard, instrumentor
from tests.instrumentation.openai_calls import breaches, model_events, model_spans
from tests.instrumentation.recorded_exchanges import Clients, Exchange, Provider, all_exchanges, requested_tools
from tests.instrumentation.recording import Captured

EXCHANGES = all_exchanges()
COUNTS = {
    "input": "input_tokens",
    "cached": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
}
"""A count of an exchange → the fact of an event."""
ATTRIBUTES = {
    "input": "gen_ai.usage.input_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}
"""A count of an exchange → the attribute of a span."""
PROVIDERS = {"openai": "openai", "azure": "azure.ai.openai", "anthropic": "anthropic"}


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    with Provider() as provider, Clients(provider) as made:
        yield made


def facts_of(event: dict[str, Any]) -> dict[str, Any]:
    """The facts of an event under the names of an exchange."""
    names = ("response_model", "response_id", "finish_reasons", "error_type", "stream_exit", "attempts")
    counts = {name: event.get(fact) for name, fact in COUNTS.items()}
    return {"usage": counts, "requested_tools": requested_tools(event), **{name: event.get(name) for name in names}}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("play", [Clients.play, Clients.play_async])
@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_an_exchange(
    captured: Captured, clients: Clients, exchange: Exchange, play: Callable[[Clients, Exchange], list[str]]
) -> None:
    alone = play(clients, exchange)
    assert model_events(captured) == []
    instrumentor.instrument(["openai", "anthropic"])
    assert play(clients, exchange) == alone
    (event,) = model_events(captured)
    expected = exchange.expected
    assert facts_of(event) == expected
    assert event["status"] == ("ok" if expected["error_type"] is None else "error")
    assert event["provider"] == PROVIDERS[exchange.client]
    (span,) = model_spans(captured)
    told = {count: span.attributes.get(name) for count, name in ATTRIBUTES.items()}
    assert told == {count: expected["usage"][count] for count in ATTRIBUTES}
    assert span.attributes.get("gen_ai.response.model") == expected["response_model"]
    assert span.attributes.get("gen_ai.response.id") == expected["response_id"]
    assert span.attributes.get("gen_ai.response.finish_reasons") == expected["finish_reasons"]
    assert span.attributes.get("error.type") == expected["error_type"]
    assert breaches(captured) == []
    assert guard.counters() == {}


def test_every_endpoint_is_covered() -> None:
    assert len(EXCHANGES) >= 60
    assert {exchange.client for exchange in EXCHANGES} == set(PROVIDERS)
    calls = {(exchange.call, bool(exchange.request.get("stream"))) for exchange in EXCHANGES}
    created = ("chat.completions.create", "responses.create", "messages.create")
    assert calls >= {(call, stream) for call in created for stream in (False, True)} | {("embeddings.create", False)}
