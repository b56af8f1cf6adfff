"""Where the caller is: the context variables and keys that placing looks at."""

import sys
import threading
import weakref
from collections.abc import Hashable
from contextvars import ContextVar

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context

from amfs_otel.capture.requests import open_request
from amfs_otel.capture.sessions import Place, Session

SUPPRESS = "suppress_instrumentation"
"""OpenTelemetry's context key by which exporters and our worker keep themselves out of traces."""

STEP_KEY = context.create_key("amfs_otel-step")
"""The step of ours that is current in an OpenTelemetry context."""

SPAN_KEY = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))
"""OpenTelemetry's own key of the current span: a context is made at once with all that is to be set in it."""

BAGGAGE_SESSION = "amfs.session.id"

explicit_session: ContextVar[Session | None] = ContextVar("amfs_otel_session", default=None)
current_run: ContextVar[Session | None] = ContextVar("amfs_otel_run", default=None)
last_memory: ContextVar[tuple[Session, int] | None] = ContextVar("amfs_otel_memory", default=None)


def place_here(here: Context) -> Place:
    """Where the caller is, by `here`, the current OpenTelemetry context, its request mark, task and thread."""
    if not here:
        return Place(0, 0, _context_key(0), open_request())
    ids = trace.get_current_span(here).get_span_context()
    claimed = baggage.get_baggage(BAGGAGE_SESSION, here)
    return Place(
        ids.trace_id,
        ids.span_id,
        _context_key(ids.trace_id),
        open_request(),
        claimed if isinstance(claimed, str) else None,
    )


def _context_key(trace_id: int) -> Hashable:
    """Key of "the same context": OpenTelemetry trace, else asyncio task, else thread."""
    if trace_id:
        return trace_id
    asyncio = sys.modules.get("asyncio")
    running = getattr(asyncio, "_get_running_loop", None)  # missing while another thread imports asyncio
    loop = running() if running is not None else None
    if asyncio is not None and loop is not None:
        task = asyncio.current_task(loop)  # without it, it is looked up once more
        if task is not None:
            # An id() would be reused by the next request's task; a reference equals no other task's. It keeps the hash
            # that it is asked for while the task lives.
            key = weakref.ref(task)
            hash(key)
            return key
    return ("thread", threading.get_ident())
