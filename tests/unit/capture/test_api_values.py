"""Whatever an application gives the Python API: nothing of ours is raised, and the event is kept."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from amfs_otel import api
from tests.support.capturing import capturing
from tests.unit.assemble.test_prepare import HOSTILE

CALLS: dict[str, Callable[[Any], object]] = {
    "record_context": lambda value: api.record_context(value, value, source=value),
    "record_decision": lambda value: api.record_decision(value, confidence=value),
    "outcome": lambda value: api.outcome(value, "success", value),
    "tool": lambda value: api.tool("t")(lambda given: given)(value),
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_no_value_raises_or_costs_the_event(call: Callable[[Any], object], value: Callable[[], Any]) -> None:
    with capturing() as bench:
        call(value())
        assert sum(len(made.facts["events"]) for made in bench.traces()) == 1
        encode_spans(bench.spans())


@pytest.mark.parametrize(
    ("ref", "kind", "missing"), [("", "success", "ref"), ("D-1", " ", "type"), ("D-1", None, "type")]
)
def test_an_outcome_without_a_ref_or_a_type_is_one_warning_and_no_record(
    ref: str, kind: Any, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    with capturing() as bench, caplog.at_level(logging.WARNING, "amfs_otel"):
        api.record_context("label", "before")
        api.outcome(ref, kind)
        api.outcome(ref, kind)
        api.record_context("label", "after")
        (trace,) = bench.traces()
    assert [event["kind"] for event in trace.facts["events"]] == ["context", "context"]
    (said,) = (line for line in caplog.messages if "was not recorded" in line)
    assert said.startswith(f"amfs-otel: an outcome without a {missing} ")
