"""Attaching to tracer providers: request boundaries, and our place in the order of exit.

The processor goes to the global provider and to every provider that is made later (a user's second provider is
invisible otherwise). It looks at SERVER and CONSUMER spans, and where instrumentors of other vendors are loaded at the
start of theirs; its `shutdown` means flush, never stop. Until the
pipeline has been started by the import of a library that we patch, it does nothing, and nothing is imported for it.
"""

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import wrapt
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind

from amfs_otel import guard
from amfs_otel.semconv import SCOPE

if TYPE_CHECKING:
    from amfs_otel.capture import Request
    from amfs_otel.pipeline import Pipeline

_lock = threading.Lock()
_attached: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
"""By id: a provider need not be hashable."""
_wrapped = False

_REQUESTS = frozenset({SpanKind.SERVER, SpanKind.CONSUMER})  # a member is slow to find in its enumeration


class RequestBoundaries(SpanProcessor):
    """Marks a request for each SERVER or CONSUMER span, unless a hook has marked it, and ends it with the span."""

    def __init__(self, provider: Any = None) -> None:
        self._provider = weakref.ref(provider) if provider is not None else lambda: None
        self._requests: dict[int, Request] = {}
        self.saw_foreign_spans = False
        """Whether the application has spans of its own (see `pipeline.dead_collector`)."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002  the SDK's signature
        """Marks a request in the caller's context."""
        if span.kind in _REQUESTS and _pipeline() is not None:
            guard.run("boundary", self._begin, span)
        foreign = sys.modules.get("amfs_otel.capture.foreign")
        if foreign is not None and foreign.watched:
            guard.run("spans", self._look_at, span)

    def _look_at(self, span: Span) -> None:
        """Tells the capture of a span of another instrumentor that goes where ours go: elsewhere it stands for none."""
        from amfs_otel import capture

        running = _pipeline()
        own = running.tracer_provider if running is not None else None
        own = own if own is not None else trace.get_tracer_provider()
        # A provider that is not the SDK's own hands our spans on to one that we do not know.
        if self._provider() is own or not isinstance(own, TracerProvider):
            capture.saw_span(span)

    def _begin(self, span: Span) -> None:
        from amfs_otel import capture

        span_id = span.get_span_context().span_id
        request = capture.request_of_span(span_id)
        if request is not None:
            self._requests[span_id] = request

    def on_end(self, span: ReadableSpan) -> None:
        """Ends the request; its implicit window closes with it."""
        if not self.saw_foreign_spans:
            self.saw_foreign_spans = getattr(span.instrumentation_scope, "name", None) != SCOPE
        if span.kind in _REQUESTS and span.context is not None:
            request = self._requests.pop(span.context.span_id, None)
            if request is not None:
                from amfs_otel import capture

                capture.end_request(request)

    def shutdown(self) -> None:
        """Flushes: the provider ends, the process may go on."""
        self.force_flush()

    def force_flush(self, timeout_millis: int = 1000) -> bool:
        """Makes everything captured so far durable."""
        running = _pipeline()
        return running is None or running.spool_now(timeout_millis / 1000)


def attach(tracer_provider: Any = None) -> None:
    """Attaches to `tracer_provider` (default: the global one) and to every provider made later. Idempotent."""
    global _wrapped  # noqa: PLW0603  the class is wrapped once per process
    provider = tracer_provider if tracer_provider is not None else trace.get_tracer_provider()
    _attach_to(provider)
    with _lock:
        if _wrapped:
            return
        _wrapped = True
    wrapt.wrap_function_wrapper("opentelemetry.sdk.trace", "TracerProvider.__init__", _made)


def _made(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrapped(*args, **kwargs)
    guard.run("attach", _attach_to, instance)


def _attach_to(provider: Any) -> None:
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        return
    with _lock:
        if _attached.get(id(provider)) is provider:
            return
        _attached[id(provider)] = provider
    add(RequestBoundaries(provider))
    running = _pipeline()
    if running is not None:
        # Registered again, so that at exit our root spans end before the provider shuts down.
        running.exit.register()


def _pipeline() -> "Pipeline | None":
    """The running pipeline, without importing it."""
    pipeline = sys.modules.get("amfs_otel.pipeline")
    return pipeline.current() if pipeline is not None else None
