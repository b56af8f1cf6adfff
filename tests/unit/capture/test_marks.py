"""What may hold a secret is seen before the rules are tried, in texts, in keys, and behind what assigns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs_otel.capture.content import MASK, Masker
from amfs_otel.capture.marks import RULES, is_harmless, is_marked, lowered_text
from amfs_otel.capture.plain import texts_of

NAMES = (
    "api_key", "api-key", "apikey", "X-Api-Key", "Authorization", "proxy-authorization", "cookie", "Set-Cookie",
    "access_token", "refreshToken", "refresh-token", "auth_token", "client_secret", "secretKey", "private_key",
    "privatekey", "passwd", "password", "PWD", "pa\u017f\u017fword",
)  # fmt: skip
WORDS = "say what the weather is, a public key is no key, and the token of a ring is a cookie"


@pytest.mark.parametrize("name", NAMES)
def test_the_value_of_a_key_that_names_a_secret_is_never_left(name: str) -> None:
    value = {"role": "user", "arguments": {"at": 1, name: "hunter2hunter2"}}
    texts = texts_of(value)
    assert not is_harmless(name)
    assert texts is not None
    assert not Masker().leaves(texts)


@pytest.mark.parametrize("name", ["type", "content", "finish_reason", "tool_call", "parameters", "orderNumber"])
def test_a_key_that_no_rule_would_mask_is_left_out(name: str) -> None:
    assert is_harmless(name)
    assert texts_of({name: "x"}) == "x"


@pytest.mark.parametrize("name", ["4111 1111 1111 1111", "ghp_" + "a" * 36, "n1", "größe", "", "a:b", "k" * 65, "a\0"])
def test_every_other_key_is_looked_at(name: str) -> None:
    texts = texts_of({name: "x"})
    assert texts == (None if "\0" in name else f"x\n{name}:")


@pytest.mark.parametrize("sign", [":", "=", " : ", "\uff1a", "\uff1d", '": "'])
@pytest.mark.parametrize(
    "name", ["api_key", "Access-Token", "authtoken", "client_secret", "secretkey", "passwd", "pwd"]
)
def test_what_is_assigned_to_the_name_of_a_secret_is_marked(name: str, sign: str) -> None:
    text = f"{WORDS} {name}{sign}hunter2hunter2"
    assert is_marked(lowered_text(text))
    assert Masker().text(text) == f"{WORDS} {name}{sign}{MASK}"


def test_words_alone_are_no_marks() -> None:
    assert not is_marked(lowered_text(WORDS))
    assert not is_marked(lowered_text("password and client_secret, the cookie of authorization"))


@given(st.sampled_from([mark for marks, _ in RULES for mark in marks]), st.text(max_size=20), st.text(max_size=20))
def test_every_mark_of_every_rule_is_found_in_any_text(mark: str, before: str, after: str) -> None:
    assert is_marked(lowered_text(f"{before}{mark.upper()}{after}="))
