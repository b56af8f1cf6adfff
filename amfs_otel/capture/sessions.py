"""What events fall into: a place, a request, a session, a window.

Plain data; `requests` marks requests, `placing` finds windows, `windows` opens and closes them under its lock.
"""

import itertools
import secrets
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from amfs_otel.model import ClosedBy, Event, RecordKind

next_seq: Callable[[], int] = itertools.count(1).__next__
"""The order of events in this process, taken in the caller (one bytecode, so threads cannot share a number)."""


@dataclass(slots=True)
class Request:
    """A request or task under way.

    Attributes:
        seq: Its place in the order of events.
        open: Whether it is still under way.
        session: The session of its implicit window, where it has one.
        outer: The open request in which it began; counts again when this one has ended.
        span_id: The SERVER or CONSUMER span that is its own; 0 for none yet, then the first that begins inside is it.
        returned: Whether only its body is still being read: what begins now is another request.
    """

    seq: int
    open: bool = True
    session: "Session | None" = None
    outer: "Request | None" = None
    span_id: int = 0
    returned: bool = False


@dataclass(slots=True)
class Place:
    """Where an event happens: what the rules look at.

    Attributes:
        trace_id: OpenTelemetry trace of the span that was current before ours, 0 for none.
        parent_span_id: That span, 0 for none.
        context: Key of "the same context": OpenTelemetry trace, else asyncio task, else thread.
        request: The open request in which it lies.
        claimed_session: Session id in inbound baggage, trusted or not.
    """

    trace_id: int
    parent_span_id: int
    context: Hashable
    request: "Request | None" = None
    claimed_session: str | None = None


@dataclass(slots=True)
class Calls:
    """What one agent run asked for itself: not what a run inside it did. Counted under the lock of the windows.

    Attributes:
        inference: Its model calls.
        tools: Its tool calls.
    """

    inference: int = 0
    tools: int = 0


@dataclass(slots=True, eq=False)
class Session:
    """One run of one agent: the source of windows, one open at a time.

    Attributes:
        opened_by: `session`, `amfs`, a framework's name, `remote` or `implicit`.
        agent: Name of the agent.
        session_id: The application's id, where it has one.
        id: 128 random bits, hex.
        window: The open window.
        last: Record id and cause of the last closed window that held events.
        calls: Those of the agent run that it is.
    """

    opened_by: str
    agent: str
    session_id: str | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    inferred: bool = False
    key: Hashable = None
    window: "Window | None" = None
    last: tuple[str, ClosedBy] | None = None
    continues: str | None = None
    ended: bool = False
    calls: Calls | None = None


@dataclass(slots=True, eq=False)
class Window:
    """What is open in a session. `root` is whatever the span side keeps for it.

    `memories` are sessions of AMFS trackers whose events fell in here, with their `last` of that time: a commit after
    the window judges it, unless the tracker had a window of its own since.
    """

    session: Session
    record_id: str
    record_kind: RecordKind
    opened_s: float
    last_s: float
    place: Place
    events: int = 0
    steps_open: int = 0
    closed: ClosedBy | None = None
    committed: bool = False
    paused: bool = False
    run_event_id: int = 0
    owns_root: bool = True
    memories: dict[Session, tuple[str, ClosedBy] | None] = field(
        default_factory=dict[Session, "tuple[str, ClosedBy] | None"]
    )
    root: Any = None
    provisional: dict[Hashable, list["Placed"]] = field(default_factory=dict[Hashable, list["Placed"]])


@dataclass(slots=True)
class Placed:
    """An event and the window that it lies in now (a move changes it); `event` only while it is open: it has texts."""

    event_id: int
    start_ns: int
    window: Window
    event: Event | None
