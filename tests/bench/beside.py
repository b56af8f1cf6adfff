"""One instrumentation or several beside nothing: what a call costs with each, content off and on."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tests.bench.adapters import ADAPTERS, PEERS
from tests.bench.environments import EnvironmentFailedError, peer
from tests.bench.processes import Cost, Process, Variant, WorkerError, interleaved
from tests.bench.report import Effort, Section
from tests.bench.workloads import LONG_CHUNKS, SHORT_CHUNKS

US = "amfs_otel"
BEST = "genai"
"""The best maintained peer; it takes turns with us."""
SHARE = 0.6
OFF, ON = "off", "on"


@dataclass(frozen=True, slots=True)
class Costs:
    """What one instrumentation costs.

    Attributes:
        over: Workload → content off or on → a call over nothing, in floors.
        bare: Workload → a call with nothing, in floors.
        floor_us: The floor, µs.
        sent: Content off or on → OTLP bytes of a span of a model call, and spans a call, of the first workload.
    """

    over: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    bare: dict[str, float] = field(default_factory=dict[str, float])
    floor_us: float = 0.0
    sent: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def chunk(self, short: str, long: str, content: str) -> float:
        """A piece of a stream, in floors."""
        return (self.over[long][content] - self.over[short][content]) / (LONG_CHUNKS - SHORT_CHUNKS)


def processes(name: str, library: str) -> dict[str, Variant]:
    """Nothing, and the instrumentation with content off and on, in its environment.

    Raises:
        EnvironmentFailedError: The peer's environment cannot be made.
    """
    bare = (
        Variant("none", ("--library", library))
        if name == US
        else Variant("none", ("--library", library), python=peer(name))
    )
    off = replace(bare, adapter=name)
    return {"none": bare, OFF: off, ON: replace(off, options=(*off.options, "--content"))}


Workloads = dict[str, tuple[int, int]]
"""Workload → rounds and calls a round."""
Look = Callable[[dict[str, dict[str, Process]], dict[str, Costs]], None]


def measured(names: Sequence[str], library: str, workloads: Workloads, look: Look | None = None) -> dict[str, Costs]:
    """Measures instrumentations by turns.

    Args:
        names: Of `adapters.ADAPTERS`.
        library: Of `adapters.LIBRARIES`.
        workloads: What is timed.
        look: Called with the processes (by name, then none, off or on) before they end.

    Raises:
        EnvironmentFailedError: A peer's environment cannot be made.
        WorkerError: A worker failed.
    """
    with contextlib.ExitStack() as stack:
        running = {
            (name, key): stack.enter_context(Process(variant))
            for name in names
            for key, variant in processes(name, library).items()
        }
        flat = {f"{name}/{key}": process for (name, key), process in running.items()}
        timed = {
            workload: interleaved(flat, workload, rounds=rounds, calls=calls)
            for workload, (rounds, calls) in workloads.items()
        }
        first = next(iter(workloads))
        costs = {name: _costs(name, timed) for name in names}
        for name in names:
            for key in (OFF, ON):
                sent = running[name, key].ask("spans", workload=first, calls=3)
                costs[name].sent[key] = (sent["bytes"], sent["spans"])
        if look is not None:
            look({name: {key: running[name, key] for key in ("none", OFF, ON)} for name in names}, costs)
    return costs


def _costs(name: str, timed: dict[str, dict[str, Cost]]) -> Costs:
    over: dict[str, dict[str, float]] = {}
    bare: dict[str, float] = {}
    floors: list[float] = []
    for workload, costs in timed.items():
        nothing = costs[f"{name}/none"]
        over[workload] = {key: costs[f"{name}/{key}"].over(nothing) for key in (OFF, ON)}
        bare[workload] = statistics.median(nothing.ratios)
        floors += nothing.floor_us
    return Costs(over, bare, statistics.median(floors))


def all_measured(
    section: Section, library: str, workloads: Workloads, effort: Effort, look: Look | None = None
) -> dict[str, Costs]:
    """Us and, if they are wanted, every peer that knows the library; one that cannot be measured is named below."""
    known = [name for name, adapter in PEERS.items() if library in adapter.libraries] if effort.peers else []
    groups = [[US, BEST], *([name] for name in known if name != BEST)] if BEST in known else [[US]]
    found: dict[str, Costs] = {}
    for group in groups:
        try:
            found |= measured(group, library, workloads, look if US in group else None)
        except (EnvironmentFailedError, WorkerError) as error:
            section.remarks.append(f"Not measured: {ADAPTERS[group[-1]].title}: {error}")
            if group[:1] == [US] and len(group) > 1:
                found |= measured([US], library, workloads, look)
    return found


def title(name: str) -> str:
    """What tables call an instrumentation."""
    return "**amfs-otel**" if name == US else ADAPTERS[name].title


def cell(value: float) -> str:
    """A number in a table."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}" if abs(value) < 1 else f"{value:.1f}"
