"""How programs end, and what is on the disk afterwards."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amfs_otel.assemble.journal import EventPrepared
from amfs_otel.drain.adopt import orphans_of
from amfs_otel.spool import StateDirectory, list_segments
from tests.support.capturing import resolved
from tests.support.not_run import not_run
from tests.support.programs import finished, ran, started
from tests.support.spooled import all_bytes, journaled, spooled, statuses


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def closed(state: Path) -> list[tuple[str, str, int]]:
    """(agent, closed by, events) of each decision."""
    return [(one.facts["agent"], one.facts["closed_by"], len(one.facts["events"])) for one in spooled(state)]


def left(state: Path) -> list[tuple[str, str, list[str]]]:
    """(agent, closed by, statuses of the events) of what an adopter would sign."""
    directory = StateDirectory(state)
    found = []
    segments = list_segments(directory, "local")
    for writer in dict.fromkeys(segment.writer for segment in segments):
        for trace in orphans_of([s for s in segments if s.writer == writer], directory.spool_key()).traces:
            facts = resolved(trace)
            found.append((facts["agent"], facts["closed_by"], [event["status"] for event in facts["events"]]))
    return found


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise SystemExit('said')", 1, "said"),
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("threading.Thread(target=lambda: (time.sleep(0.2), tool())).start()", 0, ""),
    ],
)
def test_a_clean_exit_loses_nothing(state: Path, end: str, code: int, error: str) -> None:
    done = ran(f"tool()\n{end}", state)
    assert done.code == code
    assert done.err.strip().endswith(error)
    assert ("Traceback" in done.err) == ("Traceback" in error or "ValueError" in error)
    ((_, closed_by, events),) = closed(state)
    assert (closed_by, events) == ("exit", 2 if "Thread" in end or "ValueError" in end else 1)
    assert journaled(state) == []


def test_what_nobody_caught_is_the_last_step_of_the_decision(state: Path) -> None:
    ran("tool()\nraise ValueError('mine')", state)
    (one,) = spooled(state)
    last = one.facts["events"][-1]
    assert (last["kind"], last["operation"], last["status"], last["error_type"]) == (
        "error",
        "program",
        "error",
        "ValueError",
    )


def test_a_crash_without_an_open_decision_makes_none(state: Path) -> None:
    ran("raise ValueError('mine')", state)
    assert spooled(state) == []


def test_the_exit_of_a_step_in_flight_is_incomplete(state: Path) -> None:
    ran("tool(); step = begun()", state)
    (one,) = spooled(state)
    assert one.facts["status"] == "incomplete"


def test_an_exit_without_a_flush_leaves_the_journal(state: Path) -> None:
    done = ran(
        """
        tool(); step = begun()
        time.sleep(0.5)
        tool()
        os._exit(5)
        """,
        state,
    )
    assert done.code == 5
    assert spooled(state) == []
    ((_, closed_by, events),) = left(state)
    assert closed_by == "interrupted"
    assert events[:2] == ["ok", "incomplete"]


def test_what_happened_a_tenth_of_a_second_before_a_kill_is_kept(state: Path) -> None:
    process = started(
        """
        tool("warm")
        time.sleep(0.5)
        with api.session("agent"):
            tool()
            step = begun("killed")
            time.sleep(0.12)
            ended("ready")
            signal.pause()
        """,
        state,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    process.kill()
    finished(process)
    told = {agent: events for agent, _, events in left(state)}
    assert told["agent"] == ["ok", "ok", "incomplete"], "what came before the session in its context is in it"


# -- SIGTERM -------------------------------------------------------------------------------------------------------

READY = "tool(); ended('ready'); time.sleep(30); print('not reached')"


def terminated(program: str, state: Path, **settings: str) -> tuple[int, str]:
    process = started(program, state, **settings)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    process.send_signal(signal.SIGTERM)
    done = finished(process)
    assert "Traceback" not in done.err
    return done.code, done.out


def test_sigterm_closes_the_windows_and_kills_as_before(state: Path) -> None:
    assert terminated(READY, state) == (-signal.SIGTERM, "")
    assert [(by, events) for _, by, events in closed(state)] == [("sigterm", 1)]
    assert statuses(state)[0]["ended"] is True


def test_the_programs_own_handler_stays(state: Path) -> None:
    own = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    assert terminated(f"{own}\n{READY}", state) == (7, "")
    assert [by for _, by, _ in closed(state)] == ["exit"]


def test_a_handler_that_was_there_first_is_never_displaced(state: Path) -> None:
    program = """
        pipeline.stop()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        amfs_otel.instrument()
        """
    assert terminated(f"{program.replace(' ' * 8, '')}\n{READY}", state) == (7, "")


def test_sigterm_can_be_left_alone(state: Path) -> None:
    assert terminated(READY, state, AMFS_OTEL_SIGTERM="off") == (-signal.SIGTERM, "")
    assert closed(state) == []


def test_sigterm_in_the_middle_of_a_flush_waits_for_its_end(state: Path) -> None:
    program = """
        worker = pipeline.current().worker
        original = worker.spooling.journal
        def slow(*arguments):
            if threading.current_thread() is threading.main_thread():
                os.kill(os.getpid(), signal.SIGTERM)
            return original(*arguments)
        with worker._lock:
            tool()
            worker.spooling.journal = slow
            ended("ready")
            amfs_otel.flush()
        """
    process = started(program, state)
    done = finished(process)
    assert (done.code, done.err) == (-signal.SIGTERM, "")
    assert [(by, events) for _, by, events in closed(state)] == [("sigterm", 1)]


# -- the order of exit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_root_spans_end_before_the_provider_shuts_down(state: Path, late: bool) -> None:
    """The provider is made before or after the first event; its exporter must still get the root."""
    program = """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
        def provide():
            provider = TracerProvider()
            provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda s: s.name + "\\n")))
            trace.set_tracer_provider(provider)
        """
    order = "tool('early')\nprovide()\npipeline.current().capture.windows.close_all('idle')\ntool('late')"
    done = ran(program.replace(" " * 8, "") + (order if late else "provide()\ntool('late')"), state)
    assert done.err == ""
    assert done.out.split("\n")[:2] == ["execute_tool late", "invoke_agent python"]


def test_an_exit_function_of_the_program_is_captured(state: Path) -> None:
    done = ran("import atexit; atexit.register(lambda: tool('last')); tool('first')", state)
    assert done.code == 0
    assert [events for _, _, events in closed(state)] == [2]


# -- disks ---------------------------------------------------------------------------------------------------------


def test_a_file_in_place_of_the_state_directory(state: Path) -> None:
    state.write_text("not a directory")
    done = ran("tool(); api.outcome('R', 'success'); tool(); print('done')", state)
    assert (done.code, done.out) == (0, "done\n")
    assert done.err.count("amfs-otel") <= 3, "once for each cause"
    assert "Traceback" not in done.err
    assert state.read_text() == "not a directory"


BOUND_BY_MODES = """
import ctypes, os, sys
if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) != 0:  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
    sys.exit("root could not be bound by the modes of files")
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command for which a read-only file is read-only, even as root."""


@contextmanager
def read_only(top: Path) -> Iterator[None]:
    """`top` and all below it may only be read meanwhile."""
    paths = [top, *top.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path, mode in modes.items():
        path.chmod(mode & 0o555)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.mark.parametrize("before", ["missing", "used"])
def test_a_read_only_place_for_the_state_directory(state: Path, before: str) -> None:
    if os.geteuid() == 0 and sys.platform != "linux":
        not_run("root is bound by the modes of files on Linux alone; run the tests as another user")
    if before == "used":
        ran("tool()", state)
    with read_only(state.parent):
        left_before = all_bytes(state.parent)
        program = """
            tool(); api.outcome("R", "success"); tool(); amfs_otel.flush()
            print("done", pipeline.current().worker.spooling.lost.get("spool", 0))
            """
        done = ran(program, state, under=(sys.executable, "-c", BOUND_BY_MODES))
        assert all_bytes(state.parent) == left_before
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    word, lost = done.out.split()
    assert word == "done"
    assert int(lost) >= 1, "what could not be kept is counted"
    assert 1 <= done.err.count("amfs-otel") <= 3, "once for each cause"
    ran("tool()", state)
    assert [events for _, _, events in closed(state)] == [1] * (2 if before == "used" else 1)


def test_a_full_disk(state: Path) -> None:
    program = """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        tool(); amfs_otel.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        for number in range(50):
            with api.session("agent"):
                api.record_context("l", "x" * 4000)
            amfs_otel.flush()
        print(dict(pipeline.current().intake.dropped))
        """
    done = ran(program, state)
    assert done.code == 0
    assert "Traceback" not in done.err
    kept = [one for one in spooled(state) if one.kind == "decision"]
    counted = eval(done.out).get("record_lost", 0)
    assert len(kept) + counted >= 50
    assert "amfs-otel" in done.err


def test_journal_frames_are_there_while_it_runs_and_gone_after(state: Path) -> None:
    process = started("tool(); amfs_otel.flush(); ended('ready'); sys.stdin.read()", state)
    assert process.stdout is not None
    process.stdout.readline()
    assert [type(item) for item in journaled(state)].count(EventPrepared) == 1
    finished(process)
    assert journaled(state) == []
