"""Windows' messages → decision traces.

The assembler runs on the worker (or, for a dead process's journal, in whoever adopts it). It holds the open windows'
prepared events, in memory only; what it returns is final. It never resolves windows itself: capture did, in the caller.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from amfs_otel import guard
from amfs_otel.assemble.duplicates import without_duplicates
from amfs_otel.assemble.journal import EventPrepared, JournalItem
from amfs_otel.assemble.messages import ToolCallsInMessages
from amfs_otel.assemble.prepare import PreparedEvent, Preparer
from amfs_otel.chain.skeleton import PreparedText
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
    WindowRenamed,
)

WINDOW_LIMIT_BYTES = 32 << 20
REMEMBERED_STEPS = 4096


@dataclass(frozen=True, slots=True)
class DecisionTrace:
    """A closed window, ready to be signed.

    Attributes:
        window: What it was.
        facts: The prepared facts of its skeleton (docs/trace-document.md), without origin and policy.
        texts: What the `$t` references in `facts` mean.
        trace_id: OpenTelemetry trace of its root span, 0 for none.
        span_id: Its root span, 0 for none.
        closed_ns: When it closed.
    """

    window: WindowFacts
    facts: dict[str, Any]
    texts: tuple[PreparedText, ...]
    trace_id: int
    span_id: int
    closed_ns: int


@dataclass(slots=True)
class _Open:
    facts: WindowFacts
    events: dict[str, PreparedEvent] = field(default_factory=dict[str, PreparedEvent])
    size_bytes: int = 0


class Assembler:
    """Applies messages in order.

    Args:
        preparer: Masks and applies the policy.
        full: Called with the record id of a window that has reached its limit of bytes.
        unplaced: Called for each ended event whose window is not known (any more), so that no trace will hold it.
    """

    def __init__(
        self,
        preparer: Preparer,
        full: Callable[[str], None] = lambda _: None,
        unplaced: Callable[[], None] = lambda: None,
    ) -> None:
        self.preparer = preparer
        self._full = full
        self._unplaced = unplaced
        self._windows: dict[str, _Open] = {}
        self._where: dict[str, str] = {}
        self._left_open: OrderedDict[str, WindowFacts] = OrderedDict()
        self._ended_meanwhile: dict[int, EventOpened] = {}
        self._tools = ToolCallsInMessages()

    # -- from capture --------------------------------------------------------------------------------------------

    def prepared(self, message: Message) -> list[JournalItem]:
        """What the journal must hold for `message`. A step that has ended meanwhile is journaled once, as ended."""
        if isinstance(message, EventOpened):
            if message.event.end_ns:
                self._ended_meanwhile[message.event.id] = message
                return []
            return self._prepared_event(message.record_id, message.event, ended=False)
        if isinstance(message, EventClosed):
            self._ended_meanwhile.pop(message.event.id, None)
            return self._prepared_event(message.record_id, message.event, ended=True)
        if isinstance(message, EventsMoved):
            return [message, *self._moving(message)]
        if isinstance(message, WindowClosed):
            return [*self._still_open_in(message.record_id), message]
        if isinstance(message, WindowOpened):
            return [WindowOpened(self.preparer.window(message.facts))]
        if isinstance(message, WindowRenamed):
            name = self.preparer.name_text
            return [WindowRenamed(message.record_id, name(message.agent) or "", name(message.session_id))]
        return [message]

    def _moving(self, message: EventsMoved) -> list[JournalItem]:
        """The moved events once more, under their new window: journal frames are carried on by window."""
        for event_id in message.event_ids:
            ended = self._ended_meanwhile.get(event_id)
            if ended is not None:
                ended.record_id = message.target
        source = self._windows.get(message.source)
        moving = [] if source is None else [source.events[key] for key in _moving_keys(source, message)]
        for event in moving:
            event.facts.pop("flags", None)
        return [EventPrepared(message.target, event) for event in moving]

    def _still_open_in(self, record_id: str) -> list[JournalItem]:
        """Steps that were open when their window closed, although they have ended by now."""
        opened = [message for message in self._ended_meanwhile.values() if message.record_id == record_id]
        items: list[JournalItem] = []
        for message in opened:
            del self._ended_meanwhile[message.event.id]
            items.extend(self._prepared_event(record_id, message.event, ended=False))
        return items

    def _prepared_event(self, record_id: str, event: Event, *, ended: bool) -> list[JournalItem]:
        opened = self._opened(f"{event.id:016x}")
        items: list[JournalItem] = []
        answers: list[dict[str, Any]] = []
        if event.kind is Kind.LLM_CALL:
            if opened is None:
                answers = guard.run("assemble", self._tools.answers_in, event) or []
                answered = guard.run("assemble", self._tools.answered, event, answers, self.preparer) or ()
                items.extend(EventPrepared(record_id, call) for call in answered)
            if ended:
                guard.run("assemble", self._tools.asked, event)
        elif event.kind is Kind.TOOL_CALL:
            guard.run("assemble", self._tools.seen, event)
        prepared = self.preparer.event(event, opened, ended=ended)
        if answers:
            prepared.facts["answered_tools"] = self._tools.named(answers, self.preparer)
        items.append(EventPrepared(record_id, prepared))
        return items

    def _opened(self, event_id: str) -> PreparedEvent | None:
        window = self._windows.get(self._where.get(event_id, ""))
        return window.events.get(event_id) if window is not None else None

    # -- journal items -------------------------------------------------------------------------------------------

    def apply(self, item: JournalItem) -> DecisionTrace | None:
        """Applies `item`; gives the trace that it finished, if it did."""
        if isinstance(item, EventPrepared):
            return self._event(item.record_id, item.event)
        if isinstance(item, WindowOpened):
            self._windows[item.facts.record_id] = _Open(item.facts)
        elif isinstance(item, WindowClosed):
            return self._closed(item)
        elif isinstance(item, EventsMoved):
            self._moved(item)
        elif isinstance(item, WindowRenamed):
            window = self._windows.get(item.record_id)
            if window is not None:
                window.facts = replace(window.facts, agent=item.agent, session_id=item.session_id)
        elif isinstance(item, WindowDropped):
            self._forget(item)
        return None

    def _event(self, record_id: str, event: PreparedEvent) -> DecisionTrace | None:
        # A move may have come between the step's start and its end.
        record_id = self._where.get(event.id, record_id)
        window = self._windows.get(record_id)
        if window is None:
            left = self._left_open.pop(event.id, None)
            if left is None and not event.is_open:
                self._unplaced()
            return _amendment(left, event) if left is not None and not event.is_open else None
        before = window.events.get(event.id)
        window.events[event.id] = event
        self._where[event.id] = record_id
        window.size_bytes += event.size_bytes - (before.size_bytes if before is not None else 0)
        if window.size_bytes >= WINDOW_LIMIT_BYTES:
            self._full(record_id)
        return None

    def _moved(self, item: EventsMoved) -> None:
        source, target = self._windows.get(item.source), self._windows.get(item.target)
        if source is None or target is None:
            return
        for key in _moving_keys(source, item):
            event = source.events.pop(key)
            event.facts.pop("flags", None)
            self._where[key] = item.target
            target.events[key] = event
            source.size_bytes -= event.size_bytes
            target.size_bytes += event.size_bytes

    def _forget(self, item: WindowDropped) -> None:
        window = self._windows.pop(item.record_id, None)
        for key in window.events if window is not None else ():
            self._where.pop(key, None)

    def _closed(self, item: WindowClosed) -> DecisionTrace | None:
        window = self._windows.pop(item.record_id, None)
        if window is None:
            return None
        for key, event in window.events.items():
            self._where.pop(key, None)
            if event.is_open:
                self._left_open[key] = window.facts
        while len(self._left_open) > REMEMBERED_STEPS:
            self._left_open.popitem(last=False)
        return _trace(window, item)

    def interrupt_all(self, ended_us: Callable[[Iterable[PreparedEvent]], int]) -> list[DecisionTrace]:
        """Closes all windows that a dead process left open.

        Args:
            ended_us: Gives the best known end, µs, from the window's events.
        """
        traces: list[DecisionTrace] = []
        for record_id in list(self._windows):
            window = self._windows[record_id]
            if not window.events:
                self._forget(WindowDropped(record_id))
                continue
            traces_seen = [str(event.facts["trace"]) for event in window.events.values() if "trace" in event.facts]
            ended_ns = ended_us(window.events.values()) * 1000
            trace_id = int(traces_seen[0], 16) if traces_seen else 0
            trace = self._closed(WindowClosed(record_id, ClosedBy.INTERRUPTED, ended_ns, trace_id))
            if trace is not None:
                traces.append(trace)
        return traces

    def open_windows(self) -> list[str]:
        """Record ids of the open windows."""
        return list(self._windows)


def _moving_keys(source: _Open, item: EventsMoved) -> list[str]:
    """Keys of the events that move, those among them that were made from the messages of one that does."""
    moving = {f"{event_id:016x}" for event_id in item.event_ids} & source.events.keys()
    counters = {source.events[key].seq for key in moving}
    return [key for key, event in source.events.items() if key in moving or (event.synthetic and event.seq in counters)]


def _trace(window: _Open, item: WindowClosed) -> DecisionTrace | None:
    if not window.events:
        return None
    ordered = without_duplicates(sorted(window.events.values(), key=lambda event: (event.seq, not event.synthetic)))
    texts: list[PreparedText] = []
    events = [_shifted(event, texts) for event in ordered]
    facts = window.facts
    content: dict[str, Any] = {
        **_common(facts),
        "opened_by": facts.opened_by,
        "inferred": facts.inferred,
        "started_us": min(facts.started_ns // 1000, *(int(event["start_us"]) for event in events)),
        "ended_us": item.ended_ns // 1000,
        "closed_by": str(item.closed_by),
        "status": _status(item, ordered),
        "coverage": {
            "events": len(events),
            "joined": sum(1 for event in events if event.get("flags") == "joined"),
            "inferred": sum(1 for event in events if event.get("flags") == "inferred"),
        },
        "events": events,
    }
    if facts.claimed_session is not None:
        content["claimed_session"] = {"$n": facts.claimed_session[:256]}
    return DecisionTrace(facts, content, tuple(texts), item.trace_id, item.span_id, item.ended_ns)


def _common(facts: WindowFacts) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": f"amfs-otel/{facts.record_kind}/1", "agent": {"$n": facts.agent}}
    if facts.session_id is not None:
        content["session_id"] = {"$n": facts.session_id}
    return content


def _status(item: WindowClosed, events: list[PreparedEvent]) -> str:
    if item.closed_by is ClosedBy.INTERRUPTED:
        return "interrupted"
    if item.paused:
        return "paused"
    return "incomplete" if any(event.facts["status"] == "incomplete" for event in events) else "complete"


def _shifted(event: PreparedEvent, texts: list[PreparedText]) -> dict[str, Any]:
    """The event's facts with its text references counted on from `texts`, to which its texts are appended."""
    offset = len(texts)
    texts.extend(event.texts)
    return _with_offset(event.facts, offset) if offset and event.texts else event.facts


def _with_offset(members: dict[str, Any], offset: int) -> dict[str, Any]:
    if "$n" in members:
        return members
    shifted = members.copy()
    for key, value in members.items():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is dict:
            shifted[key] = _with_offset(value, offset)
        elif kind is list:
            shifted[key] = _items_with_offset(value, offset)
        elif key == "$t":
            shifted[key] = value + offset
    return shifted


def _items_with_offset(items: list[Any], offset: int) -> list[Any]:
    shifted: list[Any] = []
    for item in items:
        kind = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is dict:
            item = _with_offset(item, offset)  # noqa: PLW2901
        elif kind is list:
            item = _items_with_offset(item, offset)  # noqa: PLW2901
        shifted.append(item)
    return shifted


def _amendment(window: WindowFacts, event: PreparedEvent) -> DecisionTrace:
    """A step that ended after its window had closed."""
    ended_ns = int(event.facts["end_us"]) * 1000
    facts = replace(
        window,
        record_id=_amendment_id(window.record_id, event.id, ended_ns),
        record_kind=RecordKind.AMENDMENT,
        refs=(("amends", window.record_id),),
    )
    content = {**_common(facts), "step": event.id, "event": event.facts}
    ids = (int(str(event.facts.get("trace", "0")), 16), int(str(event.facts.get("span", "0")), 16))
    return DecisionTrace(facts, content, tuple(event.texts), *ids, closed_ns=ended_ns)


def _amendment_id(record_id: str, event_id: str, ended_ns: int) -> str:
    """A UUIDv7 whose random bits follow from the step: whoever reads the journal again makes no second amendment."""
    drawn = hashlib.sha256(f"{record_id} {event_id}".encode()).digest()
    bits = (ended_ns // 1_000_000) << 80 | int.from_bytes(drawn[:10])
    return str(UUID(int=bits & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62))
