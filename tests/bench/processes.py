"""Workers from outside: started in their environment, asked by turns."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
_CLEARED = (
    "AMFS_",
    "ANTHROPIC_",
    "LANGCHAIN_",
    "LANGSMITH_",
    "OPENAI_",
    "OTEL_",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
)


class WorkerError(RuntimeError):
    """A worker could not do what it was asked for; the message holds its words."""


def clean_environment(state: Path, **more: str) -> dict[str, str]:
    """This process's environment without settings of ours or OpenTelemetry's; byte code may be written."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_CLEARED)}
    return {**kept, "AMFS_OTEL_STATE_DIR": str(state), **more}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a worker.

    Attributes:
        adapter: Name in `adapters.ADAPTERS`.
        options: Further arguments of the worker.
        environment: Variables to set.
        python: The interpreter; default: the one that runs this.
    """

    adapter: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict[str, str])
    python: Path = Path(sys.executable)


ANSWER_S = 600.0
"""How long a worker may take for one answer."""


class Process:
    """A running worker. A context manager; its state directory goes with it."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._state = Path(tempfile.mkdtemp(prefix="amfs-otel-bench-"))
        self._log = (self._state / "worker.log").open("w")
        command = [variant.python, "-m", "tests.bench.worker", variant.adapter, *variant.options]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=clean_environment(self._state / "state", **variant.environment),
        )
        try:
            self._read()
        except WorkerError:
            self.close()
            raise

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Has the worker do something.

        Raises:
            WorkerError: It could not.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # that it ended is then read
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(ANSWER_S, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        late = f" or gave no answer within {ANSWER_S:.0f} s"
        answer = json.loads(line) if line else {"error": f"the worker {self._variant.adapter} ended{late}"}
        if "error" in answer:
            self._log.flush()
            said = Path(self._log.name).read_text(errors="replace").strip().splitlines()
            raise WorkerError(f"{answer['error']}; {said[-1] if said else ''}")
        return answer

    def close(self) -> None:
        """Ends the worker and removes what it left."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
        shutil.rmtree(self._state, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call costs its thread, as a multiple of the floor measured between the calls.

    Attributes:
        ratios: One a round.
        floor_us: The floor, µs of CPU, one a round.
    """

    ratios: list[float]
    floor_us: list[float]

    def over(self, baseline: Cost) -> float:
        """Median over the rounds of what this call costs more than `baseline`, in floors."""
        return statistics.median(ours - bare for ours, bare in zip(self.ratios, baseline.ratios, strict=True))


def interleaved(processes: Mapping[str, Process], workload: str, *, rounds: int, calls: int) -> dict[str, Cost]:
    """The cost of `workload` in each process; all processes take turns in every round."""
    found = {name: Cost([], []) for name in processes}
    for process in processes.values():
        process.ask("batch", workload=workload, calls=calls)
    names = list(processes)
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            processes[name].ask("settle")
            answer = processes[name].ask("batch", workload=workload, calls=calls)
            found[name].ratios.append(answer["call"] / answer["floor"])
            found[name].floor_us.append(answer["floor"] / 1000)
    return found
