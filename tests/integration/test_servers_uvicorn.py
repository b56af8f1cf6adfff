"""uvicorn as it is deployed, with its supervisors: each request one trace, whatever ends the process that served it."""

import os
import signal
from pathlib import Path

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Pace, Reply
from tests.integration.served_apps import (
    ASGI,
    PATIENCE_S,
    check_one_trace_each,
    deployed,
    journaling,
    questions,
    until,
)
from tests.integration.test_process_exit import left

UVICORN = ["uvicorn", "app:app", "--fd", "{fd}"]
HANGING = Reply(text="a longer answer in some chunks", pace=Pace(hang_after=1))


def test_two_workers_and_fifty_clients(tmp_path: Path, model_server: ModelServer) -> None:
    with deployed([*UVICORN, "--workers", "2"], ASGI, tmp_path, model_server, "opentelemetry-instrument") as server:
        until(lambda: sum(journaling(server.state).values()) == 2, "both workers are up")
        answers = server.at_once(50)
        assert all(answer.body for answer in answers)
        assert len({answer.pid for answer in answers}) == 2
        assert server.stop() == 0
    check_one_trace_each(server, range(50), lifespans=2)
    assert {one.facts["agent"] for one in server.decisions()} == {"uvicorn"}


def test_a_reload(tmp_path: Path, model_server: ModelServer) -> None:
    with deployed([*UVICORN, "--reload"], ASGI, tmp_path, model_server, "instrument()") as server:
        first = server.get(0)
        app = server.folder / "app.py"
        app.write_text(app.read_text() + "\n")
        numbers = iter(range(1, 1000))
        asked = [0]

        def reloaded() -> bool:
            number = next(numbers)
            try:
                pid = server.get(number).pid
            except ConnectionError:
                return False  # it stood in the queue of the process that ended, which never saw it
            asked.append(number)
            return pid != first.pid

        until(reloaded, "a new process serves")
        assert server.stop() == 0
    check_one_trace_each(server, asked, lifespans=2)


def test_a_stream_that_sigterm_meets_is_finished_and_whole(tmp_path: Path, model_server: ModelServer) -> None:
    with deployed(UVICORN, ASGI, tmp_path, model_server, "instrument()") as server:
        server.get(0)
        model_server.queue(Reply(text="one"), HANGING)
        _, response = server.begun(1)
        assert model_server.hanging.wait(PATIENCE_S)
        server.process.terminate()
        model_server.resume.set()
        assert response.read().decode().strip() == HANGING.text
        assert server.stop() == -signal.SIGTERM
    check_one_trace_each(server, range(2), lifespans=1)


def test_a_killed_worker(tmp_path: Path, model_server: ModelServer) -> None:
    with deployed([*UVICORN, "--workers", "2"], ASGI, tmp_path, model_server, "instrument()") as server:
        until(lambda: sum(journaling(server.state).values()) == 2, "both workers are up")
        model_server.queue(Reply(text="one"), HANGING)
        _, response = server.begun(0)
        assert model_server.hanging.wait(PATIENCE_S)
        killed = int(response.headers["pid"])
        until(lambda: journaling(server.state)[killed] == 3, "the open call is in the journal")
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(journaling(server.state)) == 3, "another worker is up")
        assert all(answer.pid != killed for answer in server.at_once(4, 1))
        assert server.stop() == 0
    closed = [questions(one) for one in server.decisions()]
    assert sorted(closed)[:4] == [(f"question-{n}-answer", f"question-{n}-plan")[::-1] for n in range(1, 5)]
    assert len(closed) == 6
    found = sorted((closed_by, statuses) for _, closed_by, statuses in left(server.state))
    assert found == [("interrupted", ["ok"]), ("interrupted", ["ok", "incomplete"])]
