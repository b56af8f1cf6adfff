"""What having us installed adds to the start of a program under `opentelemetry-instrument`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

from tests.bench.environments import mirror
from tests.bench.processes import clean_environment
from tests.bench.report import Effort, Figure, Section

_LAUNCH = "import sys; from opentelemetry.instrumentation.auto_instrumentation import run; sys.exit(run())"
_NO_EXPORTERS = dict.fromkeys(("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none")
_IN_PROCESS = "from opentelemetry.instrumentation.auto_instrumentation import initialize; initialize(); {program}"
VALGRIND = shutil.which("valgrind")
START_S = 60
"""How long a start may take."""
COUNT_S = 600
"""How long one may take whose instructions are counted."""
PROGRAMS = {
    "`pass`": ("pass", 30.0),
    "a program that makes an OpenAI client": ("import openai; openai.OpenAI(api_key='x').chat.completions", 80.0),
    "a program that makes an Anthropic client": ("import anthropic; anthropic.Anthropic(api_key='x').messages", 80.0),
}


def measure(effort: Effort) -> Section:
    """The section."""
    how = "instructions, at the CPU time that each takes without us" if VALGRIND else "CPU, least of the rounds"
    section = Section(f"Start-up (`opentelemetry-instrument`, {how}, byte code written)")
    pythons = {False: mirror(with_us=False), True: mirror(with_us=True)}
    for title, (program, bar) in PROGRAMS.items():
        least = {False: float("inf"), True: float("inf")}
        for number in range(effort.of(8, 4) + 1):
            for with_us in (False, True) if number % 2 else (True, False):
                spent = cpu_ms(pythons[with_us], program)
                if number:  # the first round writes byte code
                    least[with_us] = min(least[with_us], spent)
        over, note = least[True] - least[False], f"{least[False]:.0f} ms without us"
        if VALGRIND:
            executed = {with_us: _instructions(VALGRIND, pythons[with_us], program) for with_us in pythons}
            more = executed[True] / executed[False] - 1
            note = f"{more:.1%} more instructions; {note}, least of the rounds: {over:+.0f} ms"
            over = more * least[False]
        figure = Figure(f"{title}, over without us", over, "ms", bar, note=note)
        section.figures.append(figure)
        if "missed" in figure.verdict:
            section.tables.append(_imports(title, pythons, program))
    section.figures += _imported(pythons[True])
    if VALGRIND:
        section.remarks.append(
            "The CPU time of one start differs by more from run to run than what is measured here; the number of its "
            "instructions (valgrind's cachegrind) does not."
        )
    return section


def _instructions(valgrind: str, python: Path, program: str) -> int:
    """Instructions of one start, with all that it executes in its place."""
    with tempfile.TemporaryDirectory() as state:
        count = (
            valgrind,
            "--tool=cachegrind",
            "--cache-sim=no",
            "--trace-children=yes",
            "--cachegrind-out-file=/dev/null",
        )
        done = subprocess.run(
            [*count, python, "-c", _LAUNCH, python, "-c", program],
            env=clean_environment(Path(state), **_NO_EXPORTERS, PYTHONHASHSEED="0"),
            capture_output=True, text=True, check=True, timeout=COUNT_S,
        )  # fmt: skip
    return sum(int(number.replace(",", "")) for number in re.findall(r"I\s+refs:\s+([\d,]+)", done.stderr))


def _imports(title: str, pythons: dict[bool, Path], program: str) -> list[list[str]]:
    """What is imported only with us, by the time it takes."""
    seen = {with_us: _import_times(python, program) for with_us, python in pythons.items()}
    packages = Counter[str]()
    for name, spent_us in seen[True].items():
        if name not in seen[False]:
            parts = name.split(".")
            packages[".".join(parts[: 2 if parts[0] in ("amfs_otel", "opentelemetry") else 1])] += spent_us
    rows = [[f"`{name}`", f"{spent_us / 1000:.1f} ms"] for name, spent_us in packages.most_common(8)]
    return [[f"why, {title}: imported only with us", "own time of its modules"], *rows]


def _import_times(python: Path, program: str) -> dict[str, int]:
    """Module → µs that its import took, without what it imports itself."""
    with tempfile.TemporaryDirectory() as state:
        done = subprocess.run(
            [python, "-X", "importtime", "-c", _IN_PROCESS.format(program=program)],
            env=clean_environment(Path(state), **_NO_EXPORTERS), capture_output=True, text=True, timeout=START_S,
        )  # fmt: skip
    lines = [line[12:].split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {parts[-1].strip(): int(parts[0]) for parts in lines if parts[0].strip().isdigit()}


def cpu_ms(python: Path, program: str) -> float:
    """CPU of one start, ms."""
    with tempfile.TemporaryDirectory() as state:
        process = subprocess.Popen(
            [python, "-c", _LAUNCH, python, "-c", program],
            env=clean_environment(Path(state), **_NO_EXPORTERS),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        _, status, usage = os.wait4(process.pid, 0)
        watchdog.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{program!r} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def _imported(python: Path) -> list[Figure]:
    """How many modules of ours, and of libraries that we patch, a program that uses none of them holds."""
    program = (
        "import sys; names = list(sys.modules); "
        "print(sum(n.split('.')[0].startswith('amfs_otel') for n in names), "
        "sum(n.split('.')[0] in ('openai', 'amfs', 'amfs_core', 'psycopg', 'cryptography') for n in names))"
    )
    with tempfile.TemporaryDirectory() as state:
        done = subprocess.run(
            [python, "-c", _LAUNCH, python, "-c", program],
            env=clean_environment(Path(state), **_NO_EXPORTERS), capture_output=True, text=True, check=True, timeout=START_S,
        )  # fmt: skip
    ours, targets = done.stdout.split()
    return [
        Figure("modules of ours in a program that uses no library", float(ours), ""),
        Figure("modules of libraries that we patch, or of the store, in it", float(targets), "", 0.0),
    ]
