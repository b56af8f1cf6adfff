"""What a trace says of the one that it continues, where that one is erased or damaged."""

import json

import pytest

from tests.integration.test_continuation import records, run
from tests.integration.test_reading import Asked
from tests.integration.test_store_read import switch_off
from tests.support.seed_story import committed
from tests.support.stories import event


@pytest.fixture
def log(one_ledger):
    return Asked(one_ledger)


def test_an_erasure_that_waits_hides_the_names_in_the_trace_that_goes_on(log):
    ran = event("tool_call", 2, 5.0, tool_name="a_name_to_erase", call_id="c1", observed="call")
    took = event("llm_call", 61, 5.0, model="m", answered_tools=[{"call_id": "c1"}])
    (earlier,) = records(log, run(0, "paused") | {"events": [ran]})
    later = log.writer.record(run(60) | {"events": [took]}, at=110, refs={"continues": earlier.record_id})
    log.seal(earlier, later)
    log.project()
    (item,) = log.ask("explain", later.record_id)["inputs"]
    assert item["tool_name"] == "a_name_to_erase"
    log.append(log.writer.record({}, kind="erasure", at=900, erases=[(earlier.record_id, 2)]))
    waiting = log.ask("explain", later.record_id)
    assert "a_name_to_erase" not in json.dumps(waiting)
    log.seal()
    log.project()
    assert log.ask("explain", later.record_id)["inputs"] == waiting["inputs"]


def test_a_damaged_trace_leaves_the_one_that_continues_it_explainable(log):
    (earlier,) = records(log, run(0, "paused"))
    goes_on = run(60) | {"events": [committed("R-9", "success")]}
    later = log.writer.record(goes_on, at=110, refs={"continues": earlier.record_id})
    log.seal(earlier, later)
    log.project()
    switch_off(log.ledger, "part")
    log.sql("UPDATE amfs_otel.part SET bytes = 'no json' WHERE record = %s AND number = 1", earlier.record_id)
    answer = log.ask("explain", "R-9")
    assert (answer["record_id"], answer["continues"]) == (later.record_id, earlier.record_id)
    assert log.ask("show", later.record_id)["continues"] == earlier.record_id
