"""The environments beside `.venv` in which programs run against the oldest supported release of a library."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.not_run import not_run

ROOT = Path(__file__).parents[2]


def python_of(name: str) -> Path:
    """The interpreter of the environment `name` (the stem of a file in `requirements/`).

    It holds our package, editable, and what the lock of that name pins. Where it was not set up, the current test ends
    as not run.
    """
    home = ROOT / ".cache" / "environments" / name
    if not (home / "installed.txt").exists():  # the last thing that its setting up writes
        not_run(f"against {name}; `make environments` sets it up")
    return home / "bin" / "python"


def not_run_in(name: str, files: Sequence[Path], chosen: str) -> dict[str, int]:
    """Runs the tests `chosen` (as `-k` takes it) of `files` in the environment `name`; fails where one of them does.

    Returns:
        What that run lists as not run, with the number of tests.
    """
    arguments = ["-q", "-p", "no:cacheprovider", "-W", "default", *files, "-k", chosen]
    done = subprocess.run(
        [python_of(name), "-m", "pytest", *arguments],
        capture_output=True, text=True, timeout=380, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    listed = re.findall(r"^not run \((\d+)\): (.+)$", done.stdout, re.MULTILINE)
    return {reason: int(count) for count, reason in listed}
