"""The recording half of the Python API: what no patch sees.

Everything here is safe to call where nothing is captured: recording functions then do nothing.
"""

import functools
import inspect
import logging
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from opentelemetry import context, trace

from amfs_otel import _bootstrap, capture, guard, pipeline
from amfs_otel.capture import Kind, Session, Step, explicit_session
from amfs_otel.model import ClosedBy

__all__ = ["checkpoint", "flush", "instrument", "outcome", "record_context", "record_decision", "session", "tool"]

SOURCE = "amfs_otel"

_bootstrap.start_if_armed()

_P = ParamSpec("_P")
_R = TypeVar("_R")


def instrument(*libraries: str, tracer_provider: trace.TracerProvider | None = None) -> bool:
    """Starts capturing in this process: notebooks, servers, programs without `opentelemetry-instrument`.

    Idempotent, also beside the command. Never sets a tracer provider.

    Args:
        *libraries: Names of the libraries to patch (`amfs`, `openai`, …); all when none is named.
        tracer_provider: Provider for our spans; default: the global one.

    Returns:
        Whether anything is captured (`False` where `AMFS_OTEL_DISABLED` is set).

    Raises:
        ValueError: A library is unknown.
    """
    return _bootstrap.start(tracer_provider, libraries)


@contextmanager
def session(agent: str | None = None, id: str | None = None) -> Generator[Session]:  # noqa: A002  the public name
    """One run of one agent: everything inside belongs to its decision trace.

    A commit inside closes the window, not the session. The end of the block closes what is open.

    Args:
        agent: Name of the agent; default: `AMFS_OTEL_AGENT_ID`, else the service's or program's name.
        id: The application's own id of the session or conversation.
    """
    running = capture.active()
    if running is None:
        yield Session("session", capture.name(agent) or "", capture.name(id))
        return
    opened = Session("session", capture.name(agent) or running.settings.default_agent, capture.name(id))
    attached = guard.run(SOURCE, _root_context, running, opened)
    token = explicit_session.set(opened)
    span_token = context.attach(attached) if attached is not None else None
    try:
        yield opened
    finally:
        if span_token is not None:
            context.detach(span_token)
        explicit_session.reset(token)
        capture.close_session(opened, ClosedBy.SESSION_END)


def _root_context(running: capture.Capture, opened: Session) -> context.Context | None:
    """Opens the session's window and gives a context in which its root span is current."""
    place = running.place()
    with running.windows.lock:
        window = running.windows.window_of(opened, place)
        root = running.root_of(window, time.time_ns())
    return trace.set_span_in_context(root.span) if root is not None else None


def record_context(label: str, summary: Any, source: str | None = None) -> None:
    """Records an external input of the decision that no patch sees.

    Args:
        label: Short name, such as `pagerduty-incidents`.
        summary: What was found; a text or any JSON-able value.
        source: Where from, such as `PagerDuty API`.
    """
    fields = {"label": label, "summary": guard.run(SOURCE, capture.snapshot, summary), "automatic": False}
    capture.instant(Kind.CONTEXT, SOURCE, fields if source is None else {**fields, "source_name": source})


def record_decision(
    summary: str, alternatives: Iterable[str] = (), inputs: Iterable[str] = (), confidence: float | None = None
) -> None:
    """Records what was decided and why, in the agent's own words.

    Args:
        summary: The decision.
        alternatives: What was not chosen.
        inputs: Ids of what it rests on: memory entries, tool call ids, documents.
        confidence: 0 to 1.
    """
    fields: dict[str, Any] = {
        "summary": guard.run(SOURCE, capture.snapshot, summary),
        "alternatives": guard.run(SOURCE, list, alternatives) or [],
        "inputs": guard.run(SOURCE, list, inputs) or [],
    }
    capture.instant(Kind.STATEMENT, SOURCE, fields if confidence is None else {**fields, "confidence": confidence})


def outcome(ref: str, type: str, decision_summary: str | None = None) -> None:  # noqa: A002  the public name
    """Says how the decision ended; closes its trace, or attaches to the earlier decision with that ref.

    Without a ref or without a type nothing is recorded: one warning says so, and the trace stays open.

    Args:
        ref: What the outcome is known by, such as `DEP-500`.
        type: `success`, `minor_failure`, `failure`, `critical_failure`, or a word of the application's own.
        decision_summary: One sentence for the reader.
    """
    kind = guard.run(SOURCE, getattr, type, "value", type)
    fields: dict[str, Any] = {"outcome_ref": ref, "outcome_type": capture.name(kind)}
    if _says_nothing("ref", capture.name(ref)) or _says_nothing("type", fields["outcome_type"]):
        return
    if decision_summary is not None:
        fields["decision_summary"] = decision_summary
    capture.commit(SOURCE, fields, [])


def _says_nothing(field: str, given: str | None) -> bool:
    """Whether a word of an outcome is missing, which is said once: the record would be for ever, and judge nothing."""
    missing = not (given or "").strip()
    if missing and capture.active() is not None:
        guard.once(
            f"outcome:{field}",
            logging.WARNING,
            "amfs-otel: an outcome without a %s was not recorded and its trace stays open; outcome() needs both a ref "
            "and a type",
            field,
        )
    return missing


def checkpoint() -> None:
    """Closes and signs what is open here; what follows continues it in a new trace."""
    running = capture.active()
    if running is not None:
        guard.run(SOURCE, running.checkpoint)


def tool(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: each call of the function is a tool call, with its arguments and result (by the content policy).

    Args:
        name: Name of the tool.
    """

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: _P.args, **kwargs: _P.kwargs) -> Any:
                return await capture.acall(_tool_step(name, args, kwargs), function, args, kwargs, _tool_end)

            return cast("Callable[_P, _R]", awaited)

        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return capture.call(_tool_step(name, args, kwargs), function, args, kwargs, _tool_end)

        return called

    return decorated


def _tool_step(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step | None:
    if capture.active() is None:
        return None
    given: Any = {**kwargs, "args": list(args)} if args else kwargs
    fields = {
        "tool_name": name,
        "tool_type": "function",
        "observed": "call",
        "arguments": guard.run(SOURCE, capture.snapshot, given),
    }
    return capture.begin(Kind.TOOL_CALL, SOURCE, fields)


def _tool_end(step: Step, result: Any) -> None:
    step.end({"success": True} if result is None else {"success": True, "result": capture.snapshot(result)})


def flush(timeout: float = 5.0) -> bool:
    """Makes everything captured so far durable; with a DSN also delivers it.

    Args:
        timeout: Seconds.

    Returns:
        Whether that was done in time.
    """
    running = pipeline.current()
    return running is None or running.flush(timeout)
