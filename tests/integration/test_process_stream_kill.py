"""An agent killed in the middle of a stream: the next process seals what it did, the killed call in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Pace, Reply
from tests.integration.test_process_exit import left
from tests.support.programs import environment
from tests.support.spooled import spooled

PROGRAM = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1], api_key="any")
ask = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
client.chat.completions.create(**ask)
for chunk in client.chat.completions.create(**ask, stream=True):
    print("chunk", flush=True)
"""


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_a_kill_in_the_middle_of_a_stream(tmp_path: Path, model_server: ModelServer, chunks: int) -> None:
    state = tmp_path / "state"
    model_server.queue(Reply(text="one"), Reply(text="a longer answer in some chunks", pace=Pace(hang_after=chunks)))
    instrument = Path(sys.executable).parent / "opentelemetry-instrument"
    process = subprocess.Popen(
        [instrument, sys.executable, "-c", PROGRAM, model_server.base_url],
        env=environment(state),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert model_server.hanging.wait(60)
    assert process.stdout is not None
    for _ in range(chunks):
        assert process.stdout.readline() == "chunk\n"
    until_journaled(state)
    process.kill()
    process.communicate(timeout=30)
    assert spooled(state) == []
    ((_, closed_by, statuses),) = left(state)
    assert closed_by == "interrupted"
    assert statuses == ["ok", "incomplete"]


def until_journaled(state: Path) -> None:
    """Waits until two model calls are in the journal."""
    import time

    from amfs_otel.assemble.journal import EventPrepared
    from tests.support.spooled import journaled

    until = time.monotonic() + 20
    while len({item.event.id for item in journaled(state) if isinstance(item, EventPrepared)}) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
