"""`list` and `explain` beside a process whose trace is still open."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs_otel.spool import StateDirectory, open_traces
from amfs_otel.store.embedded import EmbeddedServer
from tests.integration.cli_calls import Cli

PATIENCE_S = 20.0
AGENT = """
import amfs_otel
amfs_otel.record_context("git", "3 commits", source="git log")
input()
amfs_otel.outcome("OPEN-1", "success")
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    state = tmp_path / "state"
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(state))
    yield state
    EmbeddedServer(state).remove()


@pytest.fixture
def running(tmp_path: Path, state: Path) -> Iterator[subprocess.Popen[str]]:
    """An agent that has done something and waits, with its trace open."""
    program = tmp_path / "waiting.py"
    program.write_text(AGENT)
    words = [sys.executable, "-m", "amfs_otel", "run", sys.executable, str(program)]
    with subprocess.Popen(words, env={**os.environ}, stdin=subprocess.PIPE, text=True) as agent:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not open_traces(StateDirectory(state), "local"):
                assert time.monotonic() < deadline, "no open trace in any status file"
                time.sleep(0.05)
            yield agent
        finally:
            agent.kill()


def test_an_open_trace_is_said_where_nothing_is_found_and_only_there(
    state: Path, running: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    said = f"1 trace is open in waiting (pid {running.pid}); it shows after an outcome, at its exit, or after 300 s"
    for words in (("list",), ("explain", "last"), ("show", "last"), ("list", "--json")):
        called = cli(*words)
        assert called.err.count(said) == 1, called.err
        assert said not in called.out
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.close()
    assert running.wait(PATIENCE_S) == 0
    rows = cli("list", "--json")
    assert [row["outcome_ref"] for row in rows.json] == ["OPEN-1"]
    assert "open in" not in rows.err
    assert "open in" not in cli("explain", "NO-1").err
