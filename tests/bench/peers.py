"""Other instrumentations of openai beside us, each in an environment of its own."""

from __future__ import annotations

import contextlib

from tests.bench.adapters import PEERS
from tests.bench.environments import EnvironmentFailedError, peer
from tests.bench.processes import Process, Variant, WorkerError, interleaved
from tests.bench.report import TIMES, Effort, Figure, Section
from tests.bench.workloads import LONG_CHUNKS, SHORT_CHUNKS

BEST = "genai"
SHARE = 0.6
_HEADINGS = ["in floors", "chat off", "on", "50 at once off", "per chunk off", "on", "OTLP bytes off", "on"]


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("Beside other instrumentations")
    rows: dict[str, list[float]] = {}
    for name in ("amfs_otel", *PEERS):
        title = "amfs-otel" if name == "amfs_otel" else PEERS[name].title
        try:
            rows[name] = _row(name, effort)
        except (EnvironmentFailedError, WorkerError) as error:
            section.remarks.append(f"Not measured: {title}: {error}")
    section.tables.append([_HEADINGS, *([_title(name), *map(_cell, row)] for name, row in rows.items())])
    if BEST in rows:
        for column, what in ((0, "chat, content off"), (1, "chat, content on")):
            section.figures.append(
                Figure(f"{what}, of {PEERS[BEST].title}", rows["amfs_otel"][column] / rows[BEST][column], TIMES, SHARE)
            )
    section.remarks.append(
        "A peer's figures come from turns with an uninstrumented process and the floor in each process."
    )
    return section


def _title(name: str) -> str:
    return "amfs-otel, decision trace on" if name == "amfs_otel" else PEERS[name].title


def _cell(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3f}" if value < 1 else f"{value:.1f}"


def _row(name: str, effort: Effort) -> list[float]:
    """Costs of one instrumentation over nothing, in floors; bytes of a chat span."""
    if name == "amfs_otel":
        variant, bare = Variant(name), Variant("none")
    else:
        python = peer(name)
        variant = Variant(name, python=python)
        bare = Variant("none", python=python)
    on = Variant(name, ("--content",), python=variant.python)
    with contextlib.ExitStack() as stack:
        processes = {
            key: stack.enter_context(Process(one)) for key, one in (("none", bare), ("off", variant), ("on", on))
        }
        rounds = effort.of(6, 3)
        chat = interleaved(processes, "chat", rounds=rounds, calls=effort.of(80, 40))
        fifty = interleaved(processes, "fifty_at_once", rounds=rounds, calls=effort.of(6, 3))
        short = interleaved(processes, "stream_short", rounds=rounds, calls=effort.of(20, 10))
        long = interleaved(processes, "stream_long", rounds=rounds, calls=effort.of(10, 6))
        sent = [processes[key].ask("spans", workload="chat", calls=10)["bytes"] for key in ("off", "on")]
    chunks = [
        (long[key].over(long["none"]) - short[key].over(short["none"])) / (LONG_CHUNKS - SHORT_CHUNKS)
        for key in ("off", "on")
    ]
    return [
        chat["off"].over(chat["none"]),
        chat["on"].over(chat["none"]),
        fifty["off"].over(fifty["none"]),
        *chunks,
        *sent,
    ]
