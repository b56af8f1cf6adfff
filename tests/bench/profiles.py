"""Why a figure is what it is: the functions in which the caller's time goes.

Measured in a run of its own with the standard profiler, which slows small functions most: read the shares, not the times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.processes import Process
    from tests.bench.report import Section

TOP = 8
_ROOTS = ("site-packages", "instrumentation", "lib")


def own_times(stats: Iterable[Any], calls: int) -> dict[str, list[float]]:
    """Function → calls of it and own CPU, ns, both per call of the workload.

    Args:
        stats: What `cProfile.Profile.getstats()` gives.
        calls: How often the workload was called.
    """
    found: dict[str, list[float]] = {}
    for entry in stats:
        if isinstance(entry.code, CodeType):
            own = entry.inlinetime + sum(below.inlinetime for below in entry.calls or () if isinstance(below.code, str))
            seen = found.setdefault(_name(entry.code), [0.0, 0.0])
            seen[0] += entry.callcount / calls
            seen[1] += own * 1e9 / calls
    return found


def _name(code: CodeType) -> str:
    """`module: function`, the module as it is imported."""
    parts = PurePath(code.co_filename).with_suffix("").parts
    starts = [number for number, part in enumerate(parts) if part in _ROOTS or part.startswith("python3.")]
    start = (
        max(starts) + 1 if starts else next((n for n, part in enumerate(parts) if part == "amfs_otel"), len(parts) - 1)
    )
    module = ".".join(part for part in parts[start:] if part != "__init__")
    return f"{module}: {code.co_qualname.replace('.<locals>', '')}"


def added(ours: Mapping[str, Sequence[float]], bare: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """What stands in `ours` more than in `bare`, the most time first; what is less is left out."""
    more = {
        name: (count - bare.get(name, (0.0, 0.0))[0], own - bare.get(name, (0.0, 0.0))[1])
        for name, (count, own) in ours.items()
    }
    return dict(sorted(((k, v) for k, v in more.items() if v[1] > 0), key=lambda item: -item[1][1]))


def table(what: str, ours: Process, bare: Process, workload: str, calls: int = 200) -> list[list[str]]:
    """The functions of `ours` that add most to one call of the workload over `bare`."""
    functions, without = (
        process.ask("profile", workload=workload, calls=calls)["functions"] for process in (ours, bare)
    )
    more = added(functions, without)
    whole = sum(own for _, own in more.values()) or 1.0
    rows = [[f"`{name}`", f"{count:.1f}", f"{own / whole:.0%}"] for name, (count, own) in list(more.items())[:TOP]]
    packages = Counter[str]()
    for name, (_, own) in more.items():
        packages[_package(name)] += int(own)
    for name, own in packages.most_common(4):
        rows.append([f"all of `{name}`", "", f"{own / whole:.0%}"])
    return [[f"why, {what}", "calls of it", "own share of what we add"], *rows]


def _package(name: str) -> str:
    parts = name.partition(":")[0].split(".")
    return ".".join(parts[: 2 if parts[0] in ("amfs_otel", "opentelemetry") else 1])


def explain_missed(section: Section, work: Mapping[str, tuple[Process, Process, str]]) -> None:
    """Puts a profile below a section for each of its figures that missed its bar, once for a workload.

    Args:
        section: Its figures are looked at, its tables added to.
        work: What was measured → the process, the same without instrumentation, and the workload.
    """
    told: set[tuple[int, str]] = set()
    for figure in section.figures:
        if "missed" not in figure.verdict or figure.what not in work:
            continue
        ours, bare, workload = work[figure.what]
        if (id(ours), workload) not in told:
            told.add((id(ours), workload))
            section.tables.append(table(figure.what, ours, bare, workload, 20 if workload == "agent" else 200))
