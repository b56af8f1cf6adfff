"""Programs and servers on the oldest OpenTelemetry that is allowed; all other tests have the newest."""

import subprocess
from pathlib import Path

import pytest

from amfs_otel.demo.model_server import ModelServer
from tests.integration.served_apps import ASGI, WSGI, check_one_trace_each, deployed
from tests.integration.test_ways_in import COMMANDS, WAYS, Agent, check_bare_loop, sending_to
from tests.support.agents import BARE_LOOP, BARE_LOOP_REPLIES
from tests.support.environments import python_of
from tests.support.otlp_receiver import OtlpReceiver


@pytest.fixture
def oldest() -> Path:
    python = python_of("oldest-otel")
    asked = "import opentelemetry.sdk.version as v, importlib.metadata as m; print(v.__version__, m.version('wrapt'))"
    said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.startswith("1.39.0 1.")
    return python


@pytest.mark.parametrize("way", WAYS)
def test_a_bare_loop(way: str, oldest: Path, tmp_path: Path, model_server: ModelServer) -> None:
    agent = Agent(tmp_path, model_server)
    model_server.queue(*BARE_LOOP_REPLIES)
    with OtlpReceiver() as receiver:
        sending = sending_to(receiver) if way in COMMANDS else {}
        assert agent.run(BARE_LOOP, way, oldest, **sending) == "It can leave."
        names = [span.name for span in receiver.wait_for_spans(4)] if sending else []
    check_bare_loop(agent.decisions())
    assert sorted(names) == (["chat gpt-4o-mini"] * 3 + ["invoke_agent agent"] if sending else [])


def test_two_workers_of_uvicorn(oldest: Path, tmp_path: Path, model_server: ModelServer) -> None:
    """By `instrument()`: this OpenTelemetry keeps its own command from the processes that a program spawns."""
    command = ["uvicorn", "app:app", "--fd", "{fd}", "--workers", "2", "--lifespan", "off"]
    with deployed(command, ASGI, tmp_path, model_server, "instrument()", python=oldest) as server:
        assert all(answer.body for answer in server.at_once(8))
        assert server.stop() == 0
    check_one_trace_each(server, range(8))


def test_two_workers_of_gunicorn(oldest: Path, tmp_path: Path, model_server: ModelServer) -> None:
    command = ["gunicorn", "app:app", "-b", "fd://{fd}", "-w", "2", "--preload"]
    with deployed(command, WSGI, tmp_path, model_server, "opentelemetry-instrument", python=oldest) as server:
        assert all(answer.body for answer in server.at_once(8))
        assert server.stop() == 0
    check_one_trace_each(server, range(8))
