"""What was measured, and how it is told."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from tests.bench.processes import ROOT
from tests.bench.remedies import remedy

METHOD = """\
Ratios, measured side by side in one run on one machine; absolute figures are that machine's. The **floor** is one span
of the OpenTelemetry SDK with 15 attributes, set one by one, through a BatchSpanProcessor whose exporter drops it: 1.00.
Times are CPU of the calling thread. Every process measures the floor between its calls, ten by ten, so that the clock
speed of a shared machine divides out; processes take turns in every round, and what stands here is the median over the
rounds of *with* minus *without*, both in floors. Calls are thin: the real `create()`, the SDK's request step replaced
by replies that it parsed beforehand, so that what is left is what wraps the call. The product runs as shipped: decision
trace, spool and worker on, spans on, ledger at its default (`decision`). "Content" is message content on spans. Below
what missed its bar stands where the time goes: functions of a run under a profiler, less the same without us.
"""
TIMES = "\u00d7"
"""The unit of ratios."""
_PACKAGES = (
    "amfs-otel", "openai", "anthropic", "langchain-core", "langgraph", "amfs", "opentelemetry-sdk", "opentelemetry-distro",
    "wrapt", "psycopg",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    Attributes:
        what: What was measured.
        value: The figure; `None` where it could not be measured, and `note` says why.
        unit: `TIMES` (the floor, or what `what` names), `µs`, `ms`, `s`, `KiB`, `MiB`, `bytes`, `%` or none.
        bar: What it should be at most, or at least; `None` where there is no bar.
        at_least: Which of the two.
        note: What helps to read it.
    """

    what: str
    value: float | None
    unit: str
    bar: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def verdict(self) -> str:
        """`met`, `missed` or nothing."""
        if self.bar is None or self.value is None:
            return "not measured" if self.value is None else ""
        met = self.value >= self.bar if self.at_least else self.value <= self.bar
        return "met" if met else "**missed**"

    @property
    def row(self) -> list[str]:
        """Its cells: what, measured, bar, verdict, note."""
        bar = "" if self.bar is None else f"{'≥' if self.at_least else '≤'} {_number(self.bar, self.unit)}"
        measured = "" if self.value is None else _number(self.value, self.unit)
        return [self.what, measured, bar, self.verdict, self.note]


def _number(value: float, unit: str) -> str:
    small = abs(value) < 0.1 and value != 0
    text = f"{value:,.0f}" if abs(value) >= 100 or unit == "bytes" else f"{value:.3f}" if small else f"{value:.2f}"
    return f"{text} {unit}".strip()


@dataclass(slots=True)
class Section:
    """The figures of one part.

    Attributes:
        title: Its heading.
        figures: In the order of telling.
        remarks: Paragraphs below them.
        tables: Further tables, each a row of headings and rows of cells.
        failed: Whether it could not be measured.
    """

    title: str
    figures: list[Figure] = field(default_factory=list[Figure])
    remarks: list[str] = field(default_factory=list[str])
    tables: list[list[list[str]]] = field(default_factory=list[list[list[str]]])
    failed: bool = False

    def markdown(self) -> str:
        """The section as Markdown."""
        parts = [f"## {self.title}"]
        if self.figures:
            parts.append(_table([["what", "measured", "bar", "", ""], *(figure.row for figure in self.figures)]))
        parts += [_table(table) for table in self.tables]
        parts += self.remarks
        return "\n\n".join(parts)


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def page(sections: Sequence[Section], *, names: Sequence[str], quick: bool, load: tuple[float, float]) -> str:
    """The whole page.

    Args:
        sections: What was measured.
        names: Which parts were asked for.
        quick: Whether few rounds were made.
        load: The machine's load average (1 minute) before and after.
    """
    figures = [figure for section in sections for figure in section.figures]
    missed = [
        f"{figure.what} ({figure.row[1]}, bar {figure.row[2]}). {remedy(figure.what)}"
        for figure in figures
        if "missed" in figure.verdict
    ]
    met = sum(figure.verdict == "met" for figure in figures)
    parts = [
        "# What capturing costs",
        f"<!-- Written by `make bench`{' (--quick)' if quick else ''}; parts: {', '.join(names)}. -->",
        METHOD.strip(),
        _machine(load) + (" A quick run: few rounds, so good to a quarter only." if quick else ""),
        f"Of {met + len(missed)} bars {met} are met"
        + (", these are missed, each with what would have to change:" if missed else "."),
    ]
    if missed:
        parts.append("\n".join(f"- {text}" for text in missed))
    parts += [section.markdown() for section in sections]
    return "\n\n".join(parts) + "\n"


def _machine(load: tuple[float, float]) -> str:
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    versions = ", ".join(f"{name} {found}" for name in _PACKAGES if (found := _version(name)) is not None)
    return (
        f"Measured {day} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores, load average "
        f"{load[0]:.1f} before and {load[1]:.1f} after; commit {_commit()}; Python {platform.python_version()}, {versions}."
    )


def _commit() -> str:
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


Measure = Callable[["Effort"], Section]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to do.

    Attributes:
        quick: Few rounds.
        peers: Other instrumentations beside us.
    """

    quick: bool
    peers: bool = True

    def of(self, usual: int, quick: int) -> int:
        """`usual`, or `quick` in a quick run."""
        return quick if self.quick else usual
