"""Celery's pool of forked processes: each task is one trace, whatever ends the child that ran it."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Pace, Reply
from tests.integration.served_apps import (
    PATIENCE_S,
    TASKS,
    check_one_trace_each,
    deployed,
    journaling,
    until,
)
from tests.integration.test_process_exit import left

WORKER = ["celery", "-A", "app", "worker", "--pool", "prefork", "-c", "2", "--without-gossip", "--without-mingle"]
SETTINGS = """
broker_url = "filesystem://"
result_backend = "file://results"
broker_transport_options = {
    "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control", "polling_interval": 0.05,
}
broker_connection_retry_on_startup = True
worker_hijack_root_logger = False
"""


class Queue:
    """The broker and the results of one worker, as files."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        from celery import Celery

        self.results = folder / "results"
        for name in ("queue", "control", "results"):
            (folder / name).mkdir()
        said = "".join(f"{key} = {value!r}\n" for key, value in settings.items())
        (folder / "settings.py").write_text(SETTINGS + said)
        self._app = Celery("app", broker="filesystem://", set_as_current=False)
        folders = {name: str(folder / "queue") for name in ("data_folder_in", "data_folder_out")}
        self._app.conf.broker_transport_options = {**folders, "control_folder": str(folder / "control")}

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self._app.send_task("chat", (number,), ignore_result=False)

    def wait_for(self, count: int) -> None:
        until(lambda: len(list(self.results.iterdir())) >= count, f"{count} results")


@pytest.mark.parametrize(
    ("way", "settings"),
    [("opentelemetry-instrument", {}), ("instrument()", {"worker_max_tasks_per_child": 1})],
    ids=["a pool, under the command", "a child for each task, instrument()"],
)
def test_every_task_is_one_trace(way: str, settings: dict[str, Any], tmp_path: Path, model_server: ModelServer) -> None:
    queue = Queue(tmp_path, **settings)
    queue.send(*range(6))
    with deployed(WORKER, TASKS, tmp_path, model_server, way) as worker:
        queue.wait_for(6)
        assert worker.stop() == 0
    check_one_trace_each(worker, range(6))


def test_the_task_of_a_killed_worker_is_interrupted(tmp_path: Path, model_server: ModelServer) -> None:
    model_server.queue(Reply(text="one"), Reply(text="a longer answer in some chunks", pace=Pace(hang_after=1)))
    queue = Queue(tmp_path)
    queue.send(0)
    with deployed(WORKER, TASKS, tmp_path, model_server, "instrument()") as worker:
        assert model_server.hanging.wait(PATIENCE_S)
        until(lambda: 2 in journaling(worker.state).values(), "two calls in the journal")
        (child,) = journaling(worker.state)
        os.kill(child, signal.SIGKILL)
        worker.process.kill()
    assert worker.decisions() == []
    ((_, closed_by, statuses),) = left(worker.state)
    assert (closed_by, statuses) == ("interrupted", ["ok", "incomplete"])
