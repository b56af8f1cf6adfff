"""A skip that says why is listed at the end of a run; any other skip fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SEEN = """
import pytest
from tests.support.not_run import not_run

def test_without_go():
    not_run("needs Go")

@pytest.fixture
def server():
    not_run("needs Go")

def test_in_a_fixture(server): ...

@pytest.mark.backends
def test_backend():
    raise AssertionError("must not run")

def test_passes(): ...
"""

SEEN_MODULE = 'from tests.support.not_run import not_run\nnot_run("needs the moon")\n'

HIDDEN = {
    "skip": "import pytest\ndef test_it(): pytest.skip('later')",
    "mark": "import pytest\n@pytest.mark.skip\ndef test_it(): ...",
    "module": "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): ...",
    "xfail": "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False",
}


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests below `directory` under the settings and the root conftest of the repository."""
    ours = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(directory), "-p", "conftest", "-p", "no:cacheprovider"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *ours, *arguments, str(directory)],
        cwd=directory,
        env=environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("processes", ["0", "2"])
def test_reasons_are_the_last_lines(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_seen.py").write_text(SEEN)
    (tmp_path / "test_module.py").write_text(SEEN_MODULE)
    result = run(tmp_path, "-n", processes)
    assert result.returncode == 0, result.stdout + result.stderr
    *_, backends, go, moon, closing = result.stdout.splitlines()
    assert backends.startswith("not run (1): against a real Jaeger and Collector")
    assert go == "not run (2): needs Go"
    assert moon == "not run (1): needs the moon"
    assert "1 passed" in closing


def test_any_other_skip_fails_the_run(tmp_path: Path) -> None:
    for name, source in HIDDEN.items():
        (tmp_path / f"test_{name}.py").write_text(source)
    result = run(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    for name in HIDDEN:
        assert f"hidden skip, fails the run: test_{name}.py" in result.stdout
