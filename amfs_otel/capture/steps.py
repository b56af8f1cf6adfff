"""Steps and roots: what is open on the span side."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from amfs_otel import guard
from amfs_otel.capture.ambient import SPAN_KEY, STEP_KEY
from amfs_otel.capture.sessions import Calls, Place, Placed, Window
from amfs_otel.model import Event, Kind

if TYPE_CHECKING:
    from amfs_otel.capture.foreign import Beside

_AGENT_RUN, _LLM_CALL, _TOOL_CALL = Kind.AGENT_RUN, Kind.LLM_CALL, Kind.TOOL_CALL
"""Members are slow to find in their enumeration."""


class Finisher(Protocol):
    """Ends the event and the span of a step."""

    def finish(self, step: "Step", result: dict[str, Any] | None, error: BaseException | None, elapsed_ns: int) -> None:
        """Called once per step."""
        ...

    def later(self, function: Callable[[], None]) -> None:
        """Calls `function` at the next event or tick of the worker. Takes no lock."""
        ...


class Root:
    """The root span of a window, with what it was started with."""

    __slots__ = ("parent_span_id", "record_id", "span")

    def __init__(self, span: Span, record_id: str, parent_span_id: int) -> None:
        self.span = span
        self.record_id = record_id
        self.parent_span_id = parent_span_id


def below_root(root: Root | None, here: Context) -> Context:
    """`here`, with `root` as the current span where there is none, or only what the root itself is a part of."""
    if root is not None:
        span_id = trace.get_current_span(here).get_span_context().span_id if here else 0
        if span_id in (0, root.parent_span_id):
            return Context({**here, SPAN_KEY: root.span})
    return here


def below_step(step: "Step", here: Context) -> Context:
    """`here`, with the span of `step` as the current one where there is none, or only the one that the step began in.

    That is where a framework says what something is a part of, and nothing made that current: runs may be generators.
    """
    current = here.get(SPAN_KEY)
    if current is None or current is step.began_in:
        return Context({**here, SPAN_KEY: step.shown()})
    return here


class Step:
    """One event with a duration, from its start to its single end.

    Attributes:
        event: The event.
        place: Where it began.
        placed: The window in which it lies.
        done: Whether it has ended.
        span: Its span, or what `beside` has in its place.
        beside: Where another instrumentor may have a span of the same call: which of the two it is.
        attempts: How often the call was tried.
        calls: Those of the agent run that it is or in which it lies, if in any.
        began_in: The span that was current where it began.
    """

    __slots__ = (
        "_capture", "_mono_ns", "attempts", "began_in", "beside", "calls", "done", "event", "place", "placed", "span",
    )  # fmt: skip

    def __init__(
        self,
        capture: Finisher,
        event: Event,
        placed: Placed,
        *,
        place: Place,
        span: Span,
        mono_ns: int,
        calls: Calls | None,
        began_in: Any = None,
    ) -> None:
        self._capture = capture
        self._mono_ns = mono_ns
        self.done = False
        self.attempts = 1
        self.beside: Beside | None = None
        self.event = event
        self.placed = placed
        self.place = place
        self.span = span
        self.calls = calls
        self.began_in = began_in

    def attach(self) -> Any:
        """Makes it the current step and span; give the token to `detach` in the same context."""
        ours: dict[str, Any] = {**context.get_current(), STEP_KEY: self}
        if self.beside is None or not self.beside.foreign:
            ours[SPAN_KEY] = self.span
        return context.attach(Context(ours))

    def shown(self) -> Span:
        """The span that stands for it; its own is started here, if it has not been."""
        if self.beside is not None:
            self.span = self.beside.shown(self.span)
        return self.span

    @property
    def counted_elsewhere(self) -> bool:
        """Whether another instrumentor's metrics count it."""
        return self.beside is not None and self.beside.counted

    @staticmethod
    def detach(token: Any) -> None:
        """Undoes `attach`."""
        context.detach(token)

    def elapsed_ns(self) -> int:
        """Monotonic ns since its start."""
        return time.perf_counter_ns() - self._mono_ns

    def end(self, result: dict[str, Any] | None = None) -> None:
        """Ends it, once; later calls do nothing.

        Args:
            result: Fields known now (see docs/trace-document.md); becomes the event's and must not be changed.
        """
        self._finish(result, None)

    def fail(self, error: BaseException, result: dict[str, Any] | None = None) -> None:
        """Ends it with the error that the caller is about to see."""
        self._finish(result, error)

    def later(self, function: Callable[[], None]) -> None:
        """Calls `function` at the next event or tick of the worker; for callbacks that may run anywhere."""
        self._capture.later(function)

    def _finish(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        if self.done:
            return
        self.done = True
        if self.attempts > 1:
            result = {**(result or {}), "attempts": self.attempts}
        if self.beside is not None and self.beside.may_come_later:
            finish = partial(self._capture.finish, self, result, error, self.elapsed_ns())
            self.later(self.beside.put_off(partial(guard.run, self.event.source, finish)))
        else:
            guard.run(self.event.source, self._capture.finish, self, result, error, self.elapsed_ns())


def counted(event: Event, outer: Step | None, window: Window) -> Calls | None:
    """The calls of the agent run in which `event` begins, it among them. Call it under the lock of the windows.

    A tool call directly inside another is how that one is made (a framework's tool that calls an MCP server), and one
    that is served here is its client's.
    """
    kind = event.kind
    if kind is _AGENT_RUN:
        return Calls()
    calls = (outer.calls if outer is not None else None) or window.session.calls
    if calls is not None:
        if kind is _LLM_CALL:
            calls.inference += 1
        elif kind is _TOOL_CALL and not event.fields.get("served"):
            calls.tools += outer is None or outer.event.kind is not _TOOL_CALL
    return calls


def type_name(error: BaseException) -> str:
    """Qualified name of the error's type, as OpenTelemetry's `error.type` wants it."""
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def message_of(error: BaseException) -> str | None:
    """The error's text, bounded; `None` where its `__str__` fails."""
    return guard.run("capture", lambda: str(error)[:20_000])
