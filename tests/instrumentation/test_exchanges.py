"""What is captured of a call is what the provider's body says, in every recorded exchange.

Each is played without us and with us, by a synchronous and by an asynchronous client: what the caller gets is the same.
"""

from collections.abc import Callable, Iterator

import pytest

from amfs_otel import guard, instrumentor
from tests.instrumentation.entry_points import ENTRY_POINTS, endpoint_of, fitting
from tests.instrumentation.openai_calls import breaches, model_events, model_spans
from tests.instrumentation.recorded_exchanges import PROVIDERS, Clients, Exchange, Provider, all_exchanges, facts_of
from tests.instrumentation.recording import Captured

EXCHANGES = all_exchanges()
ATTRIBUTES = {
    "input": "gen_ai.usage.input_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_write.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}
"""A count of an exchange → the attribute of a span."""


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    with Provider() as provider, Clients(provider) as made:
        yield made


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


METHODS = {
    "openai": {
        "chat.completions": "create parse stream",
        "chat.completions.with_raw_response": "create parse",
        "chat.completions.with_streaming_response": "create parse",
        "beta.chat.completions": "create parse stream",
        "responses": "create parse stream",
        "responses.with_raw_response": "create parse",
        "responses.with_streaming_response": "create",
        "beta.responses": "create",
        "beta.responses.with_raw_response": "create",
        "beta.responses.with_streaming_response": "create",
        "embeddings": "create",
        "embeddings.with_raw_response": "create",
        "embeddings.with_streaming_response": "create",
    },
    "azure": {
        "chat.completions": "create parse stream",
        "responses": "create parse stream",
        "embeddings": "create",
    },
    "anthropic": {
        "messages": "create parse stream",
        "messages.with_raw_response": "create",
        "messages.with_streaming_response": "create",
        "beta.messages": "create parse stream",
        "beta.messages.with_raw_response": "create parse",
        "beta.messages.with_streaming_response": "create",
    },
}
"""What the SDKs offer to ask a model: client → resource → its methods. A stream is read from `create` and `stream`."""


def test_every_endpoint_is_covered() -> None:
    assert len(EXCHANGES) >= 60
    assert {exchange.client for exchange in EXCHANGES} == set(PROVIDERS)
    wanted = {
        (client, f"{resource}.{method}", streamed)
        for client, resources in METHODS.items()
        for resource, methods in resources.items()
        for method in methods.split()
        for streamed in ([False, True] if method == "create" and "embeddings" not in resource else [method == "stream"])
    }
    assert {(entry.client, entry.call, entry.streamed) for entry in ENTRY_POINTS} == wanted
    few = {str(entry): len(fitting(entry)) for entry in ENTRY_POINTS if len(fitting(entry)) < 5}
    assert few == {}
    recorded = {(exchange.client, endpoint_of(exchange.call), exchange.streamed) for exchange in EXCHANGES}
    assert recorded >= {(entry.client, endpoint_of(entry.call), entry.streamed) for entry in ENTRY_POINTS} - {
        ("azure", "responses", True)  # replayed from openai's
    }
