"""What a patch may call.

A patch maps a library's calls to these functions and nothing more; where an event belongs, what may be kept and how
spans look is decided below. Every function returns at once, never raises and never blocks; those that begin a step
return `None` where nothing is captured, and `call`/`acall` then run the bare call.

A typical wrapper::

    def _read(wrapped, instance, args, kwargs):
        step = guard.run("amfs", _begin_read, instance, args, kwargs)     # capture.begin(...)
        return capture.call(step, wrapped, args, kwargs, _end_read)       # _end_read(step, result): step.end(...)
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from opentelemetry import context

from amfs_otel import guard
from amfs_otel.capture import foreign
from amfs_otel.capture.ambient import STEP_KEY, SUPPRESS, current_run, explicit_session, last_memory
from amfs_otel.capture.announced import AnnouncedCall
from amfs_otel.capture.content import name, snapshot, stop_sequences
from amfs_otel.capture.requests import begin_request, current_request, enter_request, request_of_span
from amfs_otel.capture.runtime import Capture
from amfs_otel.capture.sessions import Request, Session
from amfs_otel.capture.steps import Step
from amfs_otel.model import ClosedBy, Deferred, Kind

__all__ = [
    "AnnouncedCall",
    "Capture",
    "ClosedBy",
    "Deferred",
    "Kind",
    "Request",
    "Session",
    "Step",
    "acall",
    "active",
    "announce",
    "begin",
    "begin_request",
    "call",
    "close_later",
    "close_session",
    "commit",
    "current",
    "current_request",
    "current_step",
    "end_request",
    "end_request_later",
    "enter_request",
    "explained",
    "explicit_session",
    "handle_session",
    "has_window",
    "inside",
    "install",
    "instant",
    "last_memory",
    "name",
    "pause",
    "request_of_span",
    "run",
    "saw_span",
    "set_explainer",
    "snapshot",
    "stop_sequences",
    "uninstall",
]

_T = TypeVar("_T")

_installed: Capture | None = None
_explainer: Callable[[str], dict[str, Any] | None] | None = None


def install(capture: Capture) -> None:
    """Makes `capture` the one that patches report to."""
    global _installed  # noqa: PLW0603  one process has one capture; patches find it here
    _installed = capture
    foreign.watch()


def uninstall() -> None:
    """Stops capturing; patches become transparent."""
    global _installed  # noqa: PLW0603  see `install`
    _installed = None


def current() -> Capture | None:
    """The installed capture, suppressed or not."""
    return _installed


def active() -> Capture | None:
    """The installed capture, or `None` where OpenTelemetry's context suppresses instrumentation."""
    return None if context.get_current().get(SUPPRESS) else _installed


def begin(
    kind: Kind,
    source: str,
    fields: dict[str, Any],
    *,
    memory: Session | None = None,
    inside: Step | None = None,
) -> Step | None:
    """Begins a step.

    Args:
        kind: What it is; `llm_call` and `embeddings` need the fields `operation` and `provider`, `tool_call` needs
            `tool_name`.
        source: Name of the library that it is seen in.
        fields: What is known now (docs/trace-document.md). The dict becomes ours; its values must not be mutated
            afterwards: use `snapshot` for lists and dicts that the application holds.
        memory: The session of the AMFS tracker, for AMFS events.
        inside: The step that it is a part of, where a framework knows better than the context.
    """
    capture = active()
    if capture is None or guard.is_off(source):
        return None
    return guard.run(source, capture.begin, kind, source, fields, memory, inside=inside)


def announce(source: str, fields: Callable[[], dict[str, Any]], *, inside: Step | None = None) -> AnnouncedCall | None:
    """Announces a model call that a client below may report too; its `end` makes it an event where none did.

    Args:
        source: Name of the framework.
        fields: Makes the fields known at the start; called, at the end of the call, only where they are needed.
        inside: The framework's step that it is a part of.
    """
    capture = active()
    if capture is None or guard.is_off(source):
        return None
    call = guard.run(source, AnnouncedCall, capture, source, fields, inside)
    if foreign.watched and call is not None:
        guard.run("spans", foreign.announced, call)
    return call


def instant(
    kind: Kind,
    source: str,
    fields: dict[str, Any],
    *,
    memory: Session | None = None,
    start_ns: int = 0,
    inside: Step | None = None,
    error: BaseException | None = None,
) -> None:
    """Reports something without a duration of its own, or that the application reports after the fact.

    Args:
        kind: What it is.
        source: Name of the library that it is seen in.
        fields: All that is known.
        memory: The session of the AMFS tracker, for AMFS events.
        start_ns: When it began, where that is not now.
        inside: The step that it is a part of, where that is not the current one.
        error: The error that the caller is about to see.
    """
    capture = active()
    if capture is not None and not guard.is_off(source):
        guard.run(source, capture.instant, kind, source, fields, memory, start_ns=start_ns, inside=inside, error=error)


def saw_span(span: Any) -> None:
    """A span has been started here, maybe another instrumentor's of a model call; see `capture.foreign`."""
    if active() is not None:
        foreign.started(span)


def commit(
    source: str,
    fields: dict[str, Any],
    changes: list[dict[str, Any]],
    *,
    memory: Session | None = None,
    start_ns: int = 0,
    step: Step | None = None,
) -> None:
    """Reports an outcome; see `Capture.commit`."""
    capture = active()
    if capture is not None:
        guard.run(source, capture.commit, source, fields, changes, memory, start_ns=start_ns, step=step)


def call(
    step: Step | None,
    wrapped: Callable[..., _T],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    finish: Callable[[Step, Any], None],
) -> _T:
    """Runs the application's call inside `step`; its result and its exception pass through untouched.

    Args:
        step: From `begin`; `None` runs the bare call.
        wrapped: The application's callable.
        args: Its arguments.
        kwargs: Its keyword arguments.
        finish: Called with the step and the result. It ends the step, or hands it to a stream that will; it must not
            change the result.
    """
    if step is None:
        return wrapped(*args, **kwargs)
    token = step.attach()
    try:
        result = wrapped(*args, **kwargs)
    except BaseException as error:
        step.detach(token)
        step.fail(error)
        raise
    step.detach(token)
    _finished(step, result, finish)
    return result


async def acall(
    step: Step | None,
    wrapped: Callable[..., Coroutine[Any, Any, _T]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    finish: Callable[[Step, Any], None],
) -> _T:
    """`call` for a coroutine function."""
    if step is None:
        return await wrapped(*args, **kwargs)
    token = step.attach()
    try:
        result = await wrapped(*args, **kwargs)
    except BaseException as error:
        step.detach(token)
        step.fail(error)
        raise
    step.detach(token)
    _finished(step, result, finish)
    return result


def _finished(step: Step, result: Any, finish: Callable[[Step, Any], None]) -> None:
    try:
        finish(step, result)
    except Exception as error:  # noqa: BLE001  the guard's rule, without a second call on the hot path
        guard.failed(step.event.source, error)
        step.end()


def inside(source: str, kinds: frozenset[Kind]) -> bool:
    """Whether the caller is inside a step of `source` of one of `kinds` (a nested public call is not an event)."""
    step = current_step(source)
    return step is not None and step.event.kind in kinds


def current_step(source: str) -> Step | None:
    """The innermost open step here, if it is one of `source`."""
    step = context.get_current().get(STEP_KEY)
    return step if isinstance(step, Step) and not step.done and step.event.source == source else None


# -- sessions ------------------------------------------------------------------------------------------------------


def handle_session(opened_by: str, agent: str, session_id: str | None) -> Session:
    """A session for a memory handle: windows open at its first event, whatever the context."""
    return Session(opened_by, agent, session_id)


def close_session(session: Session, cause: ClosedBy) -> None:
    """Closes the open window of `session`, if there is one."""
    if _installed is not None:
        guard.run("capture", _installed.windows.close_session, session, cause)


def close_later(session: Session, cause: ClosedBy) -> None:
    """`close_session` at the next event or tick of the worker; for callbacks that may run anywhere."""
    if _installed is not None:
        _installed.windows.close_later(session, cause)


def has_window(memory: Session | None = None) -> bool:
    """Whether an event here would fall into a window that is already open."""
    capture = active()
    if capture is None:
        return False
    with capture.windows.lock:
        return capture.existing(capture.place(), memory) is not None


def set_explainer(function: Callable[[str], dict[str, Any] | None] | None) -> None:
    """Installs what answers `explained`: outcome ref → `explain --json`'s object, `None` where nothing is known."""
    global _explainer  # noqa: PLW0603  see `install`
    _explainer = function


def explained(outcome_ref: str) -> dict[str, Any] | None:
    """What `amfs_otel.explain` knows about `outcome_ref`, where the settings let us answer for the library."""
    capture = active()
    if capture is None or _explainer is None or not capture.settings.answer_explain:
        return None
    return guard.run("capture", _explainer, outcome_ref)


class run:  # noqa: N801  reads as a statement: `with capture.run(...)`
    """A framework's root run as a window, or a plain step where it is not a root.

    Args:
        source: Name of the framework.
        agent: Name of the agent that runs.
        session_id: The framework's own id of the conversation or thread.
        fields: Further fields of the `agent_run` event.
        inside: The step that it is a part of, where the framework knows one: then it is no root.
    """

    __slots__ = ("_session", "step")

    def __init__(
        self,
        source: str,
        agent: str,
        session_id: str | None,
        fields: dict[str, Any] | None = None,
        *,
        inside: Step | None = None,
    ) -> None:
        self._session: Session | None = None
        self.step: Step | None = None
        capture = active()
        if capture is not None and not guard.is_off(source):
            guard.run(source, self._begin, capture, Session(source, agent, session_id), fields or {}, inside)

    def _begin(self, capture: Capture, session: Session, fields: dict[str, Any], inside: Step | None) -> None:
        source, fields = session.opened_by, {"agent_name": session.agent, **fields}
        if inside is None and self._is_root(capture):
            self._session = session
            current_run.set(session)
            self.step = capture.begin_run(source, fields, session)
        else:
            self.step = capture.begin(Kind.AGENT_RUN, source, fields, inside=inside)

    @staticmethod
    def _is_root(capture: Capture) -> bool:
        """Whether no open session, run or memory handle's window is to be found here (rules 1 to 3)."""
        capture.windows.close_due()  # a run that was abandoned here is over
        for outer in (explicit_session.get(), current_run.get()):
            if outer is not None and not outer.ended:
                return False
        memory = capture.memory_session(capture.place())
        return memory is None or memory.window is None or memory.window.events == 0

    def end(
        self, result: dict[str, Any] | None = None, error: BaseException | None = None, *, paused: bool = False
    ) -> None:
        """Ends the run and, where it was a root, its window."""
        if self.step is not None:
            if error is None:
                self.step.end(result)
            else:
                self.step.fail(error, result)
        if paused and self._session is not None and self._session.window is not None:
            self._session.window.paused = True
        if self._session is not None:
            close_session(self._session, ClosedBy.RUN_END)


def pause() -> None:
    """The open run of this context stops here, to be resumed later: its trace will say `paused`."""
    session = current_run.get()
    if session is not None and not session.ended and session.window is not None:
        session.window.paused = True


def end_request(request: Request) -> None:
    """Ends a request; its implicit window closes with it. Safe from any context."""
    request.open = False
    if _installed is not None:
        guard.run("capture", _installed.windows.close_request, request)


def end_request_later(request: Request) -> None:
    """`end_request` that closes the window at the next event or tick of the worker; for callbacks run anywhere."""
    request.open = False
    capture = _installed
    if capture is not None:
        capture.windows.later(lambda: capture.windows.close_request(request))
