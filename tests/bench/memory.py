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
        with Process(Variant("amfs_otel", ("--content",))) as process:
            grown = process.ask("growth", workload=workload, calls=number)
        note = f"content on, after the first tenth, from {grown['before'] / 1024:.0f} MiB"
        section.figures.append(Figure(f"growth over {number:,} {what}", grown["growth"], "KiB", 512.0, note=note))
    return section


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
