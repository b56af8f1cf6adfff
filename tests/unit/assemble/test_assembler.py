"""Windows' messages to traces, directly and through the journal of a process that died."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from amfs_otel.assemble.assembler import Assembler, DecisionTrace
from amfs_otel.assemble.gaps import Gap, trace_from_gap
from amfs_otel.assemble.journal import EventPrepared, JournalItem, ProcessBegan, decoded, encoded, record_id_of
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.capture.content import MASK, Masker
from amfs_otel.chain.record_id import new_record_id
from amfs_otel.errors import FormatError
from amfs_otel.model import (
    ClosedBy,
    Event,
    EventClosed,
    EventOpened,
    EventsMoved,
    Kind,
    RecordKind,
    WindowClosed,
    WindowDropped,
    WindowFacts,
    WindowOpened,
    WindowRenamed,
)
from amfs_otel.settings import LedgerContent
from tests.support.capturing import resolved

SECRET = "sk-proj-abcdefghijklmnop1234"


class Desk:
    """An assembler with the journal that it writes."""

    def __init__(self, content: LedgerContent = LedgerContent.ALL) -> None:
        self.journal: list[JournalItem] = []
        self.frames: list[bytes] = []
        self.traces: list[DecisionTrace] = []
        self.unplaced = 0
        self.assembler = Assembler(Preparer(content, Masker(), b"d" * 32), unplaced=self._count)
        self.seq = 0

    def _count(self) -> None:
        self.unplaced += 1

    def put(self, *messages: Any) -> None:
        for message in messages:
            for item in self.assembler.prepared(message):
                self.journal.append(item)
                self.frames.append(encoded(item))
                made = self.assembler.apply(item)
                if made is not None:
                    self.traces.append(made)

    def window(self, agent: str = "agent", kind: RecordKind = RecordKind.DECISION) -> str:
        facts = WindowFacts(
            new_record_id(time.time_ns()), kind, "a" * 32, agent, None, "session", False, time.time_ns()
        )
        self.put(WindowOpened(facts))
        return facts.record_id

    def event(self, kind: Kind = Kind.TOOL_CALL, **fields: Any) -> Event:
        self.seq += 1
        return Event(kind, self.seq, self.seq, time.time_ns(), "amfs_otel", {"tool_name": "t", **fields})

    def done(self, window: str, event: Event, **result: Any) -> Event:
        self.end(event, **result)
        self.put(EventOpened(window, event), EventClosed(window, event))
        return event

    @staticmethod
    def end(event: Event, **result: Any) -> None:
        event.result, event.end_ns = result, event.start_ns + 1000

    def close(self, window: str) -> None:
        self.put(WindowClosed(window, ClosedBy.EXIT, time.time_ns(), 1, 2))

    def read_again(self, keep: Callable[[JournalItem], bool] = lambda _: True) -> list[DecisionTrace]:
        """What an adopter makes of the journal, or of the frames that were carried on."""
        adopter = Assembler(Preparer(LedgerContent.NONE, Masker(), None))
        frames = [frame for item, frame in zip(self.journal, self.frames, strict=True) if keep(item)]
        made = [adopter.apply(decoded(frame)) for frame in frames]
        found = [trace for trace in made if trace is not None]
        return [*found, *adopter.interrupt_all(lambda events: max(int(e.facts["start_us"]) for e in events))]


def test_events_stand_in_the_order_of_their_counter() -> None:
    desk = Desk()
    window = desk.window()
    first, second = desk.event(), desk.event()
    desk.done(window, second)
    desk.done(window, first)
    desk.close(window)
    assert [event["seq"] for event in resolved(desk.traces[0])["events"]] == [1, 2]


def test_a_step_that_ended_before_the_worker_looked_is_journaled_once() -> None:
    desk = Desk()
    window = desk.window()
    desk.done(window, desk.event())
    assert [type(item).__name__ for item in desk.journal] == ["WindowOpened", "EventPrepared"]


def test_a_step_in_flight_when_its_window_closes_is_incomplete_and_amended_later() -> None:
    desk = Desk()
    window, step = desk.window(), desk.event()
    desk.put(EventOpened(window, step))
    desk.close(window)
    desk.end(step, success=True)
    desk.put(EventClosed(window, step))
    closed, amended = desk.traces
    assert resolved(closed)["status"] == "incomplete"
    assert (amended.window.record_kind, amended.window.refs) == ("amendment", (("amends", window),))
    assert resolved(amended)["event"]["success"] is True
    again = desk.read_again()
    assert [trace.window.record_id for trace in again] == [window, amended.window.record_id]
    assert [resolved(trace) for trace in again] == [resolved(trace) for trace in desk.traces]


def test_a_step_that_ended_after_the_close_but_before_the_worker_looked_is_amended_too() -> None:
    desk = Desk()
    window, step = desk.window(), desk.event()
    desk.end(step, success=True)
    desk.put(EventOpened(window, step))
    desk.close(window)
    desk.put(EventClosed(window, step))
    assert [str(trace.window.record_kind) for trace in desk.traces] == ["decision", "amendment"]


def test_an_end_without_a_window_is_counted() -> None:
    desk = Desk()
    window = desk.window()
    desk.done(window, desk.event())
    desk.close(window)
    desk.done(window, desk.event())
    assert desk.unplaced == 1


def moved(desk: Desk) -> tuple[str, str]:
    """Two events, one still open, move from an implicit window into a decision."""
    source = desk.window("program")
    desk.done(source, desk.event())
    step = desk.event()
    desk.put(EventOpened(source, step))
    target = desk.window("decider")
    desk.put(EventsMoved(source, target, [1, 2]), WindowDropped(source))
    return source, target


def test_moved_events_are_in_their_new_window_only() -> None:
    desk = Desk()
    _, target = moved(desk)
    desk.close(target)
    (made,) = desk.traces
    assert made.window.record_id == target
    assert len(made.facts["events"]) == 2


def test_moved_events_are_carried_on_with_their_new_window() -> None:
    """A new journal segment takes over the frames of open windows, by window: the old window's are gone then."""
    desk = Desk()
    _, target = moved(desk)
    (made,) = desk.read_again(lambda item: record_id_of(item) == target)
    assert [event["seq"] for event in resolved(made)["events"]] == [1, 2]
    assert resolved(made)["status"] == "interrupted"
    assert [resolved(trace) for trace in desk.read_again()] == [resolved(made)]


def test_an_interrupted_trace_holds_the_killed_step() -> None:
    desk = Desk()
    window = desk.window()
    desk.done(window, desk.event(), success=True)
    killed = desk.event(arguments={"a": 1})
    killed.trace_id = 7
    desk.put(EventOpened(window, killed))
    empty = desk.window()
    (made,) = desk.read_again()
    facts = resolved(made)
    assert made.window.record_id == window != empty
    assert (facts["closed_by"], facts["status"]) == ("interrupted", "interrupted")
    assert [(event["status"], "end_us" in event) for event in facts["events"]] == [("ok", True), ("incomplete", False)]
    assert facts["events"][1]["arguments"] == '{"a":1}'
    assert made.trace_id == 7


def test_names_of_windows_are_masked_and_bounded_before_they_are_journaled() -> None:
    desk = Desk()
    window = desk.window(f"agent {SECRET} " + "x" * 5000)
    desk.put(WindowRenamed(window, f"renamed {SECRET}", SECRET))
    desk.done(window, desk.event())
    desk.close(window)
    assert SECRET.encode() not in b"".join(desk.frames)
    facts = resolved(desk.traces[0])
    assert (facts["agent"], facts["session_id"]) == (f"renamed {MASK}", MASK)


def llm(desk: Desk, window: str, messages: Any, answer: Any) -> None:
    event = desk.event(Kind.LLM_CALL, operation="chat", provider="p", input_messages=messages)
    desk.done(window, event, output_messages=answer)


ASKED = [
    {
        "role": "assistant",
        "parts": [
            {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"q": 1}},
            {"type": "tool_call", "id": "c2", "name": "count", "arguments": "{}"},
        ],
    }
]
ANSWERED = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}]}]


def test_a_tool_call_is_seen_through_the_messages() -> None:
    desk = Desk()
    window = desk.window()
    llm(desk, window, [], ASKED)
    llm(desk, window, ANSWERED, [])
    llm(desk, window, [*ANSWERED, *ANSWERED], [])
    desk.close(window)
    events = resolved(desk.traces[0])["events"]
    assert [event["kind"] for event in events] == ["llm_call", "tool_call", "llm_call", "llm_call"]
    call = events[1]
    assert call["observed"] == "messages"
    assert (call["tool_name"], call["call_id"], call["result"]) == ("look", "c1", "found")
    assert json.loads(call["arguments"]) == {"q": 1}
    assert "end_us" not in call
    assert call["start_us"] >= events[0]["end_us"] - 1


def test_a_tool_call_that_was_seen_as_a_call_is_not_seen_again() -> None:
    desk = Desk()
    window = desk.window()
    llm(desk, window, [], ASKED)
    desk.done(window, desk.event(Kind.TOOL_CALL, call_id="c1"))
    llm(desk, window, ANSWERED, [])
    desk.close(window)
    assert [event["kind"] for event in resolved(desk.traces[0])["events"]] == ["llm_call", "tool_call", "llm_call"]


def answer(call_id: str, response: str = "r") -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": response}]}


def asking(*call_ids: str) -> dict[str, Any]:
    parts = [{"type": "tool_call", "id": one, "name": "look", "arguments": {}} for one in call_ids]
    return {"role": "assistant", "parts": parts}


SAID = {"role": "assistant", "parts": [{"type": "text", "content": "done"}]}
NEXT = {"role": "user", "parts": [{"type": "text", "content": "and now?"}]}


@pytest.mark.parametrize(
    ("requests", "brought"),
    [
        ([[NEXT], [NEXT, asking("c1"), answer("c1")]], [[], ["c1"]]),
        ([[asking("c1", "c2"), answer("c2"), answer("c1")]], [["c2", "c1"]]),
        ([[asking("c1"), answer("c1"), asking("c2"), answer("c2")]], [["c1", "c2"]]),
        ([[asking("c1"), answer("c1")], [asking("c1"), answer("c1"), asking("c2"), answer("c2")]], [["c1"], ["c2"]]),
        ([[asking("c1"), answer("c1"), SAID, NEXT]], [["c1"]]),
        ([[asking("c1"), answer("c1")], [asking("c1"), answer("c1")]], [["c1"], ["c1"]]),
        ([[answer("c1")], [answer("c2")]], [["c1"], ["c2"]]),
        ([[asking("c1"), answer("c1"), answer("c1")]], [["c1"]]),
        ([[asking(*(f"c{n}" for n in range(300))), *(answer(f"c{n}") for n in range(300))]],
         [[f"c{n}" for n in range(44, 300)]]),
    ],
    ids=["the newest", "several", "one by one in one request", "history is not brought again", "another turn follows",
         "two models with one history", "a request without its history", "twice", "at most 256"],
)  # fmt: skip
def test_a_model_call_names_the_calls_whose_answers_it_brings(requests: Any, brought: list[list[str]]) -> None:
    desk = Desk()
    window = desk.window()
    for messages in requests:
        llm(desk, window, messages, [])
    desk.close(window)
    for trace in (desk.traces[0], desk.read_again()[0]):
        events = resolved(trace)["events"]
        named = [[one["call_id"] for one in event.get("answered_tools", ())] for event in events]
        assert named == brought


def test_an_id_that_comes_again_has_the_newest_answer() -> None:
    """Some providers number the calls of each turn anew."""
    desk = Desk()
    window = desk.window()
    first = [asking("c1"), answer("c1", "first")]
    llm(desk, window, [], [asking("c1")])
    llm(desk, window, first, [asking("c1")])
    llm(desk, window, [*first, asking("c1"), answer("c1", "second")], [])
    desk.close(window)
    events = resolved(desk.traces[0])["events"]
    assert [event["result"] for event in events if event["kind"] == "tool_call"] == ["first", "second"]
    assert [event["answered_tools"] for event in events if "answered_tools" in event] == [[{"call_id": "c1"}]] * 2


def test_the_answers_that_it_brings_are_named_where_no_text_is_kept() -> None:
    desk = Desk(LedgerContent.NONE)
    window = desk.window()
    llm(desk, window, [asking("c1"), answer("c1")], [])
    desk.close(window)
    (event,) = resolved(desk.traces[0])["events"]
    assert event["answered_tools"] == [{"call_id": "c1"}]
    assert event["input_messages"] is None


@pytest.mark.parametrize("messages", [None, 5, "text", [None, 1, {"parts": 5}, {"parts": [None, {"type": 3}]}], {}])
def test_messages_of_any_shape_are_taken(messages: Any) -> None:
    desk = Desk()
    window = desk.window()
    llm(desk, window, messages, messages)
    desk.close(window)
    assert len(desk.traces[0].facts["events"]) == 1


def test_withheld_texts_are_in_no_frame() -> None:
    desk = Desk(LedgerContent.NONE)
    window = desk.window()
    desk.done(window, desk.event(arguments="message-canary"), result="message-canary")
    desk.close(window)
    assert b"canary" not in b"".join(desk.frames)
    (again,) = desk.read_again()
    assert [text.commitment for text in again.texts] == [text.commitment for text in desk.traces[0].texts]


def test_every_item_reads_back_as_it_was() -> None:
    desk = Desk()
    moved(desk)
    desk.journal.append(ProcessBegan({"service": "s"}, "default", "all"))
    desk.put(WindowRenamed(desk.window(), "b", "id"))
    for item in desk.journal:
        back = decoded(encoded(item))
        assert type(back) is type(item)
        assert encoded(back) == encoded(item)
        if not isinstance(item, EventPrepared):
            assert back == item


@pytest.mark.parametrize(
    "frame", [b"", b"{}", b"[]", b'"x"', b'{"t":"Unknown"}', b'{"t":"WindowClosed"}', b"\xff", b"5"]
)
def test_a_frame_that_is_none_of_ours_is_named(frame: bytes) -> None:
    with pytest.raises(FormatError, match="journal"):
        decoded(frame)


def test_a_gap_says_what_is_known_and_nothing_else() -> None:
    made = trace_from_gap(Gap("queue_full", count=3), "agent")
    assert made.facts == {"schema": "amfs-otel/gap/1", "agent": {"$n": "agent"}, "cause": "queue_full", "count": 3}
    assert made.window.record_kind == "gap"
