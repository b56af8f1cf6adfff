"""The environments beside `.venv` in which programs run against the oldest supported release of a library."""

from pathlib import Path

from tests.support.not_run import not_run

ROOT = Path(__file__).parents[2]


def python_of(name: str) -> Path:
    """The interpreter of the environment `name` (the stem of a file in `requirements/`).

    It holds our package, editable, and what the lock of that name pins. Where it was not set up, the current test ends
    as not run.
    """
    python = ROOT / ".cache" / "environments" / name / "bin" / "python"
    if not python.exists():
        not_run(f"against {name}; `make environments` sets it up")
    return python
