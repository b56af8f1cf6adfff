"""The bounded queue between the caller's threads and the worker."""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from amfs_otel.model import EventClosed, EventOpened, Message

QUEUE_LIMIT = 20_000
BYTES_LIMIT = 256 << 20
LEAST = 1000
"""So many messages may always wait, however long their texts are."""


class Intake:
    """Takes messages without blocking; when full, events are dropped and counted, windows' messages never.

    It is full with `QUEUE_LIMIT` messages, or with fewer if the events of late were so large that those hold about
    `BYTES_LIMIT`: the caller's thread has no time to measure, so the worker tells what it `met`.
    """

    def __init__(self) -> None:
        self._limit = QUEUE_LIMIT
        self._usual_bytes = 0.0
        self._messages: deque[Message] = deque()
        self._on_first: Callable[[], None] | None = None
        self._signalled = False
        self._wake = threading.Event()
        self.dropped: dict[str, int] = {}

    def on_first(self, start: Callable[[], None]) -> None:
        """Has `start` called at the first message: nothing of ours runs before there is something to record."""
        self._on_first = start

    def put(self, message: Message) -> None:
        """Takes `message`."""
        if len(self._messages) >= self._limit and isinstance(message, (EventOpened, EventClosed)):
            if isinstance(message, EventClosed):  # each event has one end: counted there, and lost only with it
                self.drop("queue_full")
            return
        self._messages.append(message)
        if not self._signalled:
            self._signalled = True
            self._wake.set()
        if self._on_first is not None:
            start, self._on_first = self._on_first, None
            start()

    def met(self, event_bytes: int) -> None:
        """Tells the size of the texts of an event; two messages are about one event."""
        self._usual_bytes += (event_bytes - self._usual_bytes) / 16
        self._limit = min(QUEUE_LIMIT, max(LEAST, int(2 * BYTES_LIMIT / (self._usual_bytes + 1))))

    def drop(self, cause: str, count: int = 1) -> None:
        """Counts events that no record will hold."""
        self.dropped[cause] = self.dropped.get(cause, 0) + count

    def wait(self, seconds: float) -> None:
        """Waits for a message, at most `seconds`."""
        self._wake.wait(seconds)

    def wake(self) -> None:
        """Ends a `wait`."""
        self._wake.set()

    def take(self, limit: int) -> Iterator[Message]:
        """The next messages, in order, at most `limit`.

        Each leaves the queue, and memory, when its turn comes: an event grows while it is worked on, for what the
        caller put off is then made, so a batch that stood in a list took as much again as the queue itself.
        """
        self._signalled = False
        self._wake.clear()
        count = min(limit, len(self._messages))
        while count and self._messages:
            count -= 1
            yield self._messages.popleft()

    def rest(self) -> None:
        """All was taken: `wait` waits again, unless something came meanwhile."""
        self._signalled = False
        self._wake.clear()
        if self._messages:
            self._wake.set()

    def __len__(self) -> int:
        return len(self._messages)
