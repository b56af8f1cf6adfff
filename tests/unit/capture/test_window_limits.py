"""What a full or old window leads to, late ends, moves, and idle windows."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from amfs_otel import api, capture
from amfs_otel.assemble import assembler
from amfs_otel.assemble.assembler import DecisionTrace
from amfs_otel.capture import Kind, Step, windows
from amfs_otel.model import ClosedBy
from tests.support.capturing import Bench, capturing


@pytest.fixture
def bench() -> Iterator[Bench]:
    with capturing() as made:
        yield made


def begun(name: str = "t") -> Step:
    step = capture.begin(Kind.TOOL_CALL, "amfs_otel", {"tool_name": name})
    assert step is not None
    return step


def tool(name: str = "t") -> None:
    begun(name).end({"success": True})


def chain(traces: list[DecisionTrace]) -> list[tuple[str, int, bool, bool]]:
    """(closed by, events, continues the one before, same session as the one before)."""
    found, before = [], None
    for made in traces:
        continues = before is not None and made.window.refs == (("continues", before.window.record_id),)
        same = before is not None and made.window.session == before.window.session
        found.append((made.facts["closed_by"], len(made.facts["events"]), continues, same))
        before = made
    return found


@pytest.mark.parametrize("explicit", [False, True])
def test_a_full_window_is_closed_and_continued(bench: Bench, monkeypatch: pytest.MonkeyPatch, explicit: bool) -> None:
    monkeypatch.setattr(windows, "EVENT_LIMIT", 10)
    if explicit:
        with api.session("agent"):
            for _ in range(25):
                tool()
    else:
        for _ in range(25):
            tool()
    last = "session_end" if explicit else "exit"
    assert chain(bench.traces()) == [
        ("limit", 10, False, False),
        ("limit", 10, True, True),
        (last, 5, True, True),
    ]


@pytest.mark.parametrize("explicit", [False, True])
def test_an_old_window_is_closed_and_continued(bench: Bench, monkeypatch: pytest.MonkeyPatch, explicit: bool) -> None:
    opened = capture.handle_session("amfs", "a", None) if explicit else None

    def event() -> None:
        capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "l"}, memory=opened)

    event()
    monkeypatch.setattr(windows, "AGE_LIMIT_S", 0.0)
    bench.capture.windows.close_idle(1e9, 1e9)
    monkeypatch.setattr(windows, "AGE_LIMIT_S", 1e9)
    event()
    assert chain(bench.traces()) == [("limit", 1, False, False), ("exit", 1, True, True)]


@pytest.mark.parametrize("explicit", [False, True])
def test_a_checkpoint_is_continued(bench: Bench, explicit: bool) -> None:
    def run() -> None:
        tool()
        api.checkpoint()
        tool()

    if explicit:
        with api.session("agent"):
            run()
    else:
        run()
    assert [(c, s) for _, _, c, s in chain(bench.traces())] == [(False, False), (True, True)]


def test_a_window_of_too_many_bytes_is_closed_and_continued(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "WINDOW_LIMIT_BYTES", 2_000)
    told: list[str] = []
    made = assembler.Assembler(assembler_preparer(), told.append)
    with api.session("agent"):
        tool()
        (record_id,) = {m.facts.record_id for m in bench.sink.messages if hasattr(m, "facts")}
        for _ in range(5):
            tool()
        for message in bench.sink.messages:
            for item in made.prepared(message):
                made.apply(item)
        assert set(told) == {record_id}
        bench.capture.windows.close_record(record_id, ClosedBy.LIMIT)
        tool()
    assert chain(bench.traces()) == [("limit", 6, False, False), ("session_end", 1, True, True)]


def assembler_preparer() -> Any:
    from amfs_otel.assemble.prepare import Preparer
    from amfs_otel.capture.content import Masker
    from amfs_otel.settings import LedgerContent

    return Preparer(LedgerContent.ALL, Masker(), None)


def test_many_traces_that_end_with_a_checkpoint_leave_little_behind(bench: Bench) -> None:

    provider = bench.provider.get_tracer("app")
    for _ in range(windows.REMEMBERED_CONTEXTS + 50):
        with provider.start_as_current_span("request"):
            tool()
            api.checkpoint()
    assert len(bench.capture.windows._continued) == windows.REMEMBERED_CONTEXTS
    assert not bench.capture.windows._implicit


def test_idle_windows_close_but_not_with_a_step_in_flight(bench: Bench) -> None:
    step = begun()
    bench.capture.windows.close_idle(0, 0)
    assert bench.capture.windows.open_count() == 1
    step.end()
    bench.capture.windows.close_idle(0, 1e9)
    assert bench.capture.windows.open_count() == 1, "an inferred window has a time of its own"
    bench.capture.windows.close_idle(1e9, 0)
    assert [made.facts["closed_by"] for made in bench.traces()] == ["idle"]


def test_a_moved_step_in_flight_keeps_its_new_window_open(bench: Bench) -> None:
    """Between the end of the call and its report, a window may open and take the step along."""
    step = begun()
    step.event.end_ns = time.time_ns()
    memory = capture.handle_session("amfs", "a", None)
    capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "l"}, memory=memory)
    assert memory.window is not None
    assert memory.window.steps_open == 1
    step.end()
    assert memory.window.steps_open == 0


def test_a_move_takes_the_flag_away_whenever_the_worker_looks(bench: Bench) -> None:
    tool("before")
    capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "l"}, memory=capture.handle_session("amfs", "a", None))
    (made,) = bench.traces()
    assert made.facts["coverage"] == {"events": 2, "joined": 0, "inferred": 0}
    assert [event.get("flags") for event in made.facts["events"]] == [None, None]


def test_a_late_end_becomes_an_amendment_with_the_same_id_whoever_reads_the_journal(bench: Bench) -> None:
    with api.session("agent"):
        step = begun()
    step.end({"success": True, "result": "late"})
    closed, amended = bench.traces()
    again = bench.traces()[1]
    assert closed.facts["status"] == "incomplete"
    assert amended.window.record_kind == "amendment"
    assert amended.window.refs == (("amends", closed.window.record_id),)
    assert amended.facts["step"] == f"{step.event.id:016x}"
    assert amended.facts["event"]["status"] == "ok"
    assert again.window.record_id == amended.window.record_id != closed.window.record_id
    assert amended.window.record_id[14] == "7"
    assert amended.closed_ns // 1000 == step.event.end_ns // 1000


def test_a_root_span_that_cannot_end_still_closes_its_window(bench: Bench) -> None:
    tool()
    ((_, window),) = bench.capture.windows._open.items()

    def end(end_time: int) -> None:
        raise RuntimeError

    window.root.span.end = end
    assert [made.facts["closed_by"] for made in bench.traces()] == ["exit"]
    assert bench.capture.windows.open_count() == 0


def test_roots_of_two_provisional_windows_both_end(bench: Bench) -> None:
    """A thread's events outside and inside a request, then a decision that takes them all."""
    from amfs_otel.capture import begin_request, current_request

    tool("outside")
    begin_request()
    try:
        tool("inside")
        memory = capture.handle_session("amfs", "a", None)
        capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "l"}, memory=memory)
    finally:
        current_request.set(None)
    (made,) = bench.traces()
    assert len(made.facts["events"]) == 3
    assert sum(span.name.startswith("invoke_agent") for span in bench.spans()) == 2
