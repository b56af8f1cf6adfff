"""Open traces of processes that run."""

import os
import time
from pathlib import Path
from typing import Any

from amfs_otel.spool import OpenTraces, SpoolWriter, StateDirectory, StatusFile, open_traces


def told(state: StateDirectory, start: int, **changes: Any) -> None:
    facts = {"program": "agent.py", "ended": False, "destination": "local", "open_windows": 1}
    StatusFile(state, start).write(facts | changes)


def test_only_open_traces_of_a_process_that_runs_for_this_destination(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path).open()
    start = time.time_ns()
    told(state, start, open_windows=2)
    assert open_traces(state, "local") == [], "nobody holds the lock of a writer"
    with SpoolWriter(state, "local") as writer:
        writer.append("journal", os.urandom(16), b"x")
        assert open_traces(state, "local") == [OpenTraces("agent.py", os.getpid(), 2)]
        assert open_traces(state, "0" * 64) == []
        for other in ({"open_windows": 0}, {"ended": True}, {"destination": "0" * 64}, {"open_windows": None}):
            told(state, start, **other)
            assert open_traces(state, "local") == [], other
        told(state, start, program=None)
        assert open_traces(state, "local") == [OpenTraces(None, os.getpid(), 1)]
        told(state, time.time_ns() + 10**12)
        assert len(open_traces(state, "local")) == 1, "a status that is newer than the writer is another process's"


def test_nothing_ran_here(tmp_path: Path) -> None:
    assert open_traces(StateDirectory(tmp_path / "none"), "local") == []
