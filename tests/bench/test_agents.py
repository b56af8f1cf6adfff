"""The section on agents: whose CPU is whose."""

from typing import Any, cast

import pytest

from tests.bench.agents import BARS_MS, Threads, measure, threads_apart
from tests.bench.beside import OFF, ON, US, Costs, Process
from tests.bench.report import Effort


class Scripted:
    """A worker process that answers what it is to."""

    def __init__(self, *answers: tuple[float, float, float]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def ask(self, do: str, **_arguments: Any) -> dict[str, Any]:
        self.asked.append(do)
        if do != "threads":
            return {}
        caller, others, worker = self._answers.pop(0)
        return {"caller": caller * 1e6, "others": others * 1e6, "worker": worker * 1e6}


def three(*rounds: tuple[tuple[float, float, float], ...]) -> dict[str, Process]:
    made = {key: Scripted(*(answers[place] for answers in rounds)) for place, key in enumerate(("none", OFF, ON))}
    return cast("dict[str, Process]", made)


def test_what_a_run_costs_whom_is_told_over_the_same_round_with_nothing() -> None:
    """A machine that is slow for one round is slow for all; the worker's is its own."""
    processes = three(
        ((20, 10, 0), (23, 14, 3), (25, 16, 4)),
        ((40, 30, 0), (43, 34, 3), (45, 36, 4)),
        ((20, 10, 0), (29, 40, 9), (31, 42, 9)),
    )
    assert threads_apart(processes, 3) == {OFF: Threads(3, 4, 3), ON: Threads(5, 6, 4)}


def test_what_ran_before_is_durable_first() -> None:
    processes = three(((1, 1, 0), (1, 1, 0), (1, 1, 0)))
    threads_apart(processes, 1)
    assert all(cast("Any", process).asked == ["settle", "threads"] for process in processes.values())


def test_the_bars_are_held_against_ms_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would be on the machine that they were set on stands beside, and makes none easier."""
    costs = Costs({"agent": {OFF: 122.0, ON: 100.0}}, {"agent": 500.0}, 82.0, {OFF: (0.0, 22.0), ON: (0.0, 22.0)})

    def measured(_section: Any, _library: str, _workloads: Any, _effort: Any, look: Any) -> dict[str, Costs]:
        look({US: three(*[((20, 10, 0), (23, 14, 3), (25, 16, 4))] * 3)}, {US: costs})
        return {US: costs}

    def no_profile(*_arguments: Any) -> None:
        return None

    monkeypatch.setattr("tests.bench.agents.all_measured", measured)
    monkeypatch.setattr("tests.bench.agents.explain_missed", no_profile)
    section = measure(Effort(quick=True, peers=False))
    off, on, off_alone, on_alone = section.figures
    assert [(figure.bar, figure.verdict) for figure in (off, on)] == [
        (BARS_MS[OFF], "**missed**"),
        (BARS_MS[ON], "met"),
    ]
    assert off.value == pytest.approx(10.004)
    assert "122 floors, 24% of the run; 5.0 ms where a floor takes 41 µs" in off.note
    assert [(figure.value, figure.bar) for figure in (off_alone, on_alone)] == [
        (pytest.approx(3), None),
        (pytest.approx(5), None),
    ]
    assert section.tables[1][1] == ["**amfs-otel**", "3.0", "5.0", "4.0", "6.0", "3.0", "4.0"]
