"""Texts made once are the texts that would be made each time; what must be masked is never one of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs_otel.assemble import repeated
from amfs_otel.assemble.plain_json import canonical_if_plain
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.assemble.repeated import RepeatedItems
from amfs_otel.capture.content import MASK, Masker
from amfs_otel.chain.skeleton import PreparedText
from amfs_otel.settings import LedgerContent

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
_ITEMS = st.lists(
    st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)),
    max_size=4,
)


def nothing_to_mask(_: str) -> bool:
    return True


def is_short() -> None:
    raise AssertionError("these items do not take long")


@given(_ITEMS)
def test_the_first_time_and_every_other_time(items: list[Any]) -> None:
    known = RepeatedItems()
    expected = canonical_if_plain(items)
    assert [known.text(items, nothing_to_mask, is_short) for _ in range(3)] == [expected] * 3


def test_equal_values_of_other_types_are_other_items() -> None:
    known = RepeatedItems()
    assert [known.text([item], nothing_to_mask, is_short) for item in (1, True, "1", [1], 1.5)] == [
        "[1]",
        "[true]",
        '["1"]',
        "[[1]]",
        "[1.5]",
    ]
    assert known.text([(1,)], nothing_to_mask, is_short) is None


def test_what_is_looked_at_for_secrets_is_looked_at_once() -> None:
    looked: list[str] = []

    def leaves(text: str) -> bool:
        looked.append(text)
        return "sk-" not in text

    known = RepeatedItems()
    old, new, secret = {"text": "old"}, {"text": "new"}, {"text": "sk-"}
    for items in ([old], [old, new], [old, new, secret], [old, new, secret]):
        known.text(items, leaves, is_short)
    assert looked == ['{"text":"old"}', '{"text":"new"}', '{"text":"sk-"}', '{"text":"sk-"}']
    assert known.text([old, secret], leaves, is_short) is None


def test_what_takes_long_is_told_once_and_before_its_end() -> None:
    known = RepeatedItems()
    items, told, looked = [{"text": f"{number:40000}"} for number in range(4)], list[int](), list[str]()

    def leaves(text: str) -> bool:
        looked.append(text)
        return True

    assert known.text(items, leaves, lambda: told.append(len(looked))) == canonical_if_plain(items)
    assert told == [2], "as the second item is made"


def test_no_more_is_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "REMEMBERED_CHARACTERS", 1000)
    known = RepeatedItems()
    for number in range(100):
        assert known.text([f"{number:100}"], nothing_to_mask, is_short) == f'["{number:100}"]'
        assert sum(len(key) + len(text) for key, text in known._texts.items()) <= 1000


def test_a_secret_in_a_message_that_comes_again_is_masked_each_time() -> None:
    secret = "sk-proj-" + "a1B2" * 8
    preparer = Preparer(LedgerContent.ALL, Masker(), None)
    texts: list[PreparedText] = []
    for _ in range(3):
        preparer.value("input_messages", [{"role": "user", "parts": [{"type": "text", "content": secret}]}], texts)
    assert {text.data for text in texts} == {
        b'[{"parts":[{"content":"' + MASK.encode() + b'","type":"text"}],"role":"user"}]'
    }
