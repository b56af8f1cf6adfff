"""What the measure of an outage tells apart."""

import time

from tests.bench.outage_program import costs


def test_a_call_that_waits_costs_no_cpu() -> None:
    found = costs(lambda: time.sleep(0.002), 20)
    assert found["waits"] == 100
    assert found["cpu_us"] < 1000


def test_a_call_that_works_waits_for_nothing() -> None:
    found = costs(lambda: sum(range(20_000)), 50)
    assert found["waits"] < 10
    assert found["cpu"] > 2
