"""Money from token counts."""

import hashlib
from importlib import metadata, resources

import pytest

from amfs_otel.graph.pricing import cost_of

CALL = {"kind": "llm_call", "provider": "openai", "model": "gpt-4o-mini", "input_tokens": 1000, "output_tokens": 100}


def test_derived_from_the_bundled_table_which_is_named():
    cost, source = cost_of(CALL)
    assert cost == pytest.approx(1000 * 0.15e-6 + 100 * 0.6e-6)
    content = resources.files("genai_prices").joinpath("data.py").read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:12]
    assert source == f"genai-prices/{metadata.version('genai-prices')} sha256:{digest}"


def test_input_tokens_include_the_cached_ones():
    cost, _ = cost_of(CALL | {"cached_tokens": 400})
    assert cost == pytest.approx(600 * 0.15e-6 + 400 * 0.075e-6 + 100 * 0.6e-6)


def test_reasoning_is_part_of_the_output_and_not_added():
    assert cost_of(CALL | {"reasoning_tokens": 60}) == cost_of(CALL)


def test_the_providers_word_counts():
    assert cost_of(CALL | {"reported_cost_usd": 0.5}) == (0.5, "provider")


def test_the_model_that_answered_is_priced_else_the_one_asked_for():
    assert cost_of(CALL | {"model": "my-alias", "response_model": "gpt-4o-mini-2024-07-18"}) == cost_of(CALL)
    assert cost_of(CALL | {"response_model": "no-such-model"}) == cost_of(CALL)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "no-such-model"},
        {"provider": "no-such-provider"},
        {"model": None},
        {"model": "text-embedding-3-small"},
        {"cached_tokens": 5000},
    ],
    ids=["model", "provider", "no model", "no rate for output", "counts that contradict each other"],
)
def test_unpriced(change):
    assert cost_of(CALL | change) == (None, "unpriced")


@pytest.mark.parametrize(
    "change",
    [{"input_tokens": None}, {"output_tokens": None}, {"output_tokens": -1}, {"input_tokens": "many"}],
)
def test_a_partial_sum_is_no_cost(change):
    assert cost_of(CALL | change) == (None, "no_usage")


def test_embeddings_have_no_output():
    call = CALL | {"kind": "embeddings", "model": "text-embedding-3-small", "output_tokens": None}
    assert cost_of(call)[0] == pytest.approx(1000 * 0.02e-6)


def test_conventions_names_of_providers():
    assert cost_of(CALL | {"provider": "azure.ai.openai"})[0] is not None
    assert cost_of(CALL | {"provider": "x_ai", "model": "grok-4"})[0] is not None
