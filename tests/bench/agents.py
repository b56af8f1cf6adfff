"""A langgraph agent of 21 steps (11 model calls, 10 tool calls, a scripted model), with us and with others."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tests.bench.adapters import PEERS
from tests.bench.beside import BEST, OFF, ON, US, Costs, Look, Process, all_measured, cell, title
from tests.bench.profiles import explain_missed
from tests.bench.report import TIMES, Effort, Figure, Section

BARS_MS = {OFF: 5.0, ON: 9.0}
BARS_FLOOR_US = 41.0
"""The floor of the machine that the bars were set on."""
_HEADINGS = ["a run", "added, ms off", "on", "share of the run off", "on", "spans"]
_APART = ["a run, ms", "its thread, alone off", "on", "all other threads off", "on", "of these our worker off", "on"]
_REMARK = """\
The bars are ms of CPU of the thread that calls the agent, on the machine that they were set on, where a floor took
41 µs; what a figure would be there, by its floors, stands beside it and meets no bar. Ten runs follow one another, so
our worker, which wakes up 50 ms after the first event, runs beside most of them; "at rest" is one run after another,
each begun when all before it is durable. langgraph runs each tool in a thread of its own: the second table has what
all threads but the caller's take over a run with nothing, until all is durable, and how much of that is our worker."""


@dataclass(frozen=True, slots=True)
class Threads:
    """CPU that one run takes, ms, over a run with nothing; of the worker the whole."""

    caller: float
    others: float
    worker: float


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("langchain and langgraph, an agent of 21 steps", remarks=[_REMARK])
    workloads = {"agent": (effort.of(8, 2), effort.of(8, 3))}
    apart: dict[str, dict[str, Threads]] = {}
    found = all_measured(section, "langchain", workloads, effort, _look(section, apart, effort.of(9, 3)))
    section.tables[:0] = [
        [_HEADINGS, *([title(name), *_row(costs)] for name, costs in found.items())],
        [_APART, *([title(name), *_row_apart(threads)] for name, threads in apart.items())],
    ]
    if BEST in found:
        for key in (OFF, ON):
            share = found[US].over["agent"][key] / found[BEST].over["agent"][key]
            section.figures.append(Figure(f"content {key}, of {PEERS[BEST].title}", share, TIMES))
    return section


def _look(section: Section, apart: dict[str, dict[str, Threads]], rounds: int) -> Look:
    def look(running: dict[str, dict[str, Process]], costs: dict[str, Costs]) -> None:
        apart.update((name, threads_apart(processes, rounds)) for name, processes in running.items())
        ours, processes = costs[US], running[US]
        for key, bar in BARS_MS.items():
            section.figures.append(_figure(f"content {key}", ours.over["agent"][key], ours, bar))
        for key in BARS_MS:
            alone = apart[US][key].caller
            section.figures.append(_figure(f"content {key}, our worker at rest", alone * 1000 / ours.floor_us, ours))
        work = {f"content {key}": (processes[key], processes["none"], "agent") for key in BARS_MS}
        explain_missed(section, work)

    return look


def _figure(what: str, floors: float, costs: Costs, bar: float | None = None) -> Figure:
    there = f"{floors * BARS_FLOOR_US / 1000:.1f} ms where a floor takes {BARS_FLOOR_US:.0f} µs"
    note = f"{floors:.0f} floors, {floors / costs.bare['agent']:.0%} of the run; {there}"
    return Figure(what, floors * costs.floor_us / 1000, "ms", bar, note=note)


def threads_apart(processes: dict[str, Process], rounds: int) -> dict[str, Threads]:
    """Content off or on → what a run costs whom: medians over the rounds, in each of which the processes take turns."""
    found: dict[str, list[Threads]] = {OFF: [], ON: []}
    for number in range(rounds):
        taken: dict[str, dict[str, float]] = {}
        for key in processes if number % 2 else reversed(processes):
            processes[key].ask("settle")
            taken[key] = processes[key].ask("threads", workload="agent", calls=1)
        bare = taken["none"]
        for key, seen in found.items():
            over = [(taken[key][name] - bare[name]) / 1e6 for name in ("caller", "others")]
            seen.append(Threads(*over, taken[key]["worker"] / 1e6))
    return {
        key: Threads(*(statistics.median(getattr(one, name) for one in seen) for name in Threads.__slots__))
        for key, seen in found.items()
    }


def _row(costs: Costs) -> list[str]:
    over, bare = costs.over["agent"], costs.bare["agent"]
    added = [cell(over[key] * costs.floor_us / 1000) for key in (OFF, ON)]
    return [*added, *(f"{over[key] / bare:.0%}" for key in (OFF, ON)), cell(costs.sent[OFF][1])]


def _row_apart(threads: dict[str, Threads]) -> list[str]:
    return [cell(getattr(threads[key], name)) for name in Threads.__slots__ for key in (OFF, ON)]
