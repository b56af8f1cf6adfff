"""Values of numpy's, wherever an application can put one: kept small, recorded as they were, asked for no truth."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from amfs_otel import api, guard
from amfs_otel.capture import snapshot
from amfs_otel.settings import LedgerContent, SpanContent
from tests.support.capturing import capturing


def itself() -> Any:
    array = np.empty(2, dtype=object)
    array[0], array[1] = array, np.arange(2)
    return array


class Mine(np.ndarray[Any, Any]):
    """An application's own class of arrays, whose methods are nobody's to call."""

    def __array_finalize__(self, other: Any) -> None:
        self.finalized = getattr(other, "finalized", 0) + 1

    def tolist(self) -> Any:
        raise AssertionError("called")


VALUES: dict[str, Callable[[], Any]] = {
    "integers": lambda: np.arange(6).reshape(2, 3),
    "not finite": lambda: np.array([np.nan, np.inf, -np.inf]),
    "a scalar": lambda: np.float32(0.5),
    "a scalar that is a float": lambda: np.float64("nan"),
    "a long double": lambda: np.longdouble("nan"),
    "a truth": lambda: np.bool_(False),
    "a text": lambda: np.str_("\ud800"),
    "bytes": lambda: np.bytes_(b"\xff"),
    "a date": lambda: np.datetime64("2026-11-30T23:00:00.000000001"),
    "no date": lambda: np.datetime64("NaT", "s"),
    "a complex number": lambda: np.complex128(1, np.nan),
    "without a dimension": lambda: np.array(7),
    "without a dimension, of objects": lambda: np.array({"a": [1]}, dtype=object),
    "without an item": lambda: np.zeros((0, 3)),
    "of objects": lambda: np.array([object(), None, "\ud800", 2**63, [float("nan")]], dtype=object),
    "holding itself": itself,
    "structured": lambda: np.array([(1, 2.5, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U1")]),
    "structured, one": lambda: np.array([(1, np.nan)], dtype=[("a", "i4"), ("b", "f8")])[0],
    "structured, of objects": lambda: np.array([(1, {"a": 1})], dtype=[("a", "i4"), ("b", "O")]),
    "masked": lambda: np.ma.MaskedArray([1, 2], mask=[True, False]),
    "of an own class": lambda: np.arange(3).view(Mine),
    "not contiguous": lambda: np.arange(20)[::-3],
    "read-only and broadcast": lambda: np.broadcast_to(np.arange(3), (1_000_000_000, 3)),
    "large": lambda: np.zeros(13_000_000),
    "one large item": lambda: np.zeros(1, dtype="S20000000"),
    "a type": lambda: np.dtype([("a", "i4")]),
}
EACH = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())

PLACES: dict[str, Callable[[Any], object]] = {
    "a context": lambda value: api.record_context(value, value, source=value),
    "a decision": lambda value: api.record_decision(value, confidence=value, alternatives=[value]),
    "an outcome": lambda value: api.outcome(value, "success", value),
    "a tool": lambda value: api.tool("t")(lambda given, **_: given)(value, more={"inside": [value]}),
}


@EACH
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_no_value_raises_is_large_or_costs_the_event(place: Callable[[Any], object], value: Callable[[], Any]) -> None:
    everything: Any = {"ledger_content": LedgerContent.ALL, "span_content": SpanContent.SPAN_ONLY}
    given = value()
    with capturing(**everything) as bench:
        tracemalloc.start()
        try:
            answer = place(given)
            made = bench.traces()
            encode_spans(bench.spans())
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert sum(len(one.facts["events"]) for one in made) == 1
        assert guard.counters() == {}
        assert answer is given or answer is None
        assert peak_bytes < 4_000_000
        assert sum(len(text.data or b"") for one in made for text in one.texts) < 300_000


@EACH
def test_snapshots_are_made_without_code_of_the_application(value: Callable[[], Any]) -> None:
    given = value()
    before = getattr(given, "finalized", None)
    snapshot([given, {"a": given}])
    assert getattr(given, "finalized", None) == before


def test_what_is_changed_after_the_call_is_recorded_as_it_was() -> None:
    array, inner = np.arange(3), [1]
    objects = np.array([inner, "x"], dtype=object)
    with capturing(ledger_content=LedgerContent.ALL) as bench:
        api.tool("t")(lambda *given: given)(array, objects, [array])
        array[:] = 9
        inner.append(2)
        objects[1] = "y"
        (made,) = bench.traces()
    texts = [json.loads(text.data or b"null") for text in made.texts]
    assert texts[0] == {"args": [[0, 1, 2], [[1], "x"], [[0, 1, 2]]]}
    assert texts[1] == [[0, 1, 2], [[1], "x"], [[0, 1, 2]]]


def test_many_arrays_are_not_all_copied() -> None:
    arrays = [np.zeros(10_000) for _ in range(200)]
    tracemalloc.start()
    copied = snapshot(arrays)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(copied) == 200
    assert peak_bytes < 400_000


def test_what_a_subclass_hides_is_not_copied_out_of_it() -> None:
    masked: Any = np.ma.array([1, 999, 3], mask=[0, 1, 0])
    assert snapshot({"x": masked})["x"] is masked
