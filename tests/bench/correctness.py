"""Whether a program sees the same with an instrumentation as without: us and others, content off and on.

What is checked stands in `checks/`, one function a fact; `checking` runs them in a process of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.adapters import ADAPTERS, PEERS, SDKS
from tests.bench.beside import OFF, ON, US, title
from tests.bench.checking import Outcome
from tests.bench.environments import EnvironmentFailedError, peer
from tests.bench.processes import ROOT, Variant, WorkerError, clean_environment
from tests.bench.report import Effort, Figure, Section

LIMIT_S = 150
"""How long all checks of one SDK may take."""
COUNTS = {"openai": 44, "anthropic": 15}
_HEADINGS = ["checks that hold", "openai off", "on", "anthropic off", "on", "one span a call, ended once"]


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("Correctness beside other instrumentations")
    names = [US, *(PEERS if effort.peers else ())]
    rows = [_HEADINGS]
    for name in names:
        try:
            found = _all_of(name)
        except (EnvironmentFailedError, WorkerError) as error:
            section.remarks.append(f"Not run: {ADAPTERS[name].title}: {error}")
            continue
        rows.append(_row(name, found))
        if name == US:
            section.figures += _figures(found)
        section.remarks += _faults(name, found)
    section.tables.append(rows)
    section.remarks.insert(
        0,
        "A check that fails is one that holds without the instrumentation: the program saw something else. The last "
        "column counts the checks, all four runs together, in which each call of a model gave one span that was ended "
        "once; a peer may make a second one by design, or no span where it does not instrument.",
    )
    return section


Found = dict[tuple[str, str], list[Outcome]]
"""SDK, and content off or on → what every check showed, and at the end the whole process."""


def _all_of(name: str) -> Found:
    """All runs of an instrumentation, two at a time.

    Raises:
        EnvironmentFailedError: Its environment cannot be made, or the SDK itself does not hold what is checked there.
        WorkerError: A run failed.
    """
    sdks = [sdk for sdk in ADAPTERS[name].libraries if sdk in SDKS]
    python = interpreter_of(name)
    runs = [("none", sdk, OFF) for sdk in sdks] + [(name, sdk, key) for sdk in sdks for key in (OFF, ON)]

    def found(run: tuple[str, str, str]) -> list[Outcome]:
        return outcomes(run[0], run[1], content=run[2] == ON, python=python)

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(found, runs))
    for bare in told[: len(sdks)]:
        for one in bare:
            if one.error:
                raise EnvironmentFailedError(
                    f"without it \u201c{one.check}\u201d fails in its environment: {one.error}"
                )
    return {(sdk, key): all_of for (_, sdk, key), all_of in zip(runs[len(sdks) :], told[len(sdks) :], strict=True)}


def interpreter_of(name: str) -> Path:
    """The interpreter of the environment of an instrumentation.

    Raises:
        EnvironmentFailedError: It cannot be made.
    """
    return Variant(name).python if ADAPTERS[name].requirements is None else peer(name)


def outcomes(name: str, sdk: str, *, content: bool, native: bool = False, python: Path | None = None) -> list[Outcome]:
    """Runs all checks of an SDK in a process of their own; the last outcome is that of the whole process.

    Raises:
        WorkerError: The process failed, or took longer than `LIMIT_S`.
    """
    state = Path(tempfile.mkdtemp(prefix="amfs-otel-bench-"))
    interpreter = python or Variant(name).python
    options = [*(["--content"] if content else []), *(["--native"] if native else [])]
    command = [interpreter, "-m", "tests.bench.checking", name, sdk, *options]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=clean_environment(state),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WorkerError(f"the checks of {sdk} took longer than {LIMIT_S} s") from None
    finally:
        shutil.rmtree(state, ignore_errors=True)
    found = [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(found) != COUNTS[sdk] + 1:
        said = done.stderr.strip().splitlines()
        raise WorkerError(f"{len(found)} of {COUNTS[sdk] + 1} results for {sdk}; {said[-1] if said else ''}")
    return found


def spans_right(outcome: Outcome) -> bool:
    """Whether each call gave one span that was ended once."""
    return outcome.ended == outcome.expected and not outcome.lost and not outcome.twice


def _row(name: str, found: Found) -> list[str]:
    cells = [title(name)]
    for sdk in SDKS:
        for key in (OFF, ON):
            checks = found.get((sdk, key), [])[:-1]
            cells.append(f"{sum(not one.error for one in checks)} of {len(checks)}" if checks else "")
    checks = [one for all_of in found.values() for one in all_of[:-1]]
    return [*cells, f"{sum(map(spans_right, checks))} of {len(checks)}"]


def _figures(found: Found) -> list[Figure]:
    figures: list[Figure] = []
    for sdk in SDKS:
        for key in (OFF, ON):
            *checks, end = found[sdk, key]
            held, bar = sum(not one.error for one in checks), COUNTS[sdk]
            figures.append(
                Figure(f"{sdk}, content {key}: checks that hold", float(held), "", float(bar), at_least=True)
            )
            wrong = sum(not spans_right(one) or not one.clean or bool(one.logged) for one in checks)
            wrong += len(end.lost) + len(end.twice)
            what = f"{sdk}, content {key}: checks with a span lost, ended twice, left current, or a line in the log"
            figures.append(Figure(what, float(wrong), "", 0.0))
    return figures


def _faults(name: str, found: Found) -> list[str]:
    """What failed, by name; one paragraph, none where nothing did."""
    told: list[tuple[str, Callable[[Outcome], object]]] = [
        ("Fails", lambda one: one.error),
        ("A span that never ends", lambda one: one.lost),
        ("No span", lambda one: not one.lost and one.ended < one.expected),
        ("A span ended twice", lambda one: one.twice),
    ]
    parts = [f"{what}: {names}." for what, wrong in told if (names := _named(found, wrong))]
    return [f"{title(name)}: {' '.join(parts)}"] if parts else []


def _named(found: Found, wrong: Callable[[Outcome], object]) -> str:
    """The checks of which something is true, by SDK; with the setting of content only where it matters."""
    keys: dict[str, dict[str, list[str]]] = {}
    for (sdk, key), all_of in found.items():
        for one in all_of[:-1]:
            if wrong(one):
                keys.setdefault(sdk, {}).setdefault(one.check, []).append(key)
    return "; ".join(
        f"{sdk}: "
        + ", ".join(check if len(seen) == 2 else f"{check} (content {seen[0]})" for check, seen in of.items())
        for sdk, of in keys.items()
    )
