"""What a call costs the thread that makes it, what the worker pays for it later, and what goes over the wire."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping
from dataclasses import replace

from tests.bench.processes import Cost, Process, Variant, interleaved
from tests.bench.profiles import explain_missed
from tests.bench.report import TIMES, Effort, Figure, Section
from tests.bench.workloads import LONG_CHUNKS, SHORT_CHUNKS

OFF, ON = "content off", "content on"
_PLAIN = Variant("none")
_PRODUCT = Variant("amfs_otel")
VARIANTS: dict[str, Variant] = {
    "none": _PLAIN,
    OFF: _PRODUCT,
    ON: replace(_PRODUCT, options=("--content",)),
    "sampled out": replace(_PRODUCT, options=("--spans", "sampled_out", "--content")),
    "no SDK": replace(_PRODUCT, options=("--spans", "none")),
    "suppressed": replace(_PRODUCT, options=("--suppressed",)),
    "disabled": replace(_PRODUCT, environment={"AMFS_OTEL_DISABLED": "true"}),
    "metrics": replace(_PRODUCT, options=("--metrics",)),
}


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("openai and amfs")
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(Process(variant)) for name, variant in VARIANTS.items()}
        three = {name: processes[name] for name in ("none", OFF, ON)}
        floor_us = _chat(section, processes, effort)
        _streams(section, three, effort, floor_us)
        _fifty(section, three, effort)
        _memory(section, {name: processes[name] for name in ("none", OFF)}, effort, floor_us)
        _whole(section, three, effort)
        _worker(section, processes[OFF], effort, floor_us)
        explain_missed(section, _works(processes))
    _wire(section)
    return section


def _works(processes: Mapping[str, Process]) -> dict[str, tuple[Process, Process, str]]:
    """What was measured → the process, the one without us, and the workload; for profiles."""
    bare = processes["none"]
    works = {
        f"chat, {name}": (processes[name], bare, "chat") for name in (OFF, ON, "sampled out", "suppressed", "disabled")
    }
    works["chat, sampled out, over that"] = works["chat, sampled out"]
    for name in (OFF, ON):
        works[f"per chunk, {name}"] = (processes[name], bare, "stream_long")
        works[f"per chunk async, {name}"] = (processes[name], bare, "async_stream_long")
        works[f"50 at once, a call, {name}"] = (processes[name], bare, "fifty_at_once")
    return works


def _chat(section: Section, processes: Mapping[str, Process], effort: Effort) -> float:
    """The costs of a chat completion; gives the floor, µs."""
    costs = interleaved(processes, "chat", rounds=effort.of(10, 4), calls=effort.of(100, 50))
    bare = costs["none"]
    floor_us = statistics.median(bare.floor_us)
    over = {name: cost.over(bare) for name, cost in costs.items()}
    event = over["no SDK"]

    def in_us(value: float) -> str:
        return f"{value * floor_us:.0f} µs here"

    section.figures += [
        Figure("the floor", floor_us, "µs", note="start span + 15 attributes + end + BatchSpanProcessor"),
        Figure("chat, content off", over[OFF], TIMES, 2.5, note=in_us(over[OFF])),
        Figure("chat, content on", over[ON], TIMES, 4.5, note=in_us(over[ON])),
        Figure(
            "chat, the decision trace alone", event, TIMES, note="`OTEL_SDK_DISABLED`: no span, the event all the same"
        ),
        Figure(
            "chat, sampled out, over that", over["sampled out"] - event, TIMES, 0.5, note="content on, `ALWAYS_OFF`"
        ),
        Figure(
            "chat, with a MeterProvider", over["metrics"], TIMES, note="content off; the client metrics are recorded"
        ),
        *(_patch_alone(name, processes[name], effort) for name in ("suppressed", "disabled")),
    ]
    return floor_us


def _patch_alone(name: str, process: Process, effort: Effort) -> Figure:
    """What a patch that has nothing to do costs, in µs; two processes differ by more, so it is measured in one."""
    answers = [process.ask("patch", workload="chat", calls=effort.of(200, 50)) for _ in range(effort.of(10, 4))]
    over_us = statistics.median(answer["over"] for answer in answers) / 1000
    here = "the method with the patch and without it" if answers[0]["patched"] else "nothing is patched"
    return Figure(f"chat, {name}", over_us, "µs", 2.0, note=f"in one process, by turns; {here}")


def _streams(section: Section, processes: Mapping[str, Process], effort: Effort, floor_us: float) -> None:
    for title, prefix, bars in (
        ("", "", ((0.012, 0.5), (0.036, 1.5))),
        (" async", "async_", ((0.024, 1), (0.06, 2.5))),
    ):
        rounds = effort.of(8, 3)
        short = interleaved(processes, f"{prefix}stream_short", rounds=rounds, calls=effort.of(40, 20))
        long = interleaved(processes, f"{prefix}stream_long", rounds=rounds, calls=effort.of(30, 15))
        for name, (bar, bar_us) in ((OFF, bars[0]), (ON, bars[1])):
            chunk = (long[name].over(long["none"]) - short[name].over(short["none"])) / (LONG_CHUNKS - SHORT_CHUNKS)
            section.figures.append(
                Figure(
                    f"per chunk{title}, {name}",
                    chunk,
                    TIMES,
                    bar,
                    note=f"{chunk * floor_us:.2f} µs here; {bar_us} µs on the machine that the bar was set on",
                )
            )


def _fifty(section: Section, processes: Mapping[str, Process], effort: Effort) -> None:
    row, once = (
        interleaved(processes, workload, rounds=effort.of(8, 3), calls=effort.of(8, 4))
        for workload in ("fifty_in_a_row", "fifty_at_once")
    )
    for name in (OFF, ON):
        sync = row[name].over(row["none"])
        section.figures += [
            Figure(f"50 in a row, a call, {name}", sync, TIMES, note="timed as one piece, not as the median of calls"),
            Figure(f"50 at once, a call, {name}", once[name].over(once["none"]), TIMES, sync, note="timed likewise"),
        ]


def _memory(section: Section, processes: Mapping[str, Process], effort: Effort, floor_us: float) -> None:
    for method in ("read", "write", "commit"):
        costs = interleaved(processes, f"amfs_{method}", rounds=effort.of(6, 3), calls=effort.of(30, 10))
        over = costs[OFF].over(costs["none"])
        share = over / statistics.median(costs["none"].ratios) * 100
        what = f"amfs {method}" + (" (a read and a commit)" if method == "commit" else "")
        note = f"{over * floor_us:.0f} µs here, {share:.0f} % of the call over the filesystem adapter"
        section.figures.append(Figure(what, over, TIMES, note=note))


def _whole(section: Section, processes: Mapping[str, Process], effort: Effort) -> None:
    costs: dict[str, Cost] = interleaved(processes, "chat_whole", rounds=effort.of(8, 3), calls=effort.of(20, 10))
    for name in (OFF, ON):
        share = costs[name].over(costs["none"]) / statistics.median(costs["none"].ratios) * 100
        section.figures.append(
            Figure(f"share of a whole call, {name}", share, "%", note="the real SDK down to a transport in memory")
        )


def _wire(section: Section) -> None:
    for name, bar in ((OFF, 900.0), (ON, 2600.0)):
        for what, workload in (("chat", "chat"), ("stream", "stream_long")):
            with Process(VARIANTS[name]) as process:
                sent = process.ask("spans", workload=workload, calls=20)
            note = f"{sent['attributes']:.0f} attributes, {sent['spans']:.2f} spans a call"
            limit = bar if what == "chat" else None  # the stream's text is twice as long as the chat's
            section.figures.append(
                Figure(f"OTLP bytes of a {what} span, {name}", sent["bytes"], "bytes", limit, note=note)
            )


def _worker(section: Section, process: Process, effort: Effort, floor_us: float) -> None:
    taken = process.ask("threads", workload="chat", calls=effort.of(3000, 1000))
    worker = taken["worker"] / 1000
    section.figures.append(
        Figure(
            "the worker, an event", worker / floor_us, TIMES, note=f"{worker:.0f} µs here: journal, masking, assembling"
        )
    )
