"""SIGTERM where a server or a pool sets handlers of its own, and puts the default back."""

import signal
from pathlib import Path

import pytest

from tests.integration.test_process_exit import closed, left
from tests.support.programs import ran

SERVER = """
# As uvicorn does: a handler of its own while it serves, then what was there before, then the signal once more.
pipeline.stop()
got = []
before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
assert before is signal.SIG_DFL
amfs_otel.instrument()
own = signal.getsignal(signal.SIGTERM)
tool()
os.kill(os.getpid(), signal.SIGTERM)
assert got == [signal.SIGTERM]
assert signal.signal(signal.SIGTERM, before) is own
tool("while it stops")
signal.raise_signal(signal.SIGTERM)
"""
LOOP = """
import asyncio
async def serve():
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    os.kill(os.getpid(), signal.SIGTERM)
    await told.wait()
    tool()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    tool()
asyncio.run(serve())
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""
CHILD = """
# As pools of processes do: each child begins with the default.
child = os.fork()
if not child:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tool(); tool()
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
os.kill(os.getpid(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) * -1)
"""


@pytest.mark.parametrize("program", [SERVER, LOOP, CHILD])
def test_who_puts_the_default_back_gets_ours(program: str, tmp_path: Path) -> None:
    done = ran(program, tmp_path)
    assert (done.code, done.err) == (-signal.SIGTERM, "")
    assert [(by, events) for _, by, events in closed(tmp_path)] == [("sigterm", 2)]
    assert left(tmp_path) == []


@pytest.mark.parametrize("settings", [{"AMFS_OTEL_SIGTERM": "off"}, {"AMFS_OTEL_DISABLED": "1"}])
def test_the_default_is_the_default_where_it_is_left_alone(settings: dict[str, str], tmp_path: Path) -> None:
    program = """
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        print("so it is")
        """
    done = ran(program, tmp_path, **settings)
    assert (done.code, done.out, done.err) == (0, "so it is\n", "")


def test_nobody_elses_signal_is_touched(tmp_path: Path) -> None:
    program = """
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
            assert signal.getsignal(number) is signal.SIG_DFL
        for handler in (signal.SIG_IGN, lambda *_: None):
            signal.signal(signal.SIGTERM, handler)
            assert signal.getsignal(signal.SIGTERM) is handler
        for wrong in ((), (signal.SIGTERM,), (signal.SIGTERM, "no handler"), (0, signal.SIG_DFL)):
            try:
                signal.signal(*wrong)
            except (TypeError, ValueError) as error:
                print(type(error).__name__)
        """
    assert ran(program, tmp_path).out.split() == ["TypeError", "TypeError", "TypeError", "ValueError"]


def test_a_program_ends_though_the_signal_met_the_holder_of_a_lock(tmp_path: Path) -> None:
    program = """
        import dataclasses, threading
        from amfs_otel.pipeline import sigterm
        tool()
        held = threading.Lock()
        held.acquire()
        sigterm.LATEST_S = 0.2
        sigterm._taker = dataclasses.replace(sigterm._taker, finish=held.acquire)
        os.kill(os.getpid(), signal.SIGTERM)
        """
    assert ran(program, tmp_path).code == -signal.SIGKILL
