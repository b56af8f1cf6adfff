"""The patches on the oldest OpenTelemetry that is allowed; every other test has the newest."""

import subprocess
from pathlib import Path

import pytest

from tests.support.environments import ROOT, python_of

FOLDER = Path(__file__).parent


@pytest.mark.timeout(400)
def test_the_tests_of_a_patch_and_of_all_patches() -> None:
    """Plain and streamed calls, and the contract, in an environment of their own."""
    python = python_of("oldest-otel")
    files = [FOLDER / name for name in ("test_openai.py", "test_openai_streams.py", "test_contract.py")]
    done = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "default",
            *files,
            "-k",
            "not oldest and not switched_off",
        ],
        capture_output=True,
        text=True,
        timeout=380,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
