"""Forked and spawned processes: each has its own windows, files and end; nothing is doubled, nobody waits for ever."""

import sys
from pathlib import Path

import pytest

from tests.integration.test_process_exit import closed, left
from tests.support.programs import Ran, finished, ran, started
from tests.support.spooled import spooled, statuses


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def forked(program: str, state: Path, child: str, parent: str = "") -> Ran:
    """Runs `program`, forks, `child` in the child and `parent` in the parent after the child's end."""
    return ran(
        f"""
{program}
child = os.fork()
if not child:
    {child}
else:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    {parent or "pass"}
""",
        state,
    )


def test_a_child_records_for_itself(state: Path) -> None:
    done = forked("tool('both')", state, "tool('child'); tool('child')", "tool('parent')")
    assert (done.code, done.err) == (0, "")
    names = [[event["tool_name"] for event in one.facts["events"]] for one in spooled(state)]
    assert sorted(names) == [["both", "parent"], ["child", "child"]]
    assert len({status["pid"] for status in statuses(state)}) == 2


def test_a_child_that_captures_nothing_leaves_nothing(state: Path) -> None:
    done = forked("tool()", state, "pass")
    assert (done.code, done.err) == (0, "")
    assert len(spooled(state)) == 1


def test_what_was_open_at_the_fork_is_ended_by_the_parent_alone(state: Path) -> None:
    program = """
with_session = api.session("agent")
with_session.__enter__()
step = begun("open")
token = step.attach()
"""
    end = "step.detach(token); step.end({'success': True}); tool('after'); with_session.__exit__(None, None, None)"
    done = forked(program, state, end, end)
    assert (done.code, done.err) == (0, "")
    names = [[(event["tool_name"], event["status"]) for event in one.facts["events"]] for one in spooled(state)]
    assert sorted(names) == [[("after", "ok")], [("open", "ok"), ("after", "ok")]]


def test_a_child_forked_while_other_threads_record_never_waits_for_their_locks(state: Path) -> None:
    program = """
stop = threading.Event()
def hammer():
    while not stop.is_set():
        tool("hammer")
step = begun("open")
threads = [threading.Thread(target=hammer, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(15):
    child = os.fork()
    if not child:
        signal.alarm(10)
        step.end({"success": True})
        tool("child")
        assert amfs_otel.flush(3)
        with api.session("child"):
            tool("child")
        os._exit(0 if amfs_otel.flush(3) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
step.end()
"""
    done = ran(program, state)
    assert (done.code, done.err) == (0, "")
    # Three threads may overfill the queue of the parent, whose gap records have no agent of their own.
    assert [one.facts.get("agent") for one in spooled(state)].count("child") == 15


def test_a_fork_while_our_lock_is_held_by_a_thread_that_the_child_does_not_have(state: Path) -> None:
    program = """
capturing = pipeline.current().capture
step = begun("open")
held, go = threading.Event(), threading.Event()
def hold():
    with pipeline.current().worker._lock, capturing.windows.lock:
        held.set(); go.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(10)
    step.end(); tool("child"); sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
go.set()
step.end()
"""
    done = ran(program, state)
    assert (done.code, done.err) == (0, "")
    assert sorted(events for _, _, events in closed(state)) == [1, 1]


def test_a_forked_child_that_is_terminated_closes_its_windows(state: Path) -> None:
    program = """
tool("parent")
reader, writer = os.pipe()
child = os.fork()
if not child:
    tool("child"); os.write(writer, b"x"); time.sleep(30)
os.read(reader, 1)
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
"""
    done = ran(program, state)
    assert (done.code, done.err) == (0, "")
    assert sorted(by for _, by, _ in closed(state)) == ["exit", "sigterm"]


def test_a_child_that_ends_without_exit_functions_leaves_its_journal(state: Path) -> None:
    done = forked("tool('parent')", state, "tool('child'); time.sleep(0.5); os._exit(0)")
    assert (done.code, done.err) == (0, "")
    assert len(spooled(state)) == 1
    assert [(by, events) for _, by, events in left(state)] == [("interrupted", ["ok"])]


def test_spans_go_to_the_provider_that_instrument_was_given_in_the_child_too(state: Path) -> None:
    program = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda s: s.name + "\\n")))
pipeline.stop()
amfs_otel.instrument(tracer_provider=provider)
sys.stdout.flush()
"""
    done = forked(program, state, "tool('child')", "tool('parent')")
    assert (done.code, done.err) == (0, "")
    lines = done.out.split()
    assert sorted(line for line in lines if line in ("child", "parent")) == ["child", "parent"]


WORK = """
import multiprocessing
def work(name):
    tool(name)
    return os.getpid()
if __name__ == "__main__":
    tool("parent")
    multiprocessing.set_start_method(METHOD)
    {how}
"""
PROCESS = "process = multiprocessing.Process(target=work, args=('child',)); process.start(); process.join()"
POOL = "with multiprocessing.Pool(2) as pool: print(pool.map(work, ['child'] * 4)); pool.close(); pool.join()"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("how", [PROCESS, POOL], ids=["process", "pool"])
def test_multiprocessing(state: Path, tmp_path: Path, method: str, how: str) -> None:
    import subprocess

    from tests.support.programs import PRELUDE, environment

    file = tmp_path / "program.py"
    file.write_text(PRELUDE + WORK.replace("METHOD", repr(method)).replace("{how}", how))
    done = subprocess.run(
        [sys.executable, file], env=environment(state), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    events = sum(count for _, _, count in closed(state))
    assert events == 1 + (1 if how == PROCESS else 4)
    assert left(state) == []


def test_a_terminated_process_of_multiprocessing_closes_its_windows(state: Path) -> None:
    program = """
import multiprocessing
def work(ready):
    tool("child"); ready.set(); time.sleep(30)
context = multiprocessing.get_context("fork")
ready = context.Event()
process = context.Process(target=work, args=(ready,))
process.start()
ready.wait()
process.terminate()
process.join()
print(process.exitcode)
"""
    process = started(program, state)
    done = finished(process)
    assert (done.out.strip(), done.err) == ("-15", "")
    assert [by for _, by, _ in closed(state)] == ["sigterm"]
