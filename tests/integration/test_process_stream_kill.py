"""An agent killed in the middle of a stream: the next process seals what it did, the killed call in it."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from amfs_otel.assemble.journal import EventPrepared
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Pace, Reply, Rule
from tests.integration.ledgers import Ledger
from tests.integration.test_process_database import as_nobody, drain, keyed
from tests.integration.test_process_exit import left
from tests.support.programs import environment
from tests.support.spooled import Spooled, journaled, spooled, spooled_from

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
    process.communicate(timeout=60)
    assert spooled(state) == []
    ((_, closed_by, statuses),) = left(state)
    assert closed_by == "interrupted"
    assert statuses == ["ok", "incomplete"]


def until_journaled(state: Path) -> None:
    """Waits until two model calls are in the journal."""
    until = time.monotonic() + 60
    while len({item.event.id for item in journaled(state) if isinstance(item, EventPrepared)}) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)


# -- fifty at once -------------------------------------------------------------------------------------------------

AGENTS = 50
FLOWING = Rule("stream", 0, Reply(text="word " * 400, pace=Pace(delay_s=0.1)))
"""A stream that nobody lives to see the end of."""

WARM = """
import os, signal, sys
import amfs_otel
from amfs_otel import pipeline
from openai import OpenAI

def agent(number):
    client = OpenAI(base_url=sys.argv[1], api_key="any")
    def ask(what, **more):
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": what}], **more)
    def tell(what):
        assert pipeline.current().spool_now(30)
        os.write(1, f"{what} {number} {os.getpid()}\\n".encode())
    with amfs_otel.session(f"told-{number}"):
        ask("plan")
    tell("told")
    with amfs_otel.session(f"killed-{number}"):
        ask("plan")
        for position, chunk in enumerate(ask("stream", stream=True)):
            if position == number % 4:
                tell("streaming")

for number in range(int(sys.argv[2])):
    if not os.fork():
        try:
            agent(number)
        finally:
            os._exit(1)
for _ in range(int(sys.argv[2])):
    assert os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGKILL
"""
"""A program that has imported everything, and then becomes so many agents."""


def killed_while_streaming(base_url: str, state: Path, **settings: str) -> set[str]:
    """Runs `WARM` and kills each agent while its stream flows; the numbers that were told to be safe before that."""
    dice, acknowledged = random.Random(7), set[str]()
    process = subprocess.Popen(
        [Path(sys.executable).parent / "opentelemetry-instrument", sys.executable, "-c", WARM, base_url, str(AGENTS)],
        env=environment(state, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            what, number, pid = line.split()
            if what == "told":
                acknowledged.add(number)
            else:
                time.sleep(dice.uniform(0, 0.03))
                os.kill(int(pid), signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in said) == (0, False), said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)
    return acknowledged


def decisions(ledger: Ledger) -> list[Spooled]:
    """The stored decisions, in the order of the log."""
    with ledger.store() as store:
        records = [stored.record for stored in store.stored_entries()]
    return [spooled_from(record) for record in records if record is not None and record.kind == "decision"]


def test_fifty_kills_in_the_middle_of_real_streams(tmp_path: Path, one_ledger: Ledger) -> None:
    state = tmp_path / "state"
    with ModelServer([FLOWING]) as server:
        settings = {**keyed(one_ledger), "AMFS_OTEL_DSN": as_nobody(one_ledger)}
        acknowledged = killed_while_streaming(server.base_url, state, **settings)
    assert acknowledged == {str(number) for number in range(AGENTS)}
    adopters = [threading.Thread(target=drain, args=(one_ledger, state)) for _ in range(2)]
    for adopter in adopters:
        adopter.start()
    for adopter in adopters:
        adopter.join()
    drain(one_ledger, state)

    def steps(one: Spooled) -> list[Any]:
        return [(event["status"], event.get("stream")) for event in one.facts["events"]]

    found = {one.facts["agent"]: (one.facts["status"], steps(one)) for one in decisions(one_ledger)}
    whole, killed = ("complete", [("ok", None)]), ("interrupted", [("ok", None), ("incomplete", True)])
    assert found == {
        **{f"told-{number}": whole for number in range(AGENTS)},
        **{f"killed-{number}": killed for number in range(AGENTS)},
    }
    assert len(decisions(one_ledger)) == 2 * AGENTS, "nothing doubled"
    assert one_ledger.verify().verdict.name == "INTACT"
