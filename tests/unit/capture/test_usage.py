"""Token counts as langchain's integrations tell them."""

from typing import Any

import pytest

from amfs_otel.capture.usage import usage_from_langchain

LIFETIMES = {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}


@pytest.mark.parametrize(
    ("given", "made", "expected"),
    [
        ({"cache_read": 4, "cache_creation": 3}, {"reasoning": 5}, (4, 3, 5)),
        ({"flex_cache_read": 4, "flex_cache_creation": 3, "flex": 26}, {"flex_reasoning": 5, "flex": 7}, (4, 3, 5)),
        ({"priority_cache_read": 0}, {"priority_reasoning": 0}, (0, None, 0)),
        ({"cache_read": 4, "cache_creation": 0, **LIFETIMES}, {}, (4, 300, None)),
        ({"cache_creation": 300, **LIFETIMES}, {}, (None, 300, None)),
        ({"cache_creation": 0}, {}, (None, 0, None)),
        ({"cache_creation": None}, {"reasoning": None}, (None, None, None)),
    ],
    ids=["default", "flex", "priority", "by lifetime", "by lifetime and in all", "nothing written", "not told"],
)
def test_the_details_that_langchain_tells(
    given: dict[str, Any], made: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    details = {"input_token_details": given, "output_token_details": made}
    usage = usage_from_langchain({"input_tokens": 30, "output_tokens": 12, "total_tokens": 42, **details})
    assert (usage.input, usage.output) == (30, 12)
    assert (usage.cache_read, usage.cache_write, usage.reasoning) == expected
