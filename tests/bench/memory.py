"""Resident memory: of a capturing agent over the same with the SDK alone, and how it grows."""

from __future__ import annotations

from tests.bench.processes import Process, Variant
from tests.bench.report import Effort, Figure, Section


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("Memory (RSS)")
    section.figures.append(_over_the_sdk(effort))
    calls, streams = effort.of(20_000, 3_000), effort.of(2_000, 1_000)
    for what, workload, number in (("calls", "chat", calls), ("streams dropped unread", "stream_dropped", streams)):
        grown = _growth(workload, number, session=20)
        note = f"content on, a session around each 20, after the first tenth, from {grown['before'] / 1024:.0f} MiB"
        section.figures.append(Figure(f"growth over {number:,} {what}", grown["growth"], "KiB", 512.0, note=note))
    paced = _growth("chat", calls, session=20, pause=25)
    what = f"growth over {calls:,} calls, the worker not left behind"
    section.figures.append(Figure(what, paced["growth"], "KiB", note="all is made durable after each 500 calls"))
    held = _growth("chat", effort.of(5_000, 2_000), session=0)
    each = held["growth"] / (effort.of(5_000, 2_000) * 0.9)
    note = "content on, a bare loop: its one decision trace stays open until 10,000 steps or 5 idle minutes"
    section.figures.append(Figure("what an open decision trace holds, a call", each, "KiB", note=note))
    return section


def _growth(workload: str, calls: int, session: int, pause: int = 0) -> dict[str, float]:
    with Process(Variant("amfs_otel", ("--content",))) as process:
        return process.ask("growth", workload=workload, calls=calls, session=session, pause=pause)


def _over_the_sdk(effort: Effort) -> Figure:
    found: dict[str, list[int]] = {"none": [], "amfs_otel": []}
    for _ in range(effort.of(3, 1)):
        for name, seen in found.items():
            with Process(Variant(name)) as process:
                seen.append(process.ask("memory", workload="chat", calls=500)["resident"])
    alone = min(found["none"]) / 1024
    return Figure(
        "a capturing agent over the same with the SDK alone",
        min(found["amfs_otel"]) / 1024 - alone, "MiB", 25.0, note=f"{alone:.0f} MiB alone, 500 calls each",
    )  # fmt: skip
