"""Snapshots, masking and cutting of texts."""

import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amfs_otel import guard
from amfs_otel.capture.content import (
    MASK,
    SNAPSHOT_ITEMS,
    Masker,
    cut_between_words,
    kept_in_ledger,
    masker_from_file,
    name,
    snapshot,
)
from amfs_otel.model import FieldClass
from amfs_otel.settings import LedgerContent

PEM = "PRIVATE KEY"
"""Apart from its frame: no file here looks as if it held one."""

MASKER = Masker()

SECRETS = (
    "sk-proj-abcdefghijklmnop1234",
    "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL",
    "rk_live_abcdefghijklmnop",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_abcdefghijklmnopqrstuvwxyz0123456789",
    "glpat-abcdefghijklmnopqrst",
    "xoxb-123456789012-abcdef",
    "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
    "ya29.abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
)


@pytest.fixture(autouse=True)
def fresh_guard() -> Iterator[None]:
    guard.reset()
    yield
    guard.reset()


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "the key is {}.", '{{"k": "{}"}}', "a={};b=1", "url?x={}&y=2", "({})"])
def test_keys_and_tokens_are_masked_wherever_they_stand(secret: str, around: str) -> None:
    masked = MASKER.identifier(around.format(secret))
    assert secret not in masked
    assert MASK in masked
    assert MASKER.value({"a": [around.format(secret)]}) == {"a": [masked]}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abcdefghijklmnop1234", f"Authorization: {MASK}"),
        ("postgresql://user:s3cret-w0rd@host/db", f"postgresql://{MASK}@host/db"),
        ("api_key=abcdef123456 next", f"api_key={MASK} next"),
        ("password: 'hunter2hunter2'", f"password: '{MASK}'"),
        ('"client_secret": "abcdef123456"', f'"client_secret": "{MASK}"'),
    ],
)
def test_what_stands_beside_a_secret_stays(text: str, masked: str) -> None:
    assert MASKER.identifier(text) == masked


def test_a_private_key_is_masked_over_its_lines_and_without_its_end() -> None:
    block = f"-----BEGIN RSA {PEM}-----\nMIIE\nabcd\n-----END RSA {PEM}-----"
    assert MASKER.text(f"x {block} y") == f"x {MASK} y"
    assert MASKER.text(f"x {block[:50]}") == f"x {MASK}"


@pytest.mark.parametrize("number", ["4111111111111111", "5500 0000 0000 0004", "3782-822463-10005", "6011000990139424"])
def test_card_numbers_are_masked_in_texts_and_left_in_identifiers(number: str) -> None:
    assert MASKER.text(f"card {number}.") == f"card {MASK}."
    assert MASKER.identifier(f"INC-{number}") == f"INC-{number}"


@pytest.mark.parametrize(
    "number", ["4111111111111112", "1234567890123456", "INC-4111111111111111", "x4111111111111111", "4111.1111"]
)
def test_what_fails_the_luhn_sum_or_is_part_of_a_reference_stays(number: str) -> None:
    assert MASKER.text(f"number {number} here") == f"number {number} here"


@pytest.mark.parametrize(
    "named", ["pa\u017f\u017fword=", "PA\u017f\u017fWORD: ", "cl\u0131ent_\u017fecret=", "CL\u0130ENT_SECRET=", "api_\u212aey=", "\u5bc6\u7801 password\uff1a", "pwd\uff1d"]
)  # fmt: skip
def test_letters_that_count_as_ascii_ones_hide_no_secret(named: str) -> None:
    masker, text = Masker(), f"héllo {named}hunter2hunter2, bye"
    assert not masker.leaves(text)
    assert masker.text(text) == masker.identifier(text) == f"héllo {named}{MASK}, bye"
    assert masker.value({"said": [text]}) == {"said": [f"héllo {named}{MASK}, bye"]}
    assert masker.value({"pa\u017f\u017fword": "hunter2hunter2"}) == {"pa\u017f\u017fword": MASK}
    assert masker.leaves("Stra\u017fse, I\u017ftanbul, \u0131, \u0130")


@pytest.mark.parametrize("key", ["api_key", "Authorization", "set-cookie", "password", "clientSecret", "PRIVATE_KEY"])
def test_a_key_that_names_a_secret_masks_its_whole_value(key: str) -> None:
    assert MASKER.value({key: "v w", "n": 1}) == {key: MASK, "n": 1}


def test_own_patterns_and_functions_apply_and_bad_lines_are_left_out(tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "patterns"
    file.write_text("# a comment\n\nPROJECT-[0-9]+\n(unclosed\n")
    masker = dataclasses.replace(masker_from_file(file), functions=(lambda text: text.replace("ada", "A."),))
    assert masker.text("ada works on PROJECT-77") == f"A. works on {MASK}"
    assert "line 4" in caplog.text


def test_where_own_patterns_cannot_be_read_no_text_is_kept_and_names_are(tmp_path: Path, caplog: Any) -> None:
    masker = masker_from_file(tmp_path / "missing")
    assert masker.text("ada works on PROJECT-77") == MASK
    assert masker.value([{"n": 1}, "PROJECT-77"]) == [{MASK: 1}, MASK]
    assert not masker.leaves("plain words")
    assert (masker.text(""), masker.identifier("DEP-500")) == ("", "DEP-500")
    assert "AMFS_OTEL_MASK_PATTERNS" in caplog.text
    assert "missing" in caplog.text


def failing(_text: str) -> str:
    raise ValueError("content in the message")


@pytest.mark.parametrize("function", [failing, lambda _: None])
def test_a_masking_function_that_fails_costs_the_text_never_lets_it_through(function: Any, caplog: Any) -> None:
    assert Masker(functions=(function,)).text("canary") == MASK
    assert "canary" not in caplog.text
    assert "content in the message" not in caplog.text


def test_a_long_text_is_masked_as_a_short_one() -> None:
    filler = "word and more 12 words, "
    text = "".join(filler * 300 + secret + " " for secret in SECRETS) + "4111111111111111 " + filler * 2000
    expected = text.replace("4111111111111111", MASK)
    for secret in SECRETS:
        expected = expected.replace(secret, MASK)
    assert MASKER.text(text) == expected


@pytest.mark.parametrize("offset", [-70, -20, -1, 0, 1])
@pytest.mark.parametrize("edge", [16_384, 16_384 + 4_096])
def test_a_secret_across_the_edge_of_a_stretch_is_masked(edge: int, offset: int) -> None:
    before = "x " * ((edge + offset) // 2)
    after = " y" * 5_000
    for secret in (SECRETS[0], SECRETS[-1]):
        assert MASKER.identifier(before + secret + after) == before + MASK + after
    key = f"-----BEGIN {PEM}-----" + "abcd\n" * 3000 + f"-----END {PEM}-----"
    assert MASKER.identifier(before + key + after) == before + MASK + after


def test_masking_five_megabytes_lets_other_threads_run() -> None:
    """One `re.sub` holds the interpreter until it is through; the agent's own thread must not wait for that."""
    import threading

    text = "number 1234 5678 and word " * 200_000
    worker = threading.Thread(target=MASKER.text, args=(text,))
    worker.start()
    turns = 0
    while worker.is_alive():
        time.sleep(0)
        turns += 1
    assert turns > 10


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("short", 10, "short"),
        ("one two three", 9, "one two "),
        ("one two sk-abcdefghijklmnopqrstuvwx", 20, "one two "),
        ("x" * 20, 10, "x" * 10),
    ],
)
def test_a_cut_never_leaves_half_a_token(text: str, limit: int, kept: str) -> None:
    assert cut_between_words(text, limit) == kept


def test_the_policy_table() -> None:
    kept = {
        content: {field_class for field_class in FieldClass if kept_in_ledger(field_class, content)}
        for content in LedgerContent
    }
    always = {FieldClass.STRUCTURE, FieldClass.NAME}
    assert kept == {
        LedgerContent.NONE: always,
        LedgerContent.DECISION: {*always, FieldClass.DECISION},
        LedgerContent.ALL: set(FieldClass),
    }


class Hostile:
    """Whoever asks it anything is refused."""

    def __getattribute__(self, _name: str) -> Any:
        raise RuntimeError("touched")

    __iter__ = __len__ = __bool__ = __eq__ = __hash__ = __repr__ = __str__ = None  # type: ignore[assignment]


@dataclasses.dataclass
class Point:
    x: int
    inner: list[int]


def test_a_snapshot_copies_structure_shares_leaves_and_runs_nothing() -> None:
    def generator() -> Iterator[int]:
        yield 1

    running, hostile = generator(), Hostile()
    given: dict[str, Any] = {"list": [1, "a", (2,)], "gen": running, "bad": hostile, "point": Point(1, [2]), "set": {3}}
    copied = snapshot(given)
    given["list"].append("later")
    given["point"].inner.append("later")
    given["new"] = 1
    assert copied["list"] == [1, "a", [2]]
    assert copied["point"] == {"x": 1, "inner": [2]}
    assert copied["set"] == {3}
    assert copied["gen"] is running
    assert next(running) == 1
    assert copied["bad"] is hostile
    assert "new" not in copied


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int
    inner: list[int] = dataclasses.field(default_factory=list[int])


@dataclasses.dataclass(slots=True)
class SlottedBelow(Slotted):
    z: str = "z"


class Mixin:
    """A base without slots: whatever is below it has a `__dict__`, too."""


@dataclasses.dataclass(slots=True)
class SlottedWithDict(Mixin):
    x: int


@dataclasses.dataclass
class PlainBelow(Slotted):
    y: int = 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Slotted(1, [2]), {"x": 1, "inner": [2]}),
        (SlottedBelow(1), {"x": 1, "inner": [], "z": "z"}),
        (SlottedWithDict(1), {"x": 1}),
        (PlainBelow(1), {"x": 1, "inner": [], "y": 2}),
        (Slotted.__new__(Slotted), {}),
    ],
    ids=["slots", "slots of a base", "slots and a dict", "no slots of its own", "nothing set"],
)
def test_a_snapshot_of_a_dataclass_with_slots_has_its_fields(given: Any, expected: dict[str, Any]) -> None:
    assert snapshot(given) == expected


def test_a_snapshot_is_bounded_in_depth_and_items() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    wide = list(range(SNAPSHOT_ITEMS + 1))
    assert snapshot(deep) == deep
    assert snapshot(cyclic) is not cyclic
    assert snapshot(wide) is wide


def test_a_name_is_bounded_clean_and_runs_no_code() -> None:
    class Loud(str):  # noqa: SLOT000
        def __str__(self) -> str:
            raise RuntimeError("touched")

    assert name(None) is None
    assert name(Loud("quiet")) == "quiet"
    assert name("nul\0 lone\ud800") == "nul\ufffd lone\ufffd"
    assert name(Hostile()) == "<Hostile>"
    assert len(name("x" * 5000) or "") == 1024


def test_masking_takes_about_as_long_for_hostile_texts() -> None:
    """No pattern backtracks without bound: sixteen times the text is not two hundred times the work."""
    for unit in ("sk-", "://", "a:b@", "1 ", "eyJ.", "password=", "-----BEGIN ", "4111 "):
        seconds = []
        for size in (4_000, 64_000):
            text = (unit * size)[:size]
            began = time.process_time()
            MASKER.text(text)
            seconds.append(time.process_time() - began)
        assert seconds[1] < 200 * max(seconds[0], 0.0005), unit
    assert re.compile(re.escape(MASK)).search(MASKER.text("sk-" + "a" * 30))
