"""A langgraph agent of 21 steps (11 model calls, 10 tool calls, a scripted model), with us and with others."""

from __future__ import annotations

from tests.bench.adapters import PEERS
from tests.bench.beside import BEST, OFF, ON, US, Costs, Look, Process, all_measured, cell, title
from tests.bench.profiles import explain_missed
from tests.bench.report import TIMES, Effort, Figure, Section

BARS_MS = {OFF: 5.0, ON: 9.0}
_HEADINGS = ["a run", "added, ms off", "on", "share of the run off", "on", "spans"]


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("langchain and langgraph, an agent of 21 steps")
    found = all_measured(section, "langchain", {"agent": (effort.of(8, 2), effort.of(8, 3))}, effort, _figures(section))
    section.tables.insert(0, [_HEADINGS, *([title(name), *_row(costs)] for name, costs in found.items())])
    if BEST in found:
        for key in (OFF, ON):
            share = found[US].over["agent"][key] / found[BEST].over["agent"][key]
            section.figures.append(Figure(f"content {key}, of {PEERS[BEST].title}", share, TIMES))
    return section


def _figures(section: Section) -> Look:
    def look(running: dict[str, dict[str, Process]], costs: dict[str, Costs]) -> None:
        ours, processes = costs[US], running[US]
        for key, bar in BARS_MS.items():
            over = ours.over["agent"][key]
            note = f"{over:.0f} floors, {over / ours.bare['agent']:.0%} of the run"
            section.figures.append(Figure(f"content {key}", over * ours.floor_us / 1000, "ms", bar, note=note))
        work = {f"content {key}": (processes[key], processes["none"], "agent") for key in BARS_MS}
        explain_missed(section, work)

    return look


def _row(costs: Costs) -> list[str]:
    over, bare = costs.over["agent"], costs.bare["agent"]
    added = [cell(over[key] * costs.floor_us / 1000) for key in (OFF, ON)]
    return [*added, *(f"{over[key] / bare:.0%}" for key in (OFF, ON)), cell(costs.sent[OFF][1])]
