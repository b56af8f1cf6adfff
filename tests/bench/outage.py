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

from tests.bench.environments import mirror
from tests.bench.processes import ROOT, WorkerError, clean_environment
from tests.bench.report import Effort, Figure, Section

_LAUNCH = "import sys; from opentelemetry.instrumentation.auto_instrumentation import run; sys.exit(run())"
_CALLS, _WARM = 400, 20
_PROGRAM = f"""
import json, sys, time
sys.path.append({str(ROOT)!r})
from tests.bench import traffic
create, arguments, times = traffic.client().chat.completions.create, traffic.chat_arguments(), []
for number in range({_CALLS + _WARM}):
    start = time.perf_counter()
    create(**arguments)
    times.append(time.perf_counter() - start)
times = sorted(times[{_WARM}:])
print(json.dumps([times[len(times) // 2] * 1000, times[len(times) * 99 // 100] * 1000]), flush=True)
"""
NONE = dict.fromkeys(("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none")
KINDS = ("refused", "never answers")
WHAT = ("collector over HTTP", "collector over gRPC", "database")
WELL = "nothing to reach"
RUN_S = 90.0
"""How long one program may take until its last line, and from there to its end."""
EXIT_S, P50_SHARE, P99_MS = 2.0, 5.0, 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one program showed.

    Attributes:
        p50_ms: Wall time of a call.
        p99_ms: The same, of the slowest.
        exit_s: From its last line to the end of its process.
    """

    p50_ms: float
    p99_ms: float
    exit_s: float


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section(f"Dead collector, dead database ({_CALLS} calls of the real SDK, then the program ends)")
    pythons = {"without us": mirror(with_us=False), "with us": mirror(with_us=True)}
    for what in WHAT:
        found = _runs(what, pythons, effort.of(2, 1))
        for kind in KINDS:
            section.figures += _figures(what, kind, found)
    section.remarks.append(
        "Wall time, the least of the runs. What the outage adds to a call is the program with us and the outage, less "
        "the same with nothing to reach, less that difference without us. Without us the program exports no spans; with "
        "a dead collector the SDK's own exporters have something to lose only with us."
    )
    return section


def _runs(what: str, pythons: dict[str, Path], rounds: int) -> dict[tuple[str, str], Run]:
    """With us or without us, and what happens to what is to be reached → the least of the runs, taken by turns."""
    found: dict[tuple[str, str], list[Run]] = {}
    for _ in range(rounds):
        for kind in (WELL, *KINDS):
            for name, python in pythons.items():
                with dead_end(kind) as port:
                    environment = NONE if kind == WELL else _environment(what, port)
                    found.setdefault((name, kind), []).append(_run(python, environment))
    return {key: _least(runs) for key, runs in found.items()}


def _figures(what: str, kind: str, found: dict[tuple[str, str], Run]) -> list[Figure]:
    ours, bare = found["with us", kind], found["without us", kind]
    ours_well, bare_well = found["with us", WELL], found["without us", WELL]
    p50 = (ours.p50_ms - ours_well.p50_ms) - (bare.p50_ms - bare_well.p50_ms)
    p99 = (ours.p99_ms - ours_well.p99_ms) - (bare.p99_ms - bare_well.p99_ms)
    share, call = p50 / ours_well.p50_ms * 100, f"of {ours_well.p50_ms:.2f} ms"
    return [
        Figure(f"{what}, {kind}: added to a call, p50", share, "%", P50_SHARE, note=call),
        Figure(f"{what}, {kind}: added to a call, p99", p99, "ms", P99_MS),
        Figure(
            f"{what}, {kind}: added to the exit", ours.exit_s - bare.exit_s, "s", EXIT_S,
            note=f"{bare.exit_s:.1f} s without us",
        ),
    ]  # fmt: skip


def _least(runs: list[Run]) -> Run:
    return Run(min(r.p50_ms for r in runs), min(r.p99_ms for r in runs), min(r.exit_s for r in runs))


def _environment(what: str, port: int) -> dict[str, str]:
    if what.startswith("collector"):
        protocol = "grpc" if what.endswith("gRPC") else "http/protobuf"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    key = {"AMFS_OTEL_SIGNING_KEY": "00112233445566778899aabbccddeeff" * 2}
    return {**NONE, **key, "AMFS_OTEL_DSN": f"postgresql://agent@127.0.0.1:{port}/traces"}


def _run(python: Path, environment: dict[str, str]) -> Run:
    """Runs the program once.

    Raises:
        WorkerError: It failed, or was still running after `RUN_S`.
    """
    state = Path(tempfile.mkdtemp(prefix="amfs-otel-bench-"))
    process = subprocess.Popen(
        [python, "-c", _LAUNCH, python, "-c", _PROGRAM],
        env=clean_environment(state, **environment), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    watchdog = threading.Timer(RUN_S, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
        ended = time.monotonic()
        process.wait(RUN_S)
        seconds = time.monotonic() - ended
        if not line or process.returncode:
            raise WorkerError(f"the program ended with {process.returncode} or gave no answer within {RUN_S:.0f} s")
        return Run(*json.loads(line), seconds)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        shutil.rmtree(state, ignore_errors=True)


@contextlib.contextmanager
def dead_end(kind: str) -> Generator[int]:
    """A port at which nothing good happens: connections are refused, or accepted and never answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        held: list[socket.socket] = []
        if kind == "never answers":
            listener.listen(64)

            def accept() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        held.append(listener.accept()[0])

            threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        for connection in held:
            connection.close()
