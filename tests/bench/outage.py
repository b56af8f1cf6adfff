"""A dead collector and a dead database: what they add to the calls and to the end of the same program without us."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path

from tests.bench.environments import mirror
from tests.bench.processes import ROOT, clean_environment
from tests.bench.report import Effort, Figure, Section

_LAUNCH = "import sys; from opentelemetry.instrumentation.auto_instrumentation import run; sys.exit(run())"
_PROGRAM = f"""
import json, sys, time
sys.path.append({str(ROOT)!r})
from tests.bench import traffic
create, arguments, times = traffic.client().chat.completions.create, traffic.chat_arguments(), []
for number in range(120):
    start = time.thread_time()
    create(**arguments)
    times.append(time.thread_time() - start)
times = sorted(times[20:])
print(json.dumps([times[50], times[98]]), flush=True)
"""
KINDS = ("refused", "never answers")


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("Dead collector, dead database (100 calls of the real SDK, then the program ends)")
    pythons = {"without us": mirror(with_us=False), "with us": mirror(with_us=True)}
    for kind in KINDS[:1] if effort.quick else KINDS:
        for what in ("collector", "database"):
            section.figures += _one(pythons, what, kind, effort)
    section.remarks.append(
        "The end of a program is timed from its last line to the end of its process. Without us it exports no spans; "
        "with a dead collector the difference is what the SDK's own exporter does with the spans that it then has."
    )
    return section


def _one(pythons: dict[str, Path], what: str, kind: str, effort: Effort) -> list[Figure]:
    medians: dict[str, list[float]] = {name: [] for name in pythons}
    ends: dict[str, list[float]] = {name: [] for name in pythons}
    for _ in range(effort.of(2, 1)):
        for name, python in pythons.items():
            with dead_end(kind) as port:
                median, end = _run(python, _environment(what, port))
            medians[name].append(median * 1000)
            ends[name].append(end)
    live = min(ends["without us"])
    added = statistics.median(medians["with us"]) - statistics.median(medians["without us"])
    return [
        Figure(
            f"{what} {kind}: a call, p50", added, "ms", note="over without us; what capturing costs anyway is in it"
        ),
        Figure(f"{what} {kind}: exit", min(ends["with us"]) - live, "s", 2.0, note=f"{live:.1f} s without us"),
    ]


def _environment(what: str, port: int) -> dict[str, str]:
    if what == "collector":
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
    none = dict.fromkeys(("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none")
    key = {"AMFS_OTEL_SIGNING_KEY": "00112233445566778899aabbccddeeff" * 2}
    return {**none, **key, "AMFS_OTEL_DSN": f"postgresql://agent@127.0.0.1:{port}/traces"}


def _run(python: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Median CPU of a call, s, and seconds from the last line of the program to the end of its process."""
    state = Path(tempfile.mkdtemp(prefix="amfs-otel-bench-"))
    process = subprocess.Popen(
        [python, "-c", _LAUNCH, python, "-c", _PROGRAM],
        env=clean_environment(state, **environment), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        ended = time.monotonic()
        process.wait(60)
        return json.loads(line)[0], time.monotonic() - ended
    finally:
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
