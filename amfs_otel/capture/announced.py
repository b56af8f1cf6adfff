"""Model calls that a framework announces before some client makes them: one event of the two.

A framework knows that a model is called and for which of its steps; the client below, where it is instrumented too,
knows what was really sent and answered. So a framework's patch announces the call. A client's event that begins while
the announced call runs takes it over and takes its parent from it; if none does, the framework's account of the call
becomes the event when the call ends. A client that runs out of sight (a thread without the context) makes a second
event, which `assemble.duplicates` finds by its response id.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import context

from amfs_otel import guard
from amfs_otel.capture.ambient import STEP_KEY
from amfs_otel.capture.sessions import next_seq
from amfs_otel.capture.steps import Step

if TYPE_CHECKING:
    from amfs_otel.capture.foreign import ForeignSpan

_announced: ContextVar["AnnouncedCall | None"] = ContextVar("amfs_otel_announced", default=None)


class Reporter(Protocol):
    """Makes the event of an announced call that no client took over."""

    def report(self, call: "AnnouncedCall", result: dict[str, Any], error: BaseException | None) -> None:
        """Called once, at the end of the call."""
        ...


class AnnouncedCall:
    """A model call from its announcement to its single end.

    Attributes:
        source: Name of the framework.
        fields: Makes the fields known at the start, where they are needed.
        inside: The framework's step that it is a part of.
        seq: Its place in the order of events.
        start_ns: Wall clock at its start.
        claimed: Whether a client's event stands for it.
        done: Whether it has ended.
        elapsed_ns: How long it took, 0 while that is not fixed.
        outer: The announced call during which it was announced, in the same context.
        visible: Whether a client's event that begins now may be this call.
        foreign: Another instrumentor's span of the same call, until an event takes it over (see `capture.foreign`).
    """

    __slots__ = (
        "_mono_ns", "_reporter", "claimed", "done", "elapsed_ns", "fields", "foreign", "inside", "outer", "seq",
        "source", "start_ns", "visible",
    )  # fmt: skip

    def __init__(
        self, reporter: Reporter, source: str, fields: Callable[[], dict[str, Any]], inside: Step | None
    ) -> None:
        self.source = source
        self.fields = fields
        self.inside = inside
        self.seq = next_seq()
        self.start_ns = time.time_ns()
        self.elapsed_ns = 0
        self.claimed = False
        self.done = False
        self._mono_ns = time.perf_counter_ns()
        self._reporter = reporter
        self.visible = True
        self.foreign: ForeignSpan | None = None
        outer = _announced.get()
        self.outer = outer if outer is not None and not outer.done else None
        _announced.set(self)

    def hide(self) -> None:
        """No client's call that begins from now on is this one: its stream has begun, or it has ended.

        What a stream's reader calls between two chunks lies in the same context.
        """
        self.visible = False

    def elapsed(self) -> int:
        """Monotonic ns since its start."""
        return time.perf_counter_ns() - self._mono_ns

    def freeze(self) -> None:
        """Fixes its end now, if it is not fixed yet."""
        self.elapsed_ns = self.elapsed_ns or self.elapsed()

    def end(self, result: dict[str, Any], error: BaseException | None = None) -> None:
        """Ends it, once; makes it an event where no client did. Safe from any context."""
        if self.done:
            return
        self.done, self.visible = True, False
        if not self.claimed:
            self.freeze()
            guard.run(self.source, self._reporter.report, self, result, error)
        # A context may keep this object for as long as it lives.
        self.outer = self.inside = self.foreign = None
        self.fields = dict

    @staticmethod
    def here() -> "AnnouncedCall | None":
        """The call that a client's event beginning here would stand for.

        That is the innermost call that nobody has claimed, else the innermost: a model may need several requests.
        """
        call, found = _announced.get(), None
        while call is not None and (found is None or found.claimed):
            if call.visible and (found is None or not call.claimed):
                found = call
            call = call.outer
        return found

    def claim(self) -> Step | None:
        """Claims it for a client's event that begins now; gives the step that the event is a part of."""
        self.claimed = True
        step = context.get_value(STEP_KEY)
        newer = isinstance(step, Step) and not step.done and step.event.seq > self.seq
        return None if newer else self.inside
