"""Messages of Anthropic, the span being ours or the client's own switched on, with us and with others."""

from __future__ import annotations

import contextlib
import statistics
from dataclasses import replace

from tests.bench.adapters import PEERS
from tests.bench.agents import BARS_FLOOR_US
from tests.bench.beside import BEST, OFF, ON, SHARE, US, Costs, Look, Process, all_measured, cell, processes, title
from tests.bench.processes import interleaved
from tests.bench.profiles import explain_missed
from tests.bench.report import TIMES, Effort, Figure, Section

BAR_US = 200.0
_HEADINGS = ["in floors", "message off", "on", "per event off", "on", "OTLP bytes off", "on"]


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("anthropic")
    rounds = effort.of(6, 2)
    workloads = {
        "message": (rounds, effort.of(80, 30)),
        "message_stream_short": (rounds, effort.of(20, 6)),
        "message_stream_long": (rounds, effort.of(10, 4)),
    }
    found = all_measured(section, "anthropic", workloads, effort, _figures(section))
    section.tables.insert(0, [_HEADINGS, *([title(name), *map(cell, _row(costs))] for name, costs in found.items())])
    if BEST in found:
        for key in (OFF, ON):
            share = found[US].over["message"][key] / found[BEST].over["message"][key]
            section.figures.append(Figure(f"message, content {key}, of {PEERS[BEST].title}", share, TIMES, SHARE))
    _native(section, effort)
    section.remarks.append(
        "Thin calls, the client's own spans off (`ANTHROPIC_OPEN_TELEMETRY=false`), except where it says that they are "
        "on: then calls go through the whole SDK to a transport in memory, and its span is replaced by ours. The bar of "
        f"{BAR_US:.0f} µs was set on a machine where a floor took {BARS_FLOOR_US:.0f} µs; what a figure would be "
        "there, by its floors, stands beside it and meets no bar."
    )
    return section


def _figures(section: Section) -> Look:
    def look(running: dict[str, dict[str, Process]], costs: dict[str, Costs]) -> None:
        ours, mine = costs[US], running[US]
        work: dict[str, tuple[Process, Process, str]] = {}
        for key in (OFF, ON):
            over, what = ours.over["message"][key], f"message, the span being ours, content {key}"
            note = f"{over:.2f} floors; {over * BARS_FLOOR_US:.0f} µs where a floor takes {BARS_FLOOR_US:.0f} µs"
            section.figures.append(Figure(what, over * ours.floor_us, "µs", BAR_US, note=note))
            work[what] = (mine[key], mine["none"], "message")
        explain_missed(section, work)

    return look


def _row(costs: Costs) -> list[float]:
    message = costs.over["message"]
    events = [costs.chunk("message_stream_short", "message_stream_long", key) for key in (OFF, ON)]
    return [message[OFF], message[ON], *events, costs.sent[OFF][0], costs.sent[ON][0]]


def _native(section: Section, effort: Effort) -> None:
    """Whole calls with the client's own spans: what they cost alone, and what they cost with us."""
    variants = processes(US, "anthropic")
    chosen = {
        "nothing": variants["none"],
        "own": replace(variants["none"], options=(*variants["none"].options, "--native")),
        "ours": variants[OFF],
        "both": replace(variants[OFF], options=(*variants[OFF].options, "--native")),
    }
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(Process(variant)) for name, variant in chosen.items()}
        costs = interleaved(running, "message_whole", rounds=effort.of(10, 3), calls=effort.of(40, 15))
        spans = running["both"].ask("spans", workload="message_whole", calls=10)["spans"]
    floor_us = statistics.median(costs["nothing"].floor_us)
    over = {name: cost.over(costs["nothing"]) * floor_us for name, cost in costs.items()}
    section.figures += [
        Figure("a whole call, the client's own spans and nothing of ours", over["own"], "µs"),
        Figure("a whole call, its spans off, with us", over["ours"], "µs", note="content off"),
        Figure("a whole call, its spans on, with us", over["both"], "µs", note="content off"),
        Figure("the same, over its spans and nothing of ours", over["both"] - over["own"], "µs", BAR_US),
        Figure("spans a call, its spans on, with us", spans, "", 1.0),
    ]
