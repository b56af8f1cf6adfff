"""The short way for plain content gives what the long way gives, and leaves no secret unmasked."""

# pyright: reportPrivateUsage=false

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs_otel.capture.content import MASK, Masker
from amfs_otel.capture.marks import RULES
from amfs_otel.capture.plain import DEPTH, texts_of
from amfs_otel.capture.span_content import content_attributes
from amfs_otel.chain.canonical import normalised
from amfs_otel.model import Kind

PEM = "PRIVATE KEY"

SECRETS = [
    "sk-abcdefghijklmnop1234", "AKIAABCDEFGHIJKLMNOP", "ghp_" + "a" * 36, "xoxb-1234567890-abc", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "Bearer abcdefghijklmnop1234", "postgres://user:hunter2@host", "api_key=supersecret", "Password: hunter2hunter2",
    "4111 1111 1111 1111", f"-----BEGIN {PEM}-----abc",
]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=30), st.sampled_from(SECRETS), st.sampled_from(["$str", "authorization", "cookie"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.binary(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def the_long_way(value: Any) -> Any:
    return Masker()._masked(normalised(value))


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_a_plain_value_without_secrets_stands_for_itself(value: Any) -> None:
    texts = texts_of(value)
    if texts is not None and Masker().leaves(texts):
        assert the_long_way(value) == value


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_masking_is_the_same_both_ways(value: Any) -> None:
    assert Masker().value(normalised(value)) == the_long_way(value)


@given(st.sampled_from(RULES).flatmap(lambda rule: st.from_regex(rule[1], fullmatch=True)))
@settings(max_examples=60, deadline=None)
def test_what_a_rule_matches_is_never_left(text: str) -> None:
    assert not Masker().leaves(text) or Masker().text(text) == text


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_on_spans_are_masked(secret: str) -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "content": f"take {secret} and go"}]}]
    (text,) = content_attributes(Kind.LLM_CALL, {"input_messages": messages}, Masker(), None).values()
    shown = json.loads(str(text))[0]["parts"][0]["content"]
    assert MASK in shown
    assert re.search(re.escape(secret), shown) is None


@pytest.mark.parametrize(
    "value",
    [
        {1: "a"},
        {"$str": "a"},
        (1,),
        {"a"},
        b"a",
        2**53,
        float("nan"),
        float("-inf"),
        "\0",
        "\ud800",
        [["\0"]],
        object(),
    ],
)
def test_what_needs_the_long_way_is_not_plain(value: Any) -> None:
    assert texts_of(value) is None


def test_depth_is_bounded() -> None:
    value: Any = "a"
    for _ in range(DEPTH + 1):
        value = [value]
    assert texts_of(value) is None
    assert texts_of(value[0]) == "a"


def test_own_rules_always_look() -> None:
    assert not Masker((re.compile("x"),)).leaves("harmless")
    assert not Masker((), (str.upper,)).leaves("harmless")
