"""From the intake to the spool: what is durable when, what is dropped and how that is told."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amfs_otel import api, capture, guard, pipeline
from amfs_otel.assemble.journal import EventPrepared
from amfs_otel.capture import Kind, Step
from amfs_otel.chain.keys import generate_key_text
from amfs_otel.errors import SpoolError
from amfs_otel.model import ClosedBy, WindowDropped
from amfs_otel.pipeline import Pipeline, intake, signer, spooling, worker
from amfs_otel.spool import Pressure, SpoolFull, SpoolWriter, Stream
from tests.support.spooled import journaled, spooled, statuses

Started = Callable[..., Pipeline]
DSN = "postgresql://nobody:pass-canary@127.0.0.1:1/none"


def tool(**result: Any) -> None:
    begun().end({"success": True, **result})


def begun() -> Step:
    step = capture.begin(Kind.TOOL_CALL, "amfs_otel", {"tool_name": "t"})
    assert step is not None
    return step


def by_kind(state: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in spooled(state):
        found.setdefault(one.kind, []).append(one.facts)
    return found


def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def test_nothing_is_made_before_the_first_event(running: Started, state: Path) -> None:
    made = running()
    assert made.flush()
    assert not state.exists()
    assert "amfs-otel" not in {thread.name for thread in threading.enumerate()}


def test_an_event_reaches_the_journal_by_itself(running: Started, state: Path) -> None:
    running()
    step = begun()
    eventually(lambda: any(isinstance(item, EventPrepared) for item in journaled(state)))
    step.end()
    eventually(lambda: sum(isinstance(item, EventPrepared) for item in journaled(state)) == 2)
    assert spooled(state) == []


def test_a_closed_window_is_a_signed_record_by_itself(running: Started, state: Path) -> None:
    running()
    with api.session("agent", id="s"):
        tool()
    eventually(lambda: len(spooled(state)) == 1)
    (one,) = spooled(state)
    assert one.facts["closed_by"] == "session_end"
    assert one.facts["coverage"]["events"] == 1
    assert one.facts["policy"] == {"ledger": "decision", "masking": 1}
    assert one.facts["origin"]["service"] == "program"


def test_flush_makes_all_of_it_durable_on_the_calling_thread(running: Started, state: Path) -> None:
    made = running()
    for _ in range(100):
        api.record_context("l", "s")
        api.outcome("R", "success")
    assert api.flush()
    assert len(spooled(state)) == 100
    assert made.worker.signer.recent()[-1].record_id == spooled(state)[-1].record.record_id


def test_stop_closes_what_is_open_and_takes_the_journal_away(running: Started, state: Path) -> None:
    running()
    tool()
    pipeline.stop()
    (one,) = spooled(state)
    assert one.facts["closed_by"] == "exit"
    assert journaled(state) == []
    (status,) = statuses(state)
    assert status["ended"] is True
    assert status["records_signed"] == {"decision": 1}


def test_events_beyond_the_queue_are_counted_once_each_and_told_in_a_gap(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "QUEUE_LIMIT", 20)
    made = running()
    with made.worker._lock:
        with api.session("agent"):
            for _ in range(50):
                tool()
            api.record_context("l", "s")
        assert len(made.intake) == 21, "windows' own messages always pass"
    assert made.flush()
    facts = by_kind(state)
    (decision,), (gap,) = facts["decision"], facts["gap"]
    # Nine whole events, and one of which only the start is known: its end is among the lost.
    assert [event["status"] for event in decision["events"]] == ["ok"] * 9 + ["incomplete"]
    assert (gap["cause"], gap["count"]) == ("queue_full", 51 - 9)
    assert decision["coverage"]["dropped"] == {"queue_full": gap["count"]}
    assert made.flush()
    assert len(by_kind(state)["gap"]) == 1, "each loss is told once"


def test_an_event_whose_start_alone_was_dropped_is_kept(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    with made.worker._lock, api.session("agent"):
        monkeypatch.setattr(made.intake, "_limit", 0)
        step = begun()
        monkeypatch.setattr(made.intake, "_limit", 10)
        step.end({"success": True})
    assert made.flush()
    assert [event["status"] for event in by_kind(state)["decision"][0]["events"]] == ["ok"]
    assert made.intake.dropped == {}


def test_each_message_leaves_memory_when_its_turn_comes(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    waiting: list[int] = []
    takes = made.worker._admission.takes

    def seen(message: Any) -> bool:
        waiting.append(len(made.intake))
        return takes(message)

    monkeypatch.setattr(made.worker._admission, "takes", seen)
    with made.worker._lock, api.session("agent"):
        for _ in range(10):
            tool()
    assert made.flush()
    assert waiting == list(range(len(waiting) - 1, -1, -1)), "none stands in a batch beside the queue"
    assert len(by_kind(state)["decision"][0]["events"]) == 10


def test_a_flush_in_the_middle_of_a_batch_takes_what_is_left_of_it_in_order() -> None:
    queue = intake.Intake()
    messages = [WindowDropped(str(number)) for number in range(5)]
    for message in messages[:4]:
        queue.put(message)
    outer = queue.take(3)
    taken = [next(outer)]
    queue.put(messages[4])
    taken += queue.take(10)
    assert taken == messages
    assert list(outer) == []
    assert len(queue) == 0


def test_of_events_with_long_texts_fewer_may_wait(running: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "LEAST", 10)
    monkeypatch.setattr(intake, "BYTES_LIMIT", 1 << 20)
    made = running()
    assert made.intake._limit == intake.QUEUE_LIMIT
    for _ in range(50):
        api.record_context("l", "s")
    made.spool_now(5)
    assert made.intake._limit == intake.QUEUE_LIMIT
    for _ in range(50):
        api.record_context("l", "s" * 100_000)
    made.spool_now(5)
    assert 20 <= made.intake._limit <= 25, "about a mebibyte in all"
    with made.worker._lock:
        for _ in range(40):
            api.record_context("l", "s")
        assert made.intake.dropped == {"queue_full": 40 - made.intake._limit}
    for _ in range(10):
        for _ in range(20):
            api.record_context("l", "s")
        made.spool_now(5)
    assert made.intake._limit > 10_000, "what was long is forgotten"


def test_an_event_that_cannot_be_prepared_is_counted_and_the_rest_goes_on(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    with made.worker._lock:
        tool()
        assembler = made.worker._assembling()
        original = assembler._prepared_event
        calls: list[int] = []

        def failing(record_id: str, event: Any, *, ended: bool) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise KeyError("content")
            return original(record_id, event, ended=ended)

        monkeypatch.setattr(assembler, "_prepared_event", failing)
        tool()
        api.outcome("R", "success")
    assert made.flush()
    facts = by_kind(state)
    assert len(facts["decision"][0]["events"]) == 2
    assert [(gap["cause"], gap["count"]) for gap in facts["gap"]] == [("internal_error", 1)]


def test_a_trace_that_cannot_be_signed_is_counted(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    with api.session("agent"):
        tool()
        tool()
        made.flush()
        monkeypatch.setattr(signer, "record_from_trace", lambda *_, **__: 1 // 0)
    made.flush()
    monkeypatch.undo()
    made.worker._no_gap_before = 0.0
    made.flush()
    assert [(gap["cause"], gap["count"]) for gap in by_kind(state)["gap"]] == [("internal_error", 2)]


def test_a_failing_assembler_takes_no_message(running: Started, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = running()
    with made.worker._lock:
        monkeypatch.setattr(worker, "origin_facts", lambda _: 1 // 0)
        with api.session("agent"):
            tool()
        made.worker._assembler = None
        guard.run("test", made.worker._process)
        monkeypatch.undo()
        made.worker._assembler = None
    assert made.flush()
    assert len(by_kind(state)["decision"]) == 1


def test_the_worker_rests_when_nothing_happens(running: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    made = running()
    turns: list[float] = []
    original = made.worker._turn

    def counted() -> None:
        turns.append(time.monotonic())
        original()

    monkeypatch.setattr(made.worker, "_turn", counted)
    for _ in range(20):
        tool()
        time.sleep(0.01)
    eventually(lambda: len(made.intake) == 0 and bool(turns))
    time.sleep(0.2)
    before = len(turns)
    time.sleep(0.8)
    assert len(turns) - before <= 2


# -- keys ----------------------------------------------------------------------------------------------------------


def test_without_a_key_traces_wait_and_are_signed_when_one_comes(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = running(dsn=DSN)
    for _ in range(3):
        with api.session("agent"):
            tool()
    made.worker.spool_now(5)
    assert spooled(state) == []
    assert [r.message for r in caplog.records if "no signing key" in r.message] != []
    assert statuses(state) == [] or statuses(state)[0]["unsigned"] == 3
    (state / "keys" / "writer.key").write_text(generate_key_text())
    monkeypatch.setattr(signer, "LOOK_AGAIN_S", 0.0)
    made.worker.spool_now(5)
    assert len(spooled(state)) == 3
    assert not made.worker.signer.unsigned


def test_traces_beyond_what_is_kept_without_a_key_stay_in_the_journal_of_every_segment(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signer, "UNSIGNED_LIMIT", 2)
    made = running(dsn=DSN)
    for _ in range(5):
        with api.session("agent"):
            tool()
    made.worker.spool_now(5)
    with made.worker._lock:
        writer = made.worker.spooling._writer
        assert writer is not None
        writer.rotate("journal")
        for segment in writer.segments("journal")[:-1]:
            writer.retire(segment)
    events = [item for item in journaled(state) if isinstance(item, EventPrepared)]
    assert len({item.record_id for item in events}) == 5
    pipeline.stop()
    assert len({item.record_id for item in journaled(state) if isinstance(item, EventPrepared)}) == 5


@pytest.mark.parametrize("text", ["short123", "hex:zz", ""])
def test_a_key_that_is_none_is_named_and_nothing_is_lost(
    running: Started, state: Path, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "writer.key"
    file.write_text(text)
    made = running(signing_key_file=file)
    with api.session("agent"):
        tool()
    made.worker.spool_now(5)
    assert spooled(state) == []
    assert [item for item in journaled(state) if isinstance(item, EventPrepared)] != []
    assert f"traces wait unsigned in {state}: AMFS_OTEL_SIGNING_KEY_FILE ({file})" in caplog.text
    assert not text or text not in caplog.text.replace(str(file), "")


# -- the disk ------------------------------------------------------------------------------------------------------


class Failing:
    """Stands before the spool's writer and refuses."""

    def __init__(self, error: Callable[[], Exception], reserved: bool = False) -> None:
        self.error, self.reserved = error, reserved

    def append(self, stream: Stream, identity: bytes, payload: bytes, *, reserved: bool = False) -> Any:
        if not (reserved and self.reserved):
            raise self.error()
        return self.original(stream, identity, payload, reserved=reserved)

    def extend(self, _stream: Stream, _frames: Any) -> None:
        raise self.error()

    def stand(self, writer: SpoolWriter, monkeypatch: pytest.MonkeyPatch) -> None:
        self.original = writer.append
        monkeypatch.setattr(writer, "append", self.append)
        monkeypatch.setattr(writer, "extend", self.extend)


def test_a_full_spool_loses_records_says_so_and_tells_it_in_a_gap(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = running()
    tool()
    made.flush()
    writer = made.worker.spooling._writer
    assert writer is not None
    Failing(lambda: SpoolFull("the spool has reached its limit"), reserved=True).stand(writer, monkeypatch)
    api.outcome("R", "success")
    made.flush()
    facts = by_kind(state)
    assert "decision" not in facts
    assert [(gap["cause"], gap["count"]) for gap in facts["gap"]] == [("record_lost", 1)]
    assert "evidence is being lost" in caplog.text


def test_a_gap_that_could_not_be_kept_is_tried_again(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    tool()
    made.flush()
    writer = made.worker.spooling._writer
    assert writer is not None
    with monkeypatch.context() as broken:
        Failing(lambda: SpoolError("broken disk")).stand(writer, broken)
        api.outcome("R", "success")
        made.flush()
        assert by_kind(state) == {}
    made.flush()
    assert by_kind(state) == {}, "not at each turn"
    made.worker._no_gap_before = 0.0
    made.flush()
    assert [(gap["cause"], gap["count"]) for gap in by_kind(state)["gap"]] == [("record_lost", 1)]


def test_a_directory_that_cannot_be_made_costs_nothing_but_the_evidence(
    running: Started, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state.write_text("a file in its place")
    made = running()
    tool()
    api.outcome("R", "success")
    made.flush()
    assert made.intake.dropped == {"record_lost": 1} or made.worker.signer.unsigned
    assert "cannot be" in caplog.text
    pipeline.stop()
    assert state.read_text() == "a file in its place"


def test_with_a_dsn_records_go_on_from_memory_where_the_disk_takes_none(running: Started, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    made = running(state_dir=blocked / "state", dsn=DSN, signing_key=generate_key_text())
    tool()
    api.outcome("R", "success")
    made.worker.spool_now(5)
    assert len(made.worker.delivery._memory) == 1
    assert made.intake.dropped == {}


@pytest.mark.parametrize(
    ("pressure", "keeps_messages", "takes"),
    [
        (Pressure.NONE, True, True),
        (Pressure.WARN, True, True),
        (Pressure.NO_MESSAGE_PARTS, False, True),
        (Pressure.NO_NEW_SESSIONS, False, False),
    ],
)
def test_what_a_filling_spool_leaves_out(
    running: Started,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    pressure: Pressure,
    keeps_messages: bool,
    takes: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from amfs_otel.settings import LedgerContent

    monkeypatch.setattr(spooling.Spooling, "pressure", property(lambda _: pressure))
    made = running(ledger_content=LedgerContent.ALL)
    with api.session("agent"):
        tool(result="message-canary")
        api.record_context("l", "decision-canary")
    made.flush()
    facts = by_kind(state)
    if takes:
        tool_call, context = facts["decision"][0]["events"]
        assert (tool_call["result"] is not None) == keeps_messages
        assert context["summary"] == "decision-canary"
        assert "gap" not in facts
    else:
        assert [(gap["cause"], gap["count"]) for gap in facts["gap"]] == [("spool_nearly_full", 2)]
    assert ("half full" in caplog.text) == (pressure >= Pressure.WARN)
    assert ("nearly full" in caplog.text) == (pressure >= Pressure.NO_MESSAGE_PARTS)


def test_an_open_session_is_finished_when_new_ones_are_refused(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    level = [Pressure.NONE]
    monkeypatch.setattr(spooling.Spooling, "pressure", property(lambda _: level[0]))
    with api.session("agent"):
        tool()
        made.flush()
        level[0] = Pressure.NO_NEW_SESSIONS
        with api.session("refused"):
            tool()
        tool()
        made.flush()
    made.flush()
    facts = by_kind(state)
    assert [len(decision["events"]) for decision in facts["decision"]] == [2]
    assert [gap["count"] for gap in facts["gap"]] == [1]


def test_events_that_move_into_a_refused_window_are_counted(
    running: Started, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    level = [Pressure.NONE]
    monkeypatch.setattr(spooling.Spooling, "pressure", property(lambda _: level[0]))
    tool()
    made.flush()
    level[0] = Pressure.NO_NEW_SESSIONS
    memory = capture.handle_session("amfs", "a", None)
    capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "l"}, memory=memory)
    capture.close_session(memory, ClosedBy.HANDLE_CLOSED)
    made.flush()
    assert [gap["count"] for gap in by_kind(state)["gap"]] == [2]


# -- health --------------------------------------------------------------------------------------------------------


def test_idle_windows_are_closed_by_the_worker(running: Started, state: Path) -> None:
    running(idle_timeout_s=0.05)
    tool()
    eventually(lambda: len(spooled(state)) == 1)
    assert spooled(state)[0].facts["closed_by"] == "idle"


def test_the_status_file_holds_no_password(running: Started, state: Path) -> None:
    made = running(dsn=DSN, otlp_endpoint="https://user:pass-canary@collector:4317/v1?token=pass-canary")
    tool()
    made.worker.spool_now(5)
    eventually(lambda: bool(statuses(state)))
    text = str(statuses(state))
    assert "canary" not in text
    assert statuses(state)[0]["endpoint"] == "https://collector:4317/v1"


def test_health_is_what_the_counters_say(running: Started) -> None:
    made = running()
    with api.session("agent"):
        tool()
    made.flush()
    made.intake.drop("queue_full", 3)
    guard.failed("openai", ValueError())
    now = made.worker.health.snapshot()
    assert now.events_dropped == {"queue_full": 3}
    assert now.records_signed == {"decision": 1}
    assert now.internal_errors == {"openai": 1}
    assert now.development_key is True
    assert (now.spool_bytes or 0) > 0


def test_an_internal_error_of_the_drain_is_no_delivery(running: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where psycopg finds no libpq: an ImportError, not one of ours."""
    from amfs_otel.pipeline.delivery import Delivery

    def failing(_: Delivery) -> float:
        raise ImportError("no pq wrapper available")

    monkeypatch.setattr(Delivery, "_pass", failing)
    made = running(dsn=DSN, signing_key=generate_key_text())
    tool()
    assert made.flush(5) is False
    assert made.worker.delivery.problem == "an internal error"
