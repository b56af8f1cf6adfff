"""The short way for plain JSON gives the very bytes of the long one, and takes nothing that the long one would change."""

from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs_otel.assemble.plain_json import canonical_if_plain
from amfs_otel.chain.canonical import jcs, normalised

_TEXTS = st.text(st.characters(codec="utf-8"))
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_TREES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4), max_leaves=20
)


@given(_TREES)
def test_both_ways_give_the_same_bytes(value: Any) -> None:
    text = canonical_if_plain(value)
    assert text is None or text.encode() == jcs(normalised(value))


@given(_TEXTS)
def test_what_is_sought_in_the_strings_is_found_in_the_text(text: str) -> None:
    """Masking looks for marks of secrets there: letters, digits, blanks and signs that JSON does not escape."""
    canonical = canonical_if_plain({"a": text + "sk-live 4111 1111"})
    assert canonical is None or "sk-live 4111 1111" in canonical


class Word(StrEnum):
    A = "a"


class Own(dict[str, Any]):
    """Has an `items` of its own."""


DEEP: list[Any] = []
for _ in range(30):
    DEEP = [DEEP]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
SHARED: list[Any] = ["x"]
for _ in range(23):
    SHARED = [SHARED, SHARED]


@pytest.mark.parametrize(
    "value",
    [
        {"$n": "name"},
        {1: "a"},
        {"é": 1},
        1 << 60,
        1.0,
        1e-9,
        float("nan"),
        "\0",
        "\ud800",
        ("a",),
        Word.A,
        Own(a=1),
        object(),
        DEEP,
        CYCLE,
        SHARED,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_takes_the_long_way(value: Any) -> None:
    assert canonical_if_plain([value]) is None
