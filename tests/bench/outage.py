"""A dead collector and a dead database: what they add to the calls and to the end of the same program without us."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from statistics import median as _median
from types import TracebackType
from typing import Self

from tests.bench.environments import mirror
from tests.bench.outage_program import NOWHERE
from tests.bench.processes import ROOT, WorkerError, clean_environment
from tests.bench.report import Effort, Figure, Section
from tests.bench.store import LOG, server
from tests.support.otlp_receiver import OtlpReceiver

_LAUNCH = "import sys; from opentelemetry.instrumentation.auto_instrumentation import run; sys.exit(run())"
_PROGRAM = Path(__file__).with_name("outage_program.py")
NONE = dict.fromkeys(("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none")
OTLP = dict.fromkeys(NONE, "otlp")
WELL, REFUSED, SILENT, NAMELESS = "answers", "refused", "never answers", "its name is never found"
COLLECTORS = {"collector over HTTP": "http/protobuf", "collector over gRPC": "grpc"}
DATABASE = "database"
BOTH = "collector over HTTP and database"
RUN_S = 90.0
"""How long one answer of a program may take, and its end."""
SETS, ROUNDS, CALLS, WARM = 3, 10, 60, 100
EXIT_S, CPU_SHARE, WAITS = 2.0, 5.0, 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """What one program meets: a collector, a database or both, and how they fare.

    Attributes:
        what: `DATABASE`, `BOTH` or one of `COLLECTORS`.
        kind: How it fares.
    """

    what: str
    kind: str


class Program:
    """The program of `outage_program`, running under `opentelemetry-instrument`. A context manager.

    Args:
        python: Its interpreter.
        environment: Settings of ours and OpenTelemetry's.
    """

    def __init__(self, python: Path, environment: dict[str, str]) -> None:
        self._state = Path(tempfile.mkdtemp(prefix="amfs-otel-bench-"))
        self._process = subprocess.Popen(
            [python, "-c", _LAUNCH, python, _PROGRAM],
            env=clean_environment(self._state, PYTHONHASHSEED="0", **environment), cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def costs(self, calls: int) -> dict[str, float]:
        """What so many calls cost (see `outage_program.costs`).

        Raises:
            WorkerError: It gave no answer.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{calls}\n")
            self._process.stdin.flush()
        with self._watched():
            line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"the program ended with {self._process.poll()} or gave no answer within {RUN_S:.0f} s")
        return json.loads(line)

    def exit_s(self) -> float:
        """Lets it end; seconds from its last instruction on.

        Raises:
            WorkerError: It failed.
        """
        assert self._process.stdin is not None
        began = time.monotonic()
        self._process.stdin.close()
        with self._watched():
            code = self._process.wait()
        if code:
            raise WorkerError(f"the program ended with {code}")
        return time.monotonic() - began

    @contextlib.contextmanager
    def _watched(self) -> Generator[None]:
        watchdog = threading.Timer(RUN_S, self._process.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        shutil.rmtree(self._state, ignore_errors=True)


def measure(effort: Effort) -> Section:
    """The section."""
    sets = effort.of(SETS, 2)
    section = Section(f"Dead collector, dead database ({CALLS * ROUNDS} calls of the real SDK, then the program ends)")
    pythons = {with_us: mirror(with_us=with_us) for with_us in (False, True)}
    with ways() as environments:
        for what in (*COLLECTORS, DATABASE, BOTH):
            cases = [case for case in environments if case.what == what]
            found = [_set_of(cases, environments, pythons, turn) for turn in range(sets)]
            for case in cases:
                if case.kind != WELL:
                    section.figures += _figures(case, found)
    section.remarks.append(
        "With us, beside the same with a collector and a database that answer. The processes of one set take turns in "
        f"every round; a difference is the median over {ROUNDS} rounds of one set. What stands here is the median of "
        f"{sets} sets, and the least and the largest beside it: between them lies the true median with "
        f"{(1 - 2 ** (1 - sets)) * 100:.0f} % confidence. Half of that distance is what this can resolve; where zero "
        "lies between them the outage cannot be told from none. CPU is that of the calling thread. A wait is a call in "
        "which that thread gave the processor up by itself: for a lock, or for the interpreter that another thread "
        "holds. What is added to the exit is the same program with us less the same without us, which exports no spans: "
        "with a dead collector the SDK's own exporters have something to lose only with us. The name that is never "
        "found is a look-up that never ends, in the process itself."
    )
    return section


@dataclass(frozen=True, slots=True)
class Turn:
    """What one set of processes showed, by case.

    Attributes:
        cpu: By how much the CPU of a call is more than in the case that is well, as a share of it.
        waits: In how many more of a hundred calls the thread waits for something.
        exit_s: Seconds to the end of the program, with us.
        bare_exit_s: The same without us.
        cpu_us: CPU of a call where all is well, µs.
    """

    cpu: dict[Case, float]
    waits: dict[Case, float]
    exit_s: dict[Case, float]
    bare_exit_s: dict[Case, float]
    cpu_us: float


def _set_of(cases: list[Case], environments: dict[Case, dict[str, str]], pythons: dict[bool, Path], turn: int) -> Turn:
    rounds: dict[Case, list[dict[str, float]]] = {case: [] for case in cases}
    with contextlib.ExitStack() as stack:
        programs = {case: stack.enter_context(Program(pythons[True], environments[case])) for case in cases}
        for program in programs.values():
            program.costs(WARM)
        for number in range(ROUNDS):
            for case in cases if (number + turn) % 2 else reversed(cases):
                rounds[case].append(programs[case].costs(CALLS))
        exit_s = {case: program.exit_s() for case, program in programs.items()}
    bare_exit_s: dict[Case, float] = {}
    for case in cases:
        with Program(pythons[False], environments[case]) as program:
            program.costs(CALLS)
            bare_exit_s[case] = program.exit_s()
    (well,) = [case for case in cases if case.kind == WELL]
    cpu = {case: _median([bad["cpu"] / good["cpu"] - 1 for bad, good in _beside(case, rounds)]) for case in cases}
    waits = {case: _median([bad["waits"] - good["waits"] for bad, good in _beside(case, rounds)]) for case in cases}
    well = rounds[Case(cases[0].what, WELL)]
    return Turn(cpu, waits, exit_s, bare_exit_s, _median([one["cpu_us"] for one in well]))


def _beside(case: Case, rounds: dict[Case, list[dict[str, float]]]) -> list[tuple[dict[str, float], dict[str, float]]]:
    """What each round showed in `case`, and where all is well."""
    return list(zip(rounds[case], rounds[Case(case.what, WELL)], strict=True))


def _figures(case: Case, found: list[Turn]) -> list[Figure]:
    title, cpu_us = f"{case.what}, {case.kind}", _median([turn.cpu_us for turn in found])
    shares = [turn.cpu[case] * 100 for turn in found]
    waits = [turn.waits[case] for turn in found]
    bare_s = _median([turn.bare_exit_s[case] for turn in found])
    added_s = max(turn.exit_s[case] - turn.bare_exit_s[case] for turn in found)
    return [
        Figure(
            f"{title}: CPU added to a call", _median(shares), "%", CPU_SHARE,
            note=f"from {min(shares):+.1f} % to {max(shares):+.1f} %; of {cpu_us:.0f} µs",
        ),
        Figure(
            f"{title}: more waits in 100 calls", _median(waits), "", WAITS,
            note=f"from {min(waits):+.1f} to {max(waits):+.1f}",
        ),
        Figure(
            f"{title}: added to the exit, at most", added_s, "s", EXIT_S,
            note=f"{bare_s:.1f} s without us; {len(found)} runs",
        ),
    ]  # fmt: skip


# -- what is to be reached -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def ways() -> Generator[dict[Case, dict[str, str]]]:
    """What can be met, and the environment in which it is; all of it is there meanwhile."""
    with server() as ledger, OtlpReceiver() as receiver, dead_end(listens=False) as closed, dead_end() as mute:
        key = {"AMFS_OTEL_SIGNING_KEY": f"hex:{ledger.writer_key.secret.hex()}", "AMFS_OTEL_LOG": LOG}
        endpoints = {REFUSED: f"127.0.0.1:{closed}", SILENT: f"127.0.0.1:{mute}", NAMELESS: f"{NOWHERE}:{mute}"}
        found: dict[Case, dict[str, str]] = {}
        for what, protocol in COLLECTORS.items():
            well = {WELL: receiver.endpoint(protocol).removeprefix("http://")}
            for kind, endpoint in (well | endpoints).items():
                over = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{endpoint}"}
                found[Case(what, kind)] = over
        dsns = {kind: f"postgresql://agent@{endpoint}/traces" for kind, endpoint in endpoints.items()}
        for kind, dsn in ({WELL: ledger.dsn} | dsns).items():
            found[Case(DATABASE, kind)] = {**NONE, **key, "AMFS_OTEL_DSN": dsn}
        for kind in (WELL, SILENT):
            found[Case(BOTH, kind)] = {
                **found[Case(DATABASE, kind)],
                **OTLP,
                **found[Case(next(iter(COLLECTORS)), kind)],
            }
        yield found


@contextlib.contextmanager
def dead_end(*, listens: bool = True) -> Generator[int]:
    """A port at which nothing good happens: connections are accepted and never answered, or refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        held: list[socket.socket] = []
        if listens:
            listener.listen(64)

            def accept() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        held.append(listener.accept()[0])

            threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        for connection in held:
            connection.close()
