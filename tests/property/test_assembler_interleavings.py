"""However the threads' messages and the worker's turns fall together, the trace is the same."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amfs_otel.assemble.assembler import Assembler
from amfs_otel.assemble.journal import decoded, encoded
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.capture.content import Masker
from amfs_otel.model import (
    ClosedBy,
    Event,
    EventClosed,
    EventOpened,
    EventsMoved,
    Kind,
    Message,
    RecordKind,
    WindowClosed,
    WindowDropped,
    WindowFacts,
    WindowOpened,
)
from amfs_otel.settings import LedgerContent
from tests.support.capturing import resolved

SOURCE, TARGET = "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002"
FACTS = WindowFacts(SOURCE, RecordKind.DECISION, "a" * 32, "agent", None, "implicit", True, 1_000_000)
THREADS, ROUNDS = 3, 2


def call(thread: int, round_: int, asked: bool) -> Event:
    """A model call: the first asks for a tool, the second brings the answer."""
    number = thread * 10 + round_ + 1
    call_id = f"call-{thread}"
    parts: list[dict[str, Any]] = [{"type": "tool_call", "id": call_id, "name": "t", "arguments": "{}"}]
    answer = [{"role": "assistant", "parts": parts}]
    given_: list[dict[str, Any]] = [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": "r"}]}
    ]
    event = Event(
        Kind.LLM_CALL, number, number, 1_000_000_000 + number * 1000, "openai",
        {"operation": "chat", "provider": "p", "input_messages": [] if asked else given_}, flags="inferred",
    )  # fmt: skip
    event.result = {"output_messages": answer if asked else []}
    return event


class Run:
    """Capture's part: messages in an order that it could give them, ends set when they happen."""

    def __init__(self, turns: list[bool]) -> None:
        self.turns = iter(turns)
        self.assembler = Assembler(Preparer(LedgerContent.ALL, Masker(), b"d" * 32))
        self.adopter = Assembler(Preparer(LedgerContent.NONE, Masker(), None))
        self.queue: list[Message] = [WindowOpened(FACTS)]
        self.window = SOURCE
        self.placed: list[int] = []
        self.traces: list[Any] = []
        self.adopted: list[Any] = []

    def put(self, message: Message) -> None:
        self.queue.append(message)
        if next(self.turns, False):
            self.work()

    def work(self) -> None:
        """A turn of the worker: all that lies in the queue."""
        for message in self.queue:
            for item in self.assembler.prepared(message):
                frame = encoded(item)
                for assembler, traces in ((self.assembler, self.traces), (self.adopter, self.adopted)):
                    made = assembler.apply(item if assembler is self.assembler else decoded(frame))
                    if made is not None:
                        traces.append(made)
        self.queue.clear()

    def step(self, event: Event) -> None:
        """The next thing that happens to `event`: it starts, or it ends."""
        if event.id not in self.placed:
            self.placed.append(event.id)
            self.put(EventOpened(self.window, event))
        else:
            event.end_ns = event.start_ns + 500_000
            self.put(EventClosed(self.window, event))

    def move(self, events: list[Event]) -> None:
        self.put(WindowOpened(replace(FACTS, record_id=TARGET, inferred=False, opened_by="amfs")))
        for event in events:
            if event.id in self.placed:
                event.flags = ""
        self.put(EventsMoved(SOURCE, TARGET, list(self.placed)))
        self.put(WindowDropped(SOURCE))
        self.window = TARGET


def told(traces: list[Any]) -> dict[str, Any]:
    """The one trace's facts, without what is drawn anew each time and without how events were placed."""
    (made,) = traces
    facts = resolved(made)
    for event in facts["events"]:
        event.pop("flags", None)
        if event.get("observed") == "messages":
            event.pop("id")
    facts.pop("coverage")
    return facts


def run(order: list[int], turns: list[bool], move_at: int) -> tuple[dict[str, Any], dict[str, Any]]:
    threads = [[call(thread, round_, asked=round_ == 0) for round_ in range(ROUNDS)] for thread in range(THREADS)]
    events = [event for thread in threads for event in thread]
    left = [[event for event in thread for _ in ("start", "end")] for thread in threads]
    made = Run(turns)
    for position, thread in enumerate(order):
        if position == move_at:
            made.move(events)
        made.step(left[thread].pop(0))
    made.put(WindowClosed(TARGET, ClosedBy.EXIT, 3_000_000_000, 1, 2))
    made.work()
    return told(made.traces), told(made.adopted)


ORDERS = st.permutations([thread for thread in range(THREADS) for _ in range(ROUNDS * 2)])
EXPECTED = run([0] * 4 + [1] * 4 + [2] * 4, [], 0)[0]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(order=ORDERS, turns=st.lists(st.booleans(), max_size=24), move_at=st.integers(0, 11))
def test_any_interleaving_gives_the_same_trace_here_and_in_the_journal(
    order: list[int], turns: list[bool], move_at: int
) -> None:
    here, adopted = run(order, turns, move_at)
    assert here == EXPECTED
    assert adopted == EXPECTED


def test_what_every_interleaving_gives() -> None:
    kinds = [event["kind"] for event in EXPECTED["events"]]
    assert kinds == ["llm_call", "tool_call", "llm_call"] * THREADS
    assert EXPECTED["status"] == "complete"
