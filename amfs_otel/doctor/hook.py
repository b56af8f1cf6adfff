"""Does our hook start under `opentelemetry-instrument`, here and now? The only way to know is to try."""

import subprocess
import sys

from amfs_otel.doctor.facts import HookFacts

LIMIT_S = 20.0
_LAUNCHER = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
# Nothing is recorded, and the SDK's exporters are not waited for.
_PROBE = """
import os, sys
patches = sys.modules.get("amfs_otel.instrumentor")
print(bool(patches and patches.states()), flush=True)
os._exit(0)
"""


def hook_facts() -> HookFacts:
    """Starts a program that does nothing in this process's environment, and asks it."""
    argv = [sys.executable, "-c", _LAUNCHER, sys.executable, "-c", _PROBE]
    try:
        done = subprocess.run(  # noqa: S603  this interpreter
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return HookFacts(False, f"a program that does nothing did not end within {LIMIT_S:.0f} s")
    if done.stdout.strip().endswith("True"):
        return HookFacts(True)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return HookFacts(False, (lines[-1] if lines else "")[:200])
