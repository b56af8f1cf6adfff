"""Steps and roots: what is open on the span side."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from opentelemetry import context, trace
from opentelemetry.trace import Span

from amfs_otel import guard
from amfs_otel.capture.ambient import STEP_KEY
from amfs_otel.capture.windows import Place, Placed
from amfs_otel.model import Event


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


class Step:
    """One event with a duration, from its start to its single end."""

    __slots__ = ("_capture", "_done", "_mono_ns", "attempts", "event", "place", "placed", "span")

    def __init__(
        self, capture: Finisher, event: Event, placed: Placed, *, place: Place, span: Span, mono_ns: int
    ) -> None:
        self._capture = capture
        self._mono_ns = mono_ns
        self._done = False
        self.attempts = 1
        self.event = event
        self.placed = placed
        self.place = place
        self.span = span

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done

    def attach(self) -> Any:
        """Makes it the current step and span; give the token to `detach` in the same context."""
        return context.attach(context.set_value(STEP_KEY, self, trace.set_span_in_context(self.span)))

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
        if self._done:
            return
        self._done = True
        if self.attempts > 1:
            result = {**(result or {}), "attempts": self.attempts}
        guard.run(self.event.source, self._capture.finish, self, result, error, self.elapsed_ns())


def type_name(error: BaseException) -> str:
    """Qualified name of the error's type, as OpenTelemetry's `error.type` wants it."""
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def message_of(error: BaseException) -> str | None:
    """The error's text, bounded; `None` where its `__str__` fails."""
    return guard.run("capture", lambda: str(error)[:20_000])
