"""A notebook: `amfs_otel.instrument()` in a kernel, cells that call a model, and what the shell knows afterwards."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_notebook, reads, writes

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Pace, Reply
from tests.integration.served_apps import PATIENCE_S, journaling, until
from tests.integration.test_process_exit import left
from tests.support.programs import environment
from tests.support.spooled import Spooled, spooled

PRELUDE = """
import amfs_otel
print(amfs_otel.instrument())
from openai import AsyncOpenAI, OpenAI
client = OpenAI()
def asked(text, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}
def ask(text):
    return client.chat.completions.create(**asked(text)).choices[0].message.content
"""
CELLS = (
    PRELUDE,
    "print(ask('one'))",
    "print(amfs_otel.instrument())",
    "for chunk in client.chat.completions.create(**asked('two', stream=True)): pass",
    "reply = await AsyncOpenAI().chat.completions.create(**asked('three'))",
    "1 / 0",
    "amfs_otel.outcome('CELL-1', 'success', decision_summary='of the notebook')",
    "with amfs_otel.session(agent='analyst', id='conversation-1'):\n    ask('four')",
    "print(amfs_otel.explain('CELL-1')['decision_summary'])",
    "ask('five')",
)


@pytest.fixture
def kernel_environment(tmp_path: Path, model_server: ModelServer) -> dict[str, str]:
    """That of a kernel of this environment, with all its files in the test's folder."""
    folders = {name: str(tmp_path / name.lower()) for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    told = {"OPENAI_BASE_URL": model_server.base_url, "OPENAI_API_KEY": "any", "AMFS_OTEL_LEDGER_CONTENT": "all"}
    return environment(tmp_path / "state", **folders, **told)


def asked_in(one: Spooled) -> list[str]:
    """What the model calls of a decision asked."""
    calls = [event for event in one.facts["events"] if event["kind"] == "llm_call"]
    return [json.loads(call["input_messages"])[0]["parts"][0]["content"] for call in calls]


def decisions(state: Path) -> list[tuple[str, str, list[str]]]:
    """(agent, closed by, questions) of each decision."""
    return [(one.facts["agent"], one.facts["closed_by"], asked_in(one)) for one in spooled(state)]


def test_cells_are_one_trace_until_an_outcome_and_a_session_is_its_own(
    tmp_path: Path, kernel_environment: dict[str, str]
) -> None:
    notebook = tmp_path / "notebook.ipynb"
    fails = {"tags": ["raises-exception"]}
    notebook.write_text(
        writes(new_notebook(cells=[new_code_cell(c, metadata=fails if "/ 0" in c else {}) for c in CELLS]))
    )
    done = _run(kernel_environment, "jupyter", "execute", "--inplace", str(notebook))
    assert done.returncode == 0, done.stderr
    said = [output["text"] for cell in reads(notebook.read_text()).cells for output in cell.outputs if "text" in output]
    assert said == ["True\n", "You said: one\n", "True\n", "of the notebook\n"]
    assert decisions(tmp_path / "state") == [
        ("ipykernel_launcher", "commit", ["one", "two", "three"]),
        ("analyst", "session_end", ["four"]),
        ("ipykernel_launcher", "exit", ["five"]),
    ]
    last = spooled(tmp_path / "state")[-1]
    assert [event["kind"] for event in last.facts["events"]] == ["llm_call"], "no cell's error ended the kernel"
    assert left(tmp_path / "state") == []
    answer = _run(kernel_environment, "amfs_otel", "explain", "last")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"record …{last.record.record_id[-8:]}\n")


def _run(env: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", *words], env=env, capture_output=True, text=True, check=False)


@contextmanager
def kernel(env: dict[str, str]) -> Iterator[tuple[Any, Any]]:
    """A kernel that runs, and the client that asks it."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(transport="ipc", ip=env["JUPYTER_RUNTIME_DIR"] + "/kernel")
    Path(env["JUPYTER_RUNTIME_DIR"]).mkdir()
    manager.start_kernel(env=env)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE_S)
    try:
        yield manager, client
    finally:
        client.stop_channels()
        if manager.is_alive():
            manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def cell(client: Any, code: str) -> None:
    """Runs one cell, which must not fail."""
    reply = client.execute_interactive(code, timeout=PATIENCE_S, output_hook=lambda _message: None)
    assert reply["content"]["status"] == "ok", reply["content"]


@pytest.mark.filterwarnings("default")  # what jupyter_client says about itself
def test_a_restart_loses_nothing_and_a_kill_leaves_an_interrupted_trace(
    tmp_path: Path, kernel_environment: dict[str, str], model_server: ModelServer
) -> None:
    state = tmp_path / "state"
    with kernel(kernel_environment) as (manager, client):
        cell(client, f"{PRELUDE}\nask('one')")
        manager.restart_kernel()
        client.wait_for_ready(timeout=PATIENCE_S)
        assert decisions(state) == [("ipykernel_launcher", "exit", ["one"])]
        cell(client, f"{PRELUDE}\nask('two')")
        model_server.queue(Reply(text="a longer answer in some chunks", pace=Pace(hang_after=1)))
        client.execute("for chunk in client.chat.completions.create(**asked('three', stream=True)): pass")
        assert model_server.hanging.wait(PATIENCE_S)
        until(lambda: 2 in journaling(state).values(), "the open call is in the journal")
        manager.shutdown_kernel(now=True)
    assert len(spooled(state)) == 1
    assert left(state) == [("ipykernel_launcher", "interrupted", ["ok", "incomplete"])]
