import collections
import dataclasses
import enum
import json
import math
import sys
import types
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath

import numpy as np
import pydantic
import pytest
import rfc8785

from amfs_otel.chain.canonical import (
    canonical_bytes,
    clean_text,
    jcs,
    normalised,
    ns_from_timestamp,
    timestamp_from_ns,
)
from amfs_otel.errors import FormatError


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    label: str


class Shouting(str):
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


class Hostile:
    def _no(self, *_):
        raise RuntimeError("hostile")

    __repr__ = __str__ = __eq__ = __bool__ = __iter__ = __len__ = __getattr__ = _no
    __hash__ = object.__hash__
    __class__ = property(_no)


class HostileDict(dict):
    def items(self):
        raise RuntimeError("hostile")

    __iter__ = keys = __len__ = __bool__ = items


class Named:
    def __repr__(self):
        return "Named(" + "x" * 1000 + ")"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53 - 1, 2**53 - 1),
        (2**53, {"$int": "9007199254740992"}),
        (-(2**63), {"$int": "-9223372036854775808"}),
        (2**63 + 1, {"$int": "9223372036854775809"}),
        (float("nan"), {"$float": "NaN"}),
        (float("inf"), {"$float": "Infinity"}),
        (float("-inf"), {"$float": "-Infinity"}),
        (Decimal("1.10"), {"$dec": "1.10"}),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:04:00.000000Z"),
        (datetime(2026, 1, 2), {"$naive": "2026-01-02T00:00:00.000000"}),
        (date(2026, 1, 2), {"$date": "2026-01-02"}),
        (time(1, 2), {"$time": "01:02:00.000000"}),
        (timedelta(seconds=1), 1000000),
        (b"\x00\xff", {"$bytes": "AP8="}),
        (bytearray(b"a"), {"$bytes": "YQ=="}),
        (memoryview(b"abc")[::2], {"$bytes": "YWM="}),
        ("a\0b\ud800", {"$replaced": 2, "$str": "a\ufffdb\ufffd"}),
        ({3, 1, 2}, {"$set": [1, 2, 3]}),
        (frozenset({"b", "a"}), {"$set": ["a", "b"]}),
        ((1, [2]), [1, [2]]),
        (collections.deque([1]), [1]),
        ({"$x": 1, "y": 2}, {"$$x": 1, "y": 2}),
        ({1: "a", "1": "b"}, {"$map": [["1", "b"], [1, "a"]]}),
        ({"a\0": 1, "a\ufffd": 2}, {"$map": [["a\ufffd", 2], [{"$replaced": 1, "$str": "a\ufffd"}, 1]]}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Shouting("loud"), "loud"),
        (HostileDict(a=1), {"a": 1}),
        (object(), {"$type": "builtins.object"}),
        (True, True),
        (None, None),
    ],
)
def test_values_become_what_the_format_says(value, expected):
    assert normalised(value) == expected
    assert type(normalised(value)) is type(expected)
    assert json.loads(canonical_bytes(value)) == expected


def test_records_are_read_by_their_fields():
    assert normalised(Point(1, "a")) == {"$type": f"{__name__}.Point", "x": 1, "label": "a"}


class Model(pydantic.BaseModel):
    name: str
    secret: pydantic.SecretStr

    def model_dump(self, *_, **__):
        raise AssertionError("called")


def test_pydantic_models_are_read_by_their_fields_without_a_call():
    shown = normalised(Model(name="a", secret=pydantic.SecretStr("hidden")))
    assert shown["name"] == "a"
    assert "hidden" not in json.dumps(shown)


def test_attrs_objects_are_read_by_their_fields():
    class Pair:
        # What attrs.define leaves on a class.
        __attrs_attrs__ = (types.SimpleNamespace(name="a"), types.SimpleNamespace(name="b"))
        __slots__ = ("a", "b")

    pair = Pair()
    pair.a = 1
    assert normalised(pair) == {"$type": f"{__name__}.{Pair.__qualname__}", "a": 1}


def test_pydantic_1_models_are_read_by_their_fields():
    class Old:
        # What pydantic 1 leaves on a class.
        __fields__ = dict.fromkeys(["a"])

        def __init__(self):
            self.a = 1
            self.cache = 2

    assert normalised(Old()) == {"$type": f"{__name__}.{Old.__qualname__}", "a": 1}


def test_numpys_values_are_those_of_python():
    assert normalised(np.array([1, 2])) == [1, 2]
    assert normalised([np.float32(0.5), np.int64(7), np.bool_(True), np.str_("x"), np.float64("nan")]) == [
        *(0.5, 7, True, "x"),
        {"$float": "NaN"},
    ]
    assert normalised(np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])) == [[1, 2.5]]


@pytest.mark.parametrize("array", [np.zeros(10_001), np.zeros(1, dtype="S2000000"), np.zeros((), dtype="V2000000")])
def test_a_large_array_is_known_by_its_shape_only(array):
    shown = {"$type": "numpy.ndarray", "dtype": str(array.dtype), "shape": list(array.shape)}
    assert normalised(array) == shown


def test_an_array_that_holds_itself_is_cut():
    array = np.empty(1, dtype=object)
    array[0] = array
    assert json.dumps(normalised(array)).endswith('{"$cut": "depth"}' + "]" * 64)


def test_an_integer_too_long_to_print_is_written_in_hexadecimal():
    value = 1 << 4 * (sys.get_int_max_str_digits() + 100)
    assert normalised(value) == {"$int": hex(value)}


def test_a_long_repr_is_cut():
    shown = normalised(Named())
    assert shown["$repr"].startswith("Named(xxx")
    assert len(shown["$repr"]) == 257


def test_a_hostile_object_becomes_a_marker():
    shown = normalised({"a": Hostile(), "b": [Hostile()]})
    assert shown["a"]["$error"] == "RuntimeError"
    assert shown["a"]["$type"].endswith("Hostile")


def test_a_hostile_metaclass_becomes_a_marker():
    class Meta(type):
        def __getattribute__(cls, name):
            raise RuntimeError(name)

    class Thing(metaclass=Meta):
        pass

    assert normalised(Thing())["$type"].endswith("Thing")


def test_iterators_are_not_consumed():
    def endless():
        while True:
            yield 1

    generator = endless()
    iterator = iter([1, 2])
    assert normalised([generator, iterator])[0]["$type"] == "builtins.generator"
    assert next(iterator) == 1
    assert next(generator) == 1


def test_a_mapping_that_changes_while_it_is_read_does_not_raise():
    class Growing:
        def __init__(self, owner):
            self.owner = owner

        def __repr__(self):
            self.owner[f"k{len(self.owner)}"] = 1
            return "growing"

    owner = {}
    owner["a"] = Growing(owner)
    owner["b"] = Growing(owner)
    assert set(json.loads(canonical_bytes(owner))) == {"a", "b"}


def test_cycles_and_depth_are_cut():
    cycle = []
    cycle.append(cycle)
    assert normalised(cycle) == [{"$cut": "cycle"}]
    deep = "end"
    for _ in range(100):
        deep = [deep]
    text = canonical_bytes(deep).decode()
    assert text == "[" * 64 + '{"$cut":"depth"}' + "]" * 64


def test_what_appears_twice_without_a_cycle_is_written_twice():
    shared = [1]
    assert normalised([shared, shared]) == [[1], [1]]


def test_shared_references_cannot_unfold_without_end():
    value = [1]
    for _ in range(60):
        value = [value, value]
    assert b'{"$cut":"size"}' in canonical_bytes(value)


def test_at_the_callers_own_stack_limit_the_record_is_kept():
    def sink(depth):
        try:
            return sink(depth + 1)
        except RecursionError:
            return canonical_bytes([[[[["x"]]]]])

    assert json.loads(sink(0)) in ([[[[["x"]]]]], {"$cut": "resources"})


def test_unicode_is_not_normalised():
    assert canonical_bytes("é") != canonical_bytes("e\u0301")


@pytest.mark.parametrize(
    "value",
    [
        *(0.0, -0.0, 1.0, 1.5, -1e-7, 1e-6, 1e20, 1e21, 1e22, 5e-324, 1.7976931348623157e308, 0.1, 333333333.33333329),
        *(4.5, 2e-3, 1e-27, 123456789012345680.0, 9007199254740993.0, 1e16, 0.000001, 1.2e-7),
    ],
)
def test_numbers_equal_the_oracle(value):
    assert jcs(value) == rfc8785.dumps(value)


def test_keys_are_ordered_by_utf16_code_units():
    value = {"\ufb33": 1, "\U0001f600": 2, "é": 3, "1": 4, "\r": 5}
    assert jcs(value) == rfc8785.dumps(value)
    assert list(json.loads(jcs(value))) == ["\r", "1", "é", "\U0001f600", "\ufb33"]


def test_strings_equal_the_oracle():
    value = "".join(map(chr, range(1, 0x100))) + '\u2028\u2029"\\/\U0001f600'
    assert jcs([value]) == rfc8785.dumps([value])


@pytest.mark.parametrize(
    "value", [2**53, math.nan, math.inf, "\ud800", {1: 2}, b"x", {"a": {1}}, object(), ["\ud800", 1.5]]
)
def test_the_strict_encoder_refuses_what_is_not_json(value):
    with pytest.raises(FormatError):
        jcs(value)


def test_clean_text():
    assert clean_text("plain") == ("plain", 0)
    assert clean_text("ü\0") == ("ü\ufffd", 1)
    assert clean_text("\ud83d\ude00\0") == ("\ufffd\ufffd\ufffd", 3)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000_123_456_999, "2023-11-14T22:13:20.123456Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (-62_135_596_800 * 10**9, "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_times(ns, text):
    assert timestamp_from_ns(ns) == text
    assert ns_from_timestamp(text) == ns // 1000 * 1000


def test_impossible_times_are_refused():
    with pytest.raises(FormatError):
        timestamp_from_ns(10**30)
    with pytest.raises(FormatError):
        ns_from_timestamp("2023-11-14 22:13:20")
