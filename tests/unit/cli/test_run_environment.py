"""What `amfs-otel run` adds to a program's environment."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from amfs_otel.cli.run import EXPORTERS, environment, is_foreign_python

OFF = dict.fromkeys(EXPORTERS, "none")


def test_exporters_are_off_where_nothing_says_otherwise() -> None:
    assert environment({"PATH": "/bin"}) == {"PATH": "/bin", **OFF}


@pytest.mark.parametrize(
    "said",
    [
        "OTEL_TRACES_EXPORTER",
        "OTEL_METRICS_EXPORTER",
        "OTEL_LOGS_EXPORTER",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "OTEL_EXPORTER_ZIPKIN_ENDPOINT",
        "AMFS_OTEL_ENDPOINT",
    ],
)
def test_whoever_says_something_keeps_what_they_said(said: str) -> None:
    environ = {said: "console"}
    assert environment(environ) == environ


def test_an_empty_variable_says_nothing() -> None:
    assert environment({"OTEL_EXPORTER_OTLP_ENDPOINT": ""})["OTEL_TRACES_EXPORTER"] == "none"


def test_keep_content_keeps_every_text() -> None:
    assert environment({}, keep_content=True)["AMFS_OTEL_LEDGER_CONTENT"] == "all"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An interpreter that has nothing installed, as on the path of a shell in which no environment is active."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{sys._base_executable}" -I -S "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    return tmp_path / "bin" / "python3"


def test_an_interpreter_without_us_is_seen_before_it_runs(bare: Path, tmp_path: Path) -> None:
    assert is_foreign_python(bare, {})
    assert not is_foreign_python(Path(sys.executable), {})
    elsewhere = tmp_path / "python"
    elsewhere.symlink_to(sys.executable)
    own = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert not is_foreign_python(elsewhere, own), "another way to an interpreter that has us"
    assert not is_foreign_python(Path("/bin/sh"), {})
    assert not is_foreign_python(tmp_path / "python3.9", {}), "what cannot be started says nothing"


def test_run_says_so_and_runs_the_program_all_the_same(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bare.parent), prepend=os.pathsep)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run(
        [sys.executable, "-m", "amfs_otel", "run", "python3", "-c", "print('ran')"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert f"python3 is {bare}, which has no amfs-otel, so nothing will be recorded." in done.stderr
    assert f"amfs-otel run {shlex.quote(sys.executable)}" in done.stderr
