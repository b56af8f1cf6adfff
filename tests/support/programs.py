"""Small programs that capture, as processes of their own."""

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

PRELUDE = """
import os, signal, sys, threading, time
import amfs_otel
from amfs_otel import api, capture, pipeline
from amfs_otel.capture import Kind

def begun(name="t", memory=None):
    return capture.begin(Kind.TOOL_CALL, "amfs_otel", {"tool_name": name}, memory=memory)

def tool(name="t", memory=None):
    begun(name, memory).end({"success": True})

def ended(what="end"):
    print(what, time.time(), flush=True)

amfs_otel.instrument()
"""


@dataclass(frozen=True)
class Ran:
    """A program that has ended.

    Attributes:
        code: Return code; negative for a signal.
        out: Its standard output.
        err: Its standard error.
        exit_s: Seconds from its last `ended()` to its end.
    """

    code: int
    out: str
    err: str
    exit_s: float


FORK_IS_TOLD = "ignore:This process:DeprecationWarning"
"""Since 3.12 Python warns whoever forks a process with threads; OpenTelemetry's exporters are some, as our worker is."""


def environment(state: Path, **settings: str) -> dict[str, str]:
    """The environment of a program: this machine's, our settings, no exporter."""
    none = {f"OTEL_{kind}_EXPORTER": "none" for kind in ("TRACES", "METRICS", "LOGS")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "instrumentation")])
    return {
        **os.environ,
        **none,
        "AMFS_OTEL_STATE_DIR": str(state),
        "PYTHONPATH": path,
        "PYTHONWARNINGS": FORK_IS_TOLD,
        **settings,
    }


def started(program: str, state: Path, *, under: tuple[str, ...] = (), **settings: str) -> subprocess.Popen[str]:
    """Starts `program` after `PRELUDE`."""
    return subprocess.Popen(
        [*under, sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        env=environment(state, **settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def finished(process: subprocess.Popen[str], seconds: float = 60) -> Ran:
    """Waits for its end."""
    out, err = process.communicate(timeout=seconds)
    now = time.time()
    ends = [float(line.split()[1]) for line in out.splitlines() if line.startswith("end ")]
    return Ran(process.returncode, out, err, now - ends[-1] if ends else 0.0)


def ran(program: str, state: Path, **options: Any) -> Ran:
    """Runs `program` to its end."""
    return finished(started(program, state, **options))
