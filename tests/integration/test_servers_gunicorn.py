"""gunicorn, which forks before or after it has loaded the application: each request one trace, into the database too."""

import os
import signal
from pathlib import Path

import pytest

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Pace, Reply
from amfs_otel.store.destination import destination_of
from tests.integration.ledgers import Ledger
from tests.integration.served_apps import (
    ASGI,
    PATIENCE_S,
    WAYS,
    WSGI,
    check_one_trace_each,
    deployed,
    journaling,
    until,
)
from tests.integration.test_process_database import drain, keyed, sealed, stored

GUNICORN = ["gunicorn", "app:app", "-b", "fd://{fd}", "-w", "2"]
GTHREADS = [*GUNICORN, "-k", "gthread", "--threads", "8"]
HANGING = Reply(text="a longer answer in some chunks", pace=Pace(hang_after=1))


@pytest.mark.parametrize("way", WAYS)
def test_an_application_that_the_master_loaded(way: str, tmp_path: Path, model_server: ModelServer) -> None:
    with deployed([*GUNICORN, "--preload"], WSGI, tmp_path, model_server, way) as server:
        assert all(answer.body for answer in server.at_once(8))
        assert server.stop() == 0
    check_one_trace_each(server, range(8))


def test_workers_of_uvicorn(tmp_path: Path, model_server: ModelServer) -> None:
    command = [*GUNICORN, "--preload", "-k", "uvicorn.workers.UvicornWorker"]
    with deployed(command, ASGI, tmp_path, model_server, "opentelemetry-instrument") as server:
        until(lambda: sum(journaling(server.state).values()) == 2, "both workers are up")
        assert all(answer.body for answer in server.at_once(8))
        assert server.stop() == 0
    check_one_trace_each(server, range(8), lifespans=2)


def test_a_graceful_reload_in_the_middle_of_a_stream(tmp_path: Path, model_server: ModelServer) -> None:
    with deployed(GTHREADS, WSGI, tmp_path, model_server, "instrument()") as server:
        model_server.queue(Reply(text="one"), HANGING)
        connection, response = server.begun(0)
        assert model_server.hanging.wait(PATIENCE_S)
        server.process.send_signal(signal.SIGHUP)
        old = int(response.headers["pid"])
        model_server.resume.set()
        assert response.read().decode().strip() == HANGING.text
        connection.close()  # for which the old worker waits
        until(lambda: not alive(old), "the old worker has gone")
        assert all(answer.pid != old for answer in server.at_once(16, first=1))
        assert server.stop() == 0
    check_one_trace_each(server, range(17))


def alive(pid: int) -> bool:
    """Whether there is such a process; a child that its parent has waited for is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_worker_and_a_database(tmp_path: Path, model_server: ModelServer, one_ledger: Ledger) -> None:
    settings, destination = keyed(one_ledger), destination_of(one_ledger.dsn, one_ledger.log)
    command = [*GUNICORN, "--preload"]
    with deployed(command, WSGI, tmp_path, model_server, "instrument()", **settings) as server:
        model_server.queue(Reply(text="one"), HANGING)
        _, response = server.begun(0)
        killed = int(response.headers["pid"])
        assert model_server.hanging.wait(PATIENCE_S)
        until(lambda: journaling(server.state, destination).get(killed) == 2, "its open call is in the journal")
        os.kill(killed, signal.SIGKILL)
        until(lambda: not alive(killed), "the worker has gone")
        assert all(answer.body for answer in server.at_once(6, first=1))
        assert server.stop() == 0
    assert stored(one_ledger).count(("decision", "session_end")) == 6
    drain(one_ledger, server.state)  # the other worker may have adopted what the killed one left, or had no time to
    assert sorted(stored(one_ledger)) == [("decision", "interrupted"), *[("decision", "session_end")] * 6]
    assert sealed(one_ledger) == 7
    assert one_ledger.verify().verdict.name == "INTACT"
