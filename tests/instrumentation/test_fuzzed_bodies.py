"""What the application gets of a body that no provider sends is what it would get without us."""

import gc
from collections.abc import Callable, Iterator

import pytest

from amfs_otel import guard, instrumentor
from tests.instrumentation.entry_points import ENTRY_POINTS
from tests.instrumentation.fuzzed_bodies import fuzzed_exchanges
from tests.instrumentation.openai_calls import model_events, model_spans
from tests.instrumentation.recorded_exchanges import Clients, Exchange, Provider
from tests.instrumentation.recording import Captured

FUZZED_BODIES = 301
"""More than three hundred, of each library and each kind of client."""


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    with Provider() as provider, Clients(provider) as made:
        yield made


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("play", [Clients.play, Clients.play_async])
@pytest.mark.parametrize(
    ("of", "seed"), [({"openai", "azure"}, 20260315), ({"anthropic"}, 20260316)], ids=["openai", "anthropic"]
)
def test_fuzzed_bodies_give_what_they_give_without_us(
    captured: Captured, clients: Clients, of: set[str], seed: int, play: Callable[[Clients, Exchange], list[str]]
) -> None:
    exchanges = fuzzed_exchanges(of, FUZZED_BODIES, seed)
    assert {exchange.call for exchange in exchanges} == {entry.call for entry in ENTRY_POINTS if entry.client in of}
    plain = [play(clients, exchange) for exchange in exchanges]
    instrumentor.instrument(["openai", "anthropic"])
    for exchange, seen in zip(exchanges, plain, strict=True):
        assert play(clients, exchange) == seen, (exchange.name, exchange.call)
    assert len({seen[-1].partition(" ")[0] for seen in plain}) > 10
    gc.collect()
    assert len(model_events(captured)) == len(model_spans(captured)) == FUZZED_BODIES
    assert guard.counters() == {}
