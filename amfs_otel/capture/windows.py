"""Windows: what is open between two closings, and the placing of events into them.

Pure bookkeeping under one lock; it decides *which* window an event falls into (architecture.md, "Life of a trace") and
reports every change to the sink. The rules, first that applies:

1. the innermost explicit `session()`;
2. the open framework root run;
3. an AMFS event: its own tracker's window; any other: that of the tracker last used in this context, unless the event
   lies in a request that began after that use;
4. a remote parent with our baggage, if trusted;
5. the only open window of kinds 1-3, unless both have an OpenTelemetry trace and they differ, or only the event lies in
   a request (`joined`);
6. an implicit window (`inferred`): one per request, else per OpenTelemetry trace, else per process.

What 5 and 6 placed is provisional: it moves when a window of kinds 1-3 opens in the same context.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

from amfs_otel.capture.sessions import Place, Placed, Request, Session, Window
from amfs_otel.chain.record_id import new_record_id
from amfs_otel.model import (
    ClosedBy,
    Event,
    EventClosed,
    EventOpened,
    EventsMoved,
    RecordKind,
    Sink,
    WindowClosed,
    WindowDropped,
    WindowFacts,
    WindowOpened,
    WindowRenamed,
)

EVENT_LIMIT = 10_000
AGE_LIMIT_S = 24 * 3600.0
REMEMBERED_CONTEXTS = 512

_DECISION = RecordKind.DECISION  # a member is slow to find in its enumeration


class Windows:
    """All open windows of a process, under one lock: `window_of` to `place` want it held, all others take it briefly.

    Args:
        sink: Told of every change, in order, under the lock.
        end_root: Called with a window when it closes, outside the worker: ends its root span and returns its
            (trace id, span id), zeros where it has none.
    """

    def __init__(self, sink: Sink, end_root: Callable[[Window, int], tuple[int, int]]) -> None:
        self._sink = sink
        self._end_root = end_root
        self.lock = threading.RLock()
        self._open: OrderedDict[str, Window] = OrderedDict()
        self._joinable: dict[str, Window] = {}
        self._implicit: dict[Hashable, Session] = {}
        self._continued: OrderedDict[Hashable, Session] = OrderedDict()
        self._last_in_context: OrderedDict[Hashable, tuple[str, ClosedBy]] = OrderedDict()
        self._due: deque[Callable[[], None]] = deque()

    # -- placing -----------------------------------------------------------------------------------------------

    def window_of(self, session: Session, place: Place, *, kind: RecordKind = _DECISION) -> Window:
        """The open window of `session`, opened if need be; a full or old one is closed and continued."""
        window = self.open_window(session)
        if window is not None and kind is _DECISION:
            if window.events < EVENT_LIMIT and time.monotonic() - window.opened_s < AGE_LIMIT_S:
                return window
            session.continues = window.record_id
            self.close(window, ClosedBy.LIMIT)
        return self._opened(session, place, kind)

    def open_window(self, session: Session) -> Window | None:
        """The open window of `session`. After a fork it may still hold its parent's: that one is the parent's."""
        window = session.window
        return window if window is not None and window.record_id in self._open else None

    def only_open(self, place: Place) -> Window | None:
        """The window of rule 5, or `None`."""
        if len(self._joinable) != 1:
            return None
        (window,) = self._joinable.values()
        if window.place.trace_id and place.trace_id and window.place.trace_id != place.trace_id:
            return None
        if place.request is not None and window.place.request is not place.request:
            return None
        return window

    def implicit_session(self, place: Place, agent: str, *, create: bool = True) -> Session | None:
        """The session of rule 6 for `place`."""
        if place.request is not None:
            if place.request.session is None and create:
                place.request.session = Session("implicit", agent, inferred=True)
            return place.request.session
        key: Hashable = ("trace", place.trace_id) if place.trace_id else "process"
        if not create:
            return self._implicit.get(key)
        return self._implicit.get(key) or self._kept(key, Session("implicit", agent, inferred=True, key=key))

    def remote_session(self, session_id: str, agent: str, place: Place) -> Session:
        """The session of rule 4: the part that this process plays in another process's session."""
        key: Hashable = ("remote", session_id, place.trace_id)
        return self._implicit.get(key) or self._kept(key, Session("remote", agent, id=session_id, key=key))

    def _kept(self, key: Hashable, new: Session) -> Session:
        """The session of `key` that is to be continued, else `new`."""
        return self._implicit.setdefault(key, self._continued.pop(key, new))

    def place(self, window: Window, event: Event, place: Place, *, provisional: bool, step: bool) -> Placed:
        """Puts `event`, which happened at `place`, into `window`, found under the same hold of `lock`.

        A `step` has a duration and is still open; `provisional` is what rule 5 or 6 placed, so that it may move.
        """
        placed = Placed(event.id, event.start_ns, window, event if step else None)
        window.events += 1
        window.last_s = time.monotonic()
        if provisional:
            window.provisional.setdefault(place.context, []).append(placed)
        if step:
            window.steps_open += 1
            self._sink.put(EventOpened(window.record_id, event))
        else:
            self._sink.put(EventClosed(window.record_id, event))
        return placed

    def ended(self, placed: Placed, event: Event) -> None:
        """Reports the end of a step, wherever it lies by now; the assembler turns a late end into an amendment."""
        with self.lock:
            window, placed.event = placed.window, None
            window.steps_open -= 1
            window.last_s = time.monotonic()
            self._sink.put(EventClosed(window.record_id, event))

    # -- opening and closing -----------------------------------------------------------------------------------

    def _opened(self, session: Session, place: Place, kind: RecordKind) -> Window:
        now_ns, now_s = time.time_ns(), time.monotonic()
        taken = self._provisional_in(place) if not session.inferred and kind is RecordKind.DECISION else []
        window = Window(session, new_record_id(now_ns), kind, now_s, now_s, place)
        refs: tuple[tuple[str, str], ...] = ()
        if kind is RecordKind.OUTCOME:
            refs = self._judged(session, place)
        elif session.continues is not None:
            refs, session.continues = (("continues", session.continues),), None
        facts = WindowFacts(
            window.record_id, kind, session.id, session.agent, session.session_id, session.opened_by, session.inferred,
            min([now_ns, *(placed.start_ns for _, moved in taken for placed in moved)]), refs,
            place.claimed_session if session.opened_by != "remote" else None,
        )  # fmt: skip
        self._open[window.record_id] = window
        if not session.inferred and session.opened_by != "remote":
            self._joinable[window.record_id] = window
        if kind is RecordKind.DECISION:
            session.window = window
        self._sink.put(WindowOpened(facts))
        for source, moved in taken:
            self._moved(source, window, moved)
        return window

    def _provisional_in(self, place: Place) -> list[tuple[Window, list[Placed]]]:
        found: list[tuple[Window, list[Placed]]] = []
        for window in self._open.values():
            if window.place.request is not None and window.place.request is not place.request:
                continue  # a pool's thread serves one request after another, and one trace may hold many
            moved = window.provisional.pop(place.context, None)
            if moved:
                found.append((window, moved))
        return found

    def _moved(self, source: Window, target: Window, moved: list[Placed]) -> None:
        still_open = 0
        for placed in moved:
            placed.window = target
            if placed.event is not None:
                placed.event.flags = ""
                still_open += 1
        source.events -= len(moved)
        source.steps_open -= still_open
        target.events += len(moved)
        target.steps_open += still_open
        self._sink.put(EventsMoved(source.record_id, target.record_id, [placed.event_id for placed in moved]))
        if source.session.inferred and source.events <= 0:
            if target.root is None:
                target.root, target.place = source.root, source.place
            else:
                self._end_root(source, time.time_ns())
            self._drop(source)

    def _drop(self, window: Window) -> None:
        self._open.pop(window.record_id, None)
        self._forget(window)
        self._sink.put(WindowDropped(window.record_id))

    def _forget(self, window: Window) -> None:
        session = window.session
        self._joinable.pop(window.record_id, None)
        if session.window is window:
            session.window = None
        if session.key is not None and self._implicit.pop(session.key, None) and session.continues is not None:
            self._continued[session.key] = session
            while len(self._continued) > REMEMBERED_CONTEXTS:
                self._continued.popitem(last=False)

    def _judged(self, session: Session, place: Place) -> tuple[tuple[str, str], ...]:
        """What a commit on an empty window refers to: the last record with events, unless a commit closed it."""
        last = session.last or (self._last_in_context.get(place.context) if session.inferred else None)
        if last is None or last[1] is ClosedBy.COMMIT:
            return ()
        return (("outcome_of", last[0]),)

    def close(self, window: Window, cause: ClosedBy) -> None:
        """Closes `window` once; an empty decision window is dropped instead."""
        with self.lock:
            if window.closed is not None or window.record_id not in self._open:
                return
            window.closed = cause = ClosedBy.COMMIT if window.committed and cause is ClosedBy.RUN_END else cause
            ended_ns = time.time_ns()
            ids = self._end_root(window, ended_ns)
            if window.events == 0:
                self._drop(window)
                return
            del self._open[window.record_id]
            self._forget(window)
            if window.record_kind is RecordKind.DECISION:
                last = (window.record_id, cause)
                window.session.last = last
                for session, before in window.memories.items():
                    if session.last is before:
                        session.last = last
                for key in (window.place.context, *window.provisional):
                    self._last_in_context[key] = last
                    self._last_in_context.move_to_end(key)
                while len(self._last_in_context) > REMEMBERED_CONTEXTS:
                    self._last_in_context.popitem(last=False)
            self._sink.put(WindowClosed(window.record_id, cause, ended_ns, *ids, paused=window.paused))

    def close_session(self, session: Session, cause: ClosedBy) -> None:
        """Closes the open window of `session`, if there is one, and opens no more for it by itself."""
        with self.lock:
            session.ended = True
            self.close_due()
            if session.window is not None:
                self.close(session.window, cause)

    def close_later(self, session: Session, cause: ClosedBy) -> None:
        """Asks for `close_session`. Takes no lock, so that a garbage collector's callback may call it anywhere."""
        self.later(lambda: self.close_session(session, cause))

    def later(self, function: Callable[[], None]) -> None:
        """Has `function` called before the next window is looked up, or by the worker. Takes no lock."""
        self._due.append(function)

    def close_due(self) -> None:
        """Does what `later` was asked for; called before a window is looked up, and by the worker."""
        while self._due:
            try:
                function = self._due.popleft()
            except IndexError:
                return
            function()

    def close_request(self, request: Request) -> None:
        """Ends a request: its implicit window closes with it."""
        with self.lock:
            request.open = False
            if request.session is not None:
                self.close_session(request.session, ClosedBy.SESSION_END)

    def close_idle(self, idle_s: float, inferred_idle_s: float) -> None:
        """Closes windows without an event for that long; one with a step in flight is not idle."""
        now = time.monotonic()
        with self.lock:
            self.close_due()
            for window in list(self._open.values()):
                limit = inferred_idle_s if window.session.inferred else idle_s
                if window.steps_open <= 0 and now - window.last_s >= limit:
                    self.close(window, ClosedBy.IDLE)
                elif now - window.opened_s >= AGE_LIMIT_S:
                    window.session.continues = window.record_id
                    self.close(window, ClosedBy.LIMIT)

    def close_record(self, record_id: str, cause: ClosedBy) -> None:
        """Closes the window of `record_id` if it is still open (the assembler's byte limit)."""
        with self.lock:
            window = self._open.get(record_id)
            if window is not None:
                window.session.continues = record_id
                self.close(window, cause)

    def close_all(self, cause: ClosedBy) -> None:
        """Closes every window (exit, SIGTERM)."""
        with self.lock:
            self.close_due()
            for window in list(self._open.values()):
                self.close(window, cause)

    def rename(self, session: Session, agent: str, session_id: str | None) -> None:
        """Agent or session id became known later than the first event."""
        with self.lock:
            if (session.agent, session.session_id) == (agent, session_id):
                return
            session.agent, session.session_id = agent, session_id
            if session.window is not None:
                self._sink.put(WindowRenamed(session.window.record_id, agent, session_id))

    def open_count(self) -> int:
        """How many windows are open."""
        return len(self._open)
