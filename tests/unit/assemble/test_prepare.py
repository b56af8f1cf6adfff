"""Events as journal and record hold them: policy, masking, hostile values in every field of every kind."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amfs_otel import guard
from amfs_otel.assemble.assembler import Assembler
from amfs_otel.assemble.journal import EventPrepared, decoded, encoded
from amfs_otel.assemble.prepare import TEXT_LIMIT_BYTES, PreparedEvent, Preparer, evaluated
from amfs_otel.assemble.records import Origin, record_from_trace
from amfs_otel.capture.content import MASK, Masker
from amfs_otel.chain.check import check_record
from amfs_otel.chain.keys import Key
from amfs_otel.chain.record import record_from_bytes, record_to_bytes
from amfs_otel.chain.skeleton import decompose
from amfs_otel.model import (
    FIELDS,
    ClosedBy,
    Deferred,
    Event,
    EventClosed,
    EventOpened,
    FieldClass,
    Kind,
    RecordKind,
    WindowClosed,
    WindowFacts,
    WindowOpened,
)
from amfs_otel.settings import LedgerContent
from tests.support.every_kind import EVERY_KIND, Example

SECRET = "sk-proj-abcdefghijklmnop1234"


@pytest.fixture(autouse=True)
def fresh_guard() -> Iterator[None]:
    guard.reset()
    yield
    guard.reset()


def preparer(content: LedgerContent = LedgerContent.ALL, key: bytes | None = b"d" * 32) -> Preparer:
    return Preparer(content, Masker(), key)


def event_of(example: Example, number: int = 1) -> Event:
    event = Event(example.kind, number, number, time.time_ns(), example.source, dict(example.fields))
    if example.result is not None:
        event.result = dict(example.result)
    event.end_ns = event.start_ns + 1_000_000
    return event


def record_of(events: list[Event], content: LedgerContent = LedgerContent.ALL, **window: Any) -> Any:
    """The signed record of a window that held `events`, after a round trip through journal and bytes."""
    facts = WindowFacts("01890000-0000-7000-8000-000000000001", RecordKind.DECISION, "a" * 32,
                        window.get("agent", "agent"), window.get("session_id"), "session", False, time.time_ns())  # fmt: skip
    assembler, adopter = Assembler(preparer(content)), Assembler(preparer(LedgerContent.NONE))
    messages: list[Any] = [WindowOpened(facts)]
    for event in events:
        messages += [EventOpened(facts.record_id, event), EventClosed(facts.record_id, event)]
    made = None
    for message in [*messages, WindowClosed(facts.record_id, ClosedBy.EXIT, time.time_ns(), 1, 2)]:
        for item in assembler.prepared(message):
            frame = encoded(item)
            assert b"\0" not in frame
            assert encoded(decoded(frame)) == frame
            made = adopter.apply(decoded(frame))
    assert made is not None
    key = Key(b"k" * 32)
    record = record_from_trace(made, log="default", key=key, origin=Origin({"service": "s"}), content=content)
    record = record_from_bytes(record_to_bytes(record))
    assert check_record(record, key) == []
    return record


def told_by(record: Any) -> str:
    """Every byte of a record as text, parts as they are."""
    return record_to_bytes(record).decode("utf-8", "replace")


@pytest.mark.parametrize("content", list(LedgerContent))
def test_each_class_of_text_is_kept_exactly_where_the_policy_says(content: LedgerContent) -> None:
    record = record_of([event_of(example, n) for n, example in enumerate(EVERY_KIND, 1)], content)
    told = told_by(record)
    assert ("decision-canary" in told) == (content is not LedgerContent.NONE)
    assert ("message-canary" in told) == (content is LedgerContent.ALL)
    assert "name-canary" in told
    header = record.header.decode()
    skeleton = next(part.data for part in record.parts if part.klass == "s")
    assert "canary" not in header + skeleton.decode(), "texts and names have parts of their own"


@pytest.mark.parametrize("example", EVERY_KIND, ids=lambda e: e.kind.value)
def test_what_is_withheld_leaves_its_commitment_length_and_class(example: Example) -> None:
    kept, withheld = (record_of([event_of(example)], content) for content in (LedgerContent.ALL, LedgerContent.NONE))
    texts_kept, texts = decompose(kept).texts, decompose(withheld).texts
    assert [(t.length, t.media) for t in texts] == [(t.length, t.media) for t in texts_kept]
    assert {t.withheld_reason for t in texts} <= {"policy"}
    assert {t.data for t in texts} <= {None}
    assert {t.withheld_reason for t in texts_kept} <= {None}
    assert kept.classes == withheld.classes


def test_equal_arguments_have_equal_digests_although_they_are_withheld() -> None:
    events = [event_of(EVERY_KIND[2], n) for n in (1, 2)]
    digests = [text.digest for text in decompose(record_of(events, LedgerContent.NONE)).texts]
    assert digests[0] == digests[2] is not None
    assert digests[1] is None, "a result has none"


def with_value(example: Example, value: Any) -> Iterator[tuple[str, Event]]:
    """The event once with `value` in each of its fields, at each depth."""

    def places(tree: Any, put: Callable[[Any], Any]) -> Iterator[Any]:
        yield put(value)
        if isinstance(tree, dict):
            for key, item in tree.items():
                yield from places(item, lambda new, key=key: put({**tree, key: new}))
        elif isinstance(tree, list):
            for index, item in enumerate(tree):
                yield from places(item, lambda new, index=index: put([*tree[:index], new, *tree[index + 1 :]]))

    for key in example.fields:
        for fields in places(example.fields[key], lambda new, key=key: {**example.fields, key: new}):
            yield key, event_of(Example(example.kind, example.source, fields, example.result))
    for key in example.result or {}:
        assert example.result is not None
        for result in places(example.result[key], lambda new, key=key: {**(example.result or {}), key: new}):
            yield key, event_of(Example(example.kind, example.source, example.fields, result))


class Refusing:
    """Fails whatever it is asked, with content in the message."""

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("message-canary of an exception")

    __repr__ = __str__ = __bool__ = __len__ = __iter__ = __eq__ = __int__ = __float__ = __index__ = _fail  # type: ignore[assignment]
    __hash__ = object.__hash__
    __format__ = _fail  # type: ignore[assignment]


class RefusingText(str):  # noqa: SLOT000
    __str__ = __repr__ = __bool__ = __len__ = __eq__ = __getitem__ = encode = isascii = Refusing._fail  # type: ignore[assignment]
    __hash__ = str.__hash__


class RefusingDict(dict[str, Any]):
    items = __iter__ = keys = __len__ = __getitem__ = Refusing._fail  # type: ignore[assignment]


class Lying:
    """Says that it is a text."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("message-canary of an exception")


class RefusingInt(int):
    __str__ = __repr__ = __bool__ = __eq__ = __int__ = __lt__ = Refusing._fail  # type: ignore[assignment]
    __hash__ = int.__hash__


def cycle() -> list[Any]:
    made: list[Any] = [{}]
    made[0]["again"] = made
    return made


def deep() -> Any:
    made: Any = "bottom"
    for _ in range(5000):
        made = [made]
    return made


HOSTILE: dict[str, Callable[[], Any]] = {
    "nul": lambda: "a\0b",
    "lone surrogate": lambda: "a\ud800b",
    "surrogate as key": lambda: {"a\ud800": {"\0": 1}},
    "nan": lambda: float("nan"),
    "infinity": lambda: [float("inf"), -float("inf")],
    "2^63": lambda: 2**63,
    "10^5000": lambda: 10**5000,
    "bytes": lambda: b"\xff\0",
    "keys that are no texts": lambda: {1: "a", None: "b", (1, 2): "c"},
    "cycle": cycle,
    "deep": deep,
    "refusing": Refusing,
    "a type": lambda: Refusing,
    "refusing text": lambda: RefusingText("text"),
    "refusing dict": lambda: RefusingDict(a=1),
    "refusing int": lambda: RefusingInt(5),
    "lying": Lying,
    "generator": lambda: (n for n in range(3)),
    "set": lambda: {1, "a", None},
    "deferred that fails": lambda: Deferred(lambda _: 1 // 0, "raw"),
    "reference": lambda: {"$t": 99},
    "name reference": lambda: {"$n": "x"},
    "part reference": lambda: {"$part": 1, "len": -1, "media": 5},
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("example", EVERY_KIND, ids=lambda e: e.kind.value)
def test_no_value_in_any_field_costs_the_record(example: Example, value: Callable[[], Any], caplog: Any) -> None:
    events = [event for _, event in with_value(example, value())]
    for number, event in enumerate(events, 1):
        event.id = event.seq = number
    record = record_of(events)
    facts = decompose(record).facts
    assert [event["kind"] for event in facts["events"]].count(str(example.kind)) == len(events)
    assert "canary of an exception" not in caplog.text


@pytest.mark.parametrize("value", ["refusing", "nul", "lone surrogate", "2^63", "cycle", "lying", "refusing text"])
def test_no_value_as_agent_or_session_id_costs_the_record(value: str) -> None:
    record = record_of([event_of(EVERY_KIND[9])], agent=HOSTILE[value](), session_id=HOSTILE[value]())
    facts = decompose(record).facts
    assert isinstance(facts["agent"], str)
    assert isinstance(facts["session_id"], str)


def test_eight_megabytes_in_every_place_stay_within_bounds() -> None:
    big = "word and " * (1 << 20)
    for example in (EVERY_KIND[0], EVERY_KIND[6], EVERY_KIND[9]):
        events: list[Event] = []
        for key in example.fields:
            if FIELDS.get(key) in (FieldClass.DECISION, FieldClass.MESSAGE, FieldClass.NAME):
                events += [event_of(Example(example.kind, example.source, {**example.fields, key: big}))]
        for number, event in enumerate(events, 1):
            event.id = event.seq = number
        record = record_of(events)
        assert max(len(part.data or b"") for part in record.parts) <= TEXT_LIMIT_BYTES + 64
        assert f"[cut by amfs-otel: {len(big)} bytes in all]" in told_by(record)


def test_a_long_text_inside_a_value_is_cut_and_the_value_stays_json() -> None:
    value = {"text": "x y " * 500_000, "other": 1}
    event = event_of(Example(Kind.CONTEXT, "amfs_otel", {"label": "l", "summary": value}))
    (text,) = decompose(record_of([event])).texts
    assert text.data is not None
    if text.media == "application/json":
        assert json.loads(text.data)["other"] == 1
    assert len(text.data) <= TEXT_LIMIT_BYTES + 64
    assert b"[cut by amfs-otel: 2000000 bytes in all]" in text.data


@pytest.mark.parametrize("example", EVERY_KIND, ids=lambda e: e.kind.value)
def test_a_secret_in_any_field_is_in_no_byte_of_journal_or_record(example: Example) -> None:
    for _, event in with_value(example, f"the key {SECRET} ends"):
        event.id = 1
        prepared = preparer().event(event, ended=True)
        assert SECRET.encode() not in encoded(EventPrepared("01890000-0000-7000-8000-000000000001", prepared))
    record = record_of([event_of(example)], agent=f"a {SECRET}", session_id=SECRET)
    assert SECRET not in told_by(record)
    assert MASK in told_by(record)


def test_what_was_prepared_while_a_step_was_open_keeps_its_salts() -> None:
    event = event_of(EVERY_KIND[2])
    opened = preparer().event(event, ended=False)
    closed = preparer().event(event, opened, ended=True)
    assert closed.texts[: len(opened.texts)] == opened.texts
    assert opened.is_open
    assert opened.facts["status"] == "incomplete"
    assert "end_us" not in opened.facts
    assert not closed.is_open
    assert closed.facts["status"] == "ok"


def test_alternatives_are_one_text_each() -> None:
    event = event_of(Example(Kind.STATEMENT, "amfs_otel", {"summary": "s", "alternatives": ["a", "b"]}))
    facts = decompose(record_of([event])).facts["events"][0]
    assert len(facts["alternatives"]) == 2


def test_a_deferred_text_is_made_once_and_safely_for_two_threads() -> None:
    made: list[str] = []

    def make(raw: str) -> str:
        made.append(raw)
        return raw.upper()

    deferred = Deferred(make, "low")
    assert (evaluated(deferred), evaluated(deferred)) == ("LOW", "LOW")
    assert made == ["low"]
    assert deferred.make(deferred.raw) == "LOW", "as the other thread calls it"


def test_the_size_of_an_event_grows_with_its_texts() -> None:
    small = PreparedEvent("1", 1, {})
    event = event_of(Example(Kind.CONTEXT, "amfs_otel", {"label": "l", "summary": "x" * 10_000}))
    assert preparer().event(event, ended=True).size_bytes > small.size_bytes + 10_000
