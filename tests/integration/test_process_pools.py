"""Pools of processes, and streams that the end of a process cuts off: sealed or interrupted, never lost or doubled."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Pace, Reply
from tests.integration.served_apps import PATIENCE_S
from tests.integration.test_process_exit import closed, left
from tests.support.programs import PRELUDE, environment
from tests.support.spooled import spooled

POOL = """
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
import multiprocessing
def work(number):
    tool(f"work-{number}")
def work_and_leave(number):
    begun("open")
    amfs_otel.flush()
    os._exit(3)
if __name__ == "__main__":
    with ProcessPoolExecutor(2, multiprocessing.get_context(sys.argv[1])) as pool:
        if sys.argv[2:]:
            try:
                pool.submit(work_and_leave, 0).result()
            except BrokenProcessPool:
                print("broken")
        else:
            tool("parent")
            list(pool.map(work, range(6)))
"""
UNDER_THE_COMMAND = """
import multiprocessing, os
def ask(number):
    from openai import OpenAI
    OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": str(number)}])
    return os.getpid()
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(ask, range(4), chunksize=2)
        pool.close()
        pool.join()
"""
STREAMING = """
import amfs_otel, os, sys, threading
amfs_otel.instrument()
from openai import OpenAI
client, hung = OpenAI(), threading.Event()
ask = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
def stream():
    for chunk in client.chat.completions.create(**ask, stream=True):
        hung.set()
client.chat.completions.create(**ask)
thread = threading.Thread(target=stream, daemon="daemon" in sys.argv)
thread.start()
hung.wait()
"""
HANGING = Reply(text="a longer answer in some chunks", pace=Pace(hang_after=1))


def run(folder: Path, program: str, *words: str, under: tuple[str, ...] = (), **settings: str) -> str:
    """Runs `program` from a file to its good end, without a word on stderr; what it printed."""
    file = folder / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [*under, sys.executable, str(file), *words],
        env=environment(folder / "state", **settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def tools(state: Path) -> Counter[str]:
    """The names of the tools in all decisions."""
    return Counter(event["tool_name"] for one in spooled(state) for event in one.facts["events"])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_executor_of_processes(method: str, tmp_path: Path) -> None:
    run(tmp_path, PRELUDE + POOL, method)
    assert tools(tmp_path / "state") == {"parent": 1, **{f"work-{number}": 1 for number in range(6)}}
    assert {by for _, by, _ in closed(tmp_path / "state")} == {"exit"}
    assert left(tmp_path / "state") == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_leaves_without_its_exit_functions(method: str, tmp_path: Path) -> None:
    assert run(tmp_path, PRELUDE + POOL, method, "leave") == "broken\n"
    assert spooled(tmp_path / "state") == []
    ((_, closed_by, statuses),) = left(tmp_path / "state")
    assert (closed_by, statuses) == ("interrupted", ["incomplete"])


def test_spawned_processes_of_a_program_under_the_command(tmp_path: Path, model_server: ModelServer) -> None:
    under = (str(Path(sys.executable).parent / "opentelemetry-instrument"),)
    settings = {"OPENAI_BASE_URL": model_server.base_url, "OPENAI_API_KEY": "any"}
    run(tmp_path, UNDER_THE_COMMAND, under=under, **settings)
    assert sum(events for _, _, events in closed(tmp_path / "state")) == 4
    assert left(tmp_path / "state") == []


class TestAThreadThatStreams:
    """One plain call, and a stream that another thread reads when the program comes to its end."""

    @pytest.fixture
    def settings(self, model_server: ModelServer) -> dict[str, str]:
        model_server.queue(Reply(text="one"), HANGING)
        return {"OPENAI_BASE_URL": model_server.base_url, "OPENAI_API_KEY": "any"}

    def test_a_daemon_is_cut_off(self, settings: dict[str, str], tmp_path: Path) -> None:
        run(tmp_path, STREAMING, "daemon", **settings)
        (one,) = spooled(tmp_path / "state")
        assert (one.facts["closed_by"], one.facts["status"]) == ("exit", "complete")
        exits = [event.get("stream_exit") for event in one.facts["events"]]
        assert exits == [None, "interpreter_exit"]
        assert left(tmp_path / "state") == []

    def test_the_interpreter_waits_for_any_other(
        self, settings: dict[str, str], tmp_path: Path, model_server: ModelServer
    ) -> None:
        model_server.resume.set()
        run(tmp_path, STREAMING, **settings)
        (one,) = spooled(tmp_path / "state")
        assert [event.get("stream_exit") for event in one.facts["events"]] == [None, "complete"]

    def test_the_process_leaves_at_once(self, settings: dict[str, str], tmp_path: Path) -> None:
        run(tmp_path, STREAMING + "amfs_otel.flush(); os._exit(0)", "daemon", **settings)
        assert spooled(tmp_path / "state") == []
        assert left(tmp_path / "state") == [("program", "interrupted", ["ok", "incomplete"])]
