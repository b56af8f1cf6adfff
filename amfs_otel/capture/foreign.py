"""Model calls of which the instrumentor of another vendor makes a span, too: one span and one set of counts for both.

Whose span stands for a call is the first of these: that of an instrumentor which began before our step, which begins
while our step runs, or ours. The event is always ours and whole; where a span of another stands for the call, the event
bears its ids, it bears our record id, and we make neither a span nor, where its instrumentor has metrics, those. Nobody
is told to step aside: no span of others is lost.

Other instrumentors are known by their modules. In a process that has loaded none, `watched` is empty and all that is
paid is to look at it. Where one is loaded, our own span is started at the end of the call, because only then it is
known that there is no other; what the HTTP client shows then lies beside our span, not below.

What is looked at is the start of spans, in the caller's context (`started`). Read: OpenTelemetry's genai instrumentors
1.3b0, whose context key for the same purpose takes a type of their own and is heeded by themselves alone; OpenInference
0.1.66 (openai), 3.1.0 (anthropic) and 0.1.80 (langchain); OpenLLMetry 0.62.4.
"""

import inspect
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import wrapt
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from amfs_otel import semconv
from amfs_otel.capture.ambient import STEP_KEY
from amfs_otel.capture.announced import AnnouncedCall
from amfs_otel.capture.steps import Step
from amfs_otel.libraries import LIBRARIES, Instrumentor, Library
from amfs_otel.model import Kind

_LIBRARY_OF: dict[str, Library] = {by.module: library for library in LIBRARIES for by in library.beside}
"""By the module of the instrumentor."""

INSTRUMENTORS: tuple[Instrumentor, ...] = tuple(by for library in LIBRARIES for by in library.beside)
"""All that are known."""

MODEL_KINDS = (Kind.LLM_CALL, Kind.EMBEDDINGS)
_MODEL_OPERATIONS = frozenset({"chat", "embeddings", "generate_content", "text_completion"})
_OPENINFERENCE_KIND = "openinference.span.kind"
_OPENINFERENCE_KINDS = frozenset({"EMBEDDING", "LLM"})
_CALLBACKS = {
    "on_chat_model_start": True,
    "on_llm_start": True,
    "on_chain_start": False,
    "on_retriever_start": False,
    "on_tool_start": False,
}
"""What a framework calls at the start of a run, and whether that is one of a model."""
_FRAMES = 40

watched: set[str] = set()
"""Our patches whose library, or what calls it, is instrumented by another, too."""

_afterwards: set[tuple[str, str]] = set()
"""Patch and API of which another makes spans only after the call."""

_lock = threading.Lock()
_hooked = False
_owners: dict[str, dict[str, dict[str, int]]] = {}
_scopes: dict[str, Instrumentor | None] = {}
_newest: ContextVar["ForeignSpan | None"] = ContextVar("amfs_otel_foreign", default=None)
_awaiting: ContextVar[Step | None] = ContextVar("amfs_otel_awaiting", default=None)


class ForeignSpan:
    """Another's span of a model call.

    Attributes:
        span: The span.
        scope: Name of its scope.
        by: Who made it.
        library: What that one instruments.
        parent: What it, and every span of a model call around it, is a part of.
        claimed: Whether an event is known for which it stands.
        late: Whether it is one of those that begin after the call, and that no metrics of theirs count.
    """

    __slots__ = ("by", "claimed", "late", "library", "parent", "scope", "span")

    def __init__(self, span: Any, by: Instrumentor, scope: str) -> None:
        self.span, self.by, self.scope = span, by, scope
        self.library = _LIBRARY_OF[by.module]
        self.claimed = False
        self.late = by.afterwards is not None and span.name == by.afterwards[1]
        self.parent: SpanContext | None = span.parent
        around = _newest.get()
        if around is not None and self.parent is not None and self.parent.span_id == around.ids.span_id:
            self.parent = around.parent

    @property
    def ids(self) -> SpanContext:
        """Its ids."""
        return self.span.get_span_context()

    def outside(self, here: Context) -> Context:
        """`here` without it, if it is the current span: where the call was made."""
        if trace.get_current_span(here).get_span_context().span_id != self.ids.span_id:
            return here
        parent = trace.INVALID_SPAN if self.parent is None else trace.NonRecordingSpan(self.parent)
        return trace.set_span_in_context(parent, here)


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603  another thread of the parent may have held it
    _lock = threading.Lock()
    _owners.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


# -- who is there --------------------------------------------------------------------------------------------------


def watch() -> None:
    """Finds the instrumentors of others that are loaded, and has those that will be found as they are imported."""
    global _hooked  # noqa: PLW0603  a post-import hook cannot be taken back
    watched.clear()
    _afterwards.clear()
    _owners.clear()
    for by in INSTRUMENTORS:
        if by.module in sys.modules:
            _loaded(by, None)
        if not _hooked:
            wrapt.register_post_import_hook(partial(_loaded, by), by.module)
    _hooked = True


def _loaded(by: Instrumentor, _module: Any) -> None:
    library = _LIBRARY_OF[by.module].name
    watched.add(library)
    if by.afterwards is not None:
        _afterwards.add((library, by.afterwards[0]))


def instrumentor_of(scope: str) -> Instrumentor | None:
    """Whose scope it is, if it is one of `INSTRUMENTORS`; the longest name counts."""
    if scope not in _scopes:
        found = [by for by in INSTRUMENTORS if scope == by.module or scope.startswith(f"{by.module}.")]
        _scopes[scope] = max(found, key=lambda by: len(by.module), default=None)
    return _scopes[scope]


def counts(source: str) -> bool:
    """Whether the metrics of another instrumentor that is at work count the calls of `source`."""
    others = (by for library in LIBRARIES if library.name == source for by in library.beside)
    return any(by.metrics and _is_at_work(by) for by in others)


def _is_at_work(by: Instrumentor) -> bool:
    """Whether an instrumentor of that module instruments now, by the one instance that its base class keeps."""
    members = vars(sys.modules[by.module]).values() if by.module in sys.modules else ()
    made = (vars(kind).get("_instance") for kind in members if isinstance(kind, type))
    return any(getattr(one, "_is_instrumented_by_opentelemetry", False) is True for one in made)


# -- what they make ------------------------------------------------------------------------------------------------


def started(span: Any) -> None:
    """A span has been started; to be called in the context in which that was done.

    It stands for the open step of ours, if that is a model call, else for the call that is announced here. If there is
    none, it is kept for the one that will begin or be announced in this context.
    """
    scope = getattr(span.instrumentation_scope, "name", "")
    by = instrumentor_of(scope)
    if by is None or not _is_of_a_model(span, by):
        return
    newest = _newest.get()
    if newest is not None and newest.span is span:
        return  # a provider that stands for another tells of it, too
    found = ForeignSpan(span, by, scope)
    _newest.set(found)
    step = context.get_value(STEP_KEY)
    if isinstance(step, Step) and not step.done and step.beside is not None:
        _stand_for(step, step.beside, found)
        return
    step = _awaiting.get() if found.late else None
    beside = step.beside if step is not None and span.start_time <= step.event.start_ns else None
    if step is not None and beside is not None and beside.may_come_later:
        _stand_for(step, beside, found)
        beside.resume()
        return
    call = AnnouncedCall.here() if found.library.framework else None
    if call is not None and call.foreign is None and not call.claimed:
        call.foreign, found.claimed = found, True


def _is_of_a_model(span: Any, by: Instrumentor) -> bool:
    given: Mapping[str, Any] = span.attributes or {}
    operation, kind = given.get(semconv.GEN_AI_OPERATION_NAME), given.get(_OPENINFERENCE_KIND)
    if operation is not None:
        return operation in _MODEL_OPERATIONS
    if kind is not None:
        return kind in _OPENINFERENCE_KINDS
    return not _LIBRARY_OF[by.module].framework or _for_a_model(inspect.currentframe())


def _for_a_model(frame: Any) -> bool:
    """Whether a span is started for the run of a model: nothing but the callback in which that happens says it."""
    for _ in range(_FRAMES):
        if frame is None:
            return False
        found = _CALLBACKS.get(frame.f_code.co_name)
        if found is not None:
            return found
        frame = frame.f_back
    return False


# -- what stands for a call ----------------------------------------------------------------------------------------


def announced(call: AnnouncedCall) -> None:
    """A framework's call has just been announced: the span that another made of it before is its."""
    found = _newest.get()
    if found is not None and found.library.framework and not found.claimed and found.span.is_recording():
        call.foreign, found.claimed = found, True


def standing_for(kind: Kind, source: str, call: AnnouncedCall | None) -> ForeignSpan | None:
    """The span that stands for a call of `source` that begins here, if another has begun one.

    Args:
        kind: One of `MODEL_KINDS`.
        source: Name of the library.
        call: The announced call that the call is made for, or that it is.
    """
    found = _newest.get()
    if found is not None and (found.claimed or not found.span.is_recording()):
        found = None
    unannounced = call is None and kind is Kind.LLM_CALL
    if found is not None and (found.library.name == source or (unannounced and found.library.framework)):
        return found
    if call is None:
        return None
    found, call.foreign = call.foreign, None
    return found


class Beside:
    """What a step has in place of its own span, where another instrumentor may have one of the same call.

    Attributes:
        foreign: Another's span that stands for the call.
        counted: Whether another's metrics count it.
        awaits: Whether another may begin its span only after the call.

    Args:
        start: Starts the step's own span.
    """

    __slots__ = ("_finish", "_start", "awaits", "counted", "foreign")

    def __init__(self, start: Callable[[], trace.Span]) -> None:
        self._start: Callable[[], trace.Span] | None = start
        self._finish: Callable[[], None] | None = None
        self.foreign: ForeignSpan | None = None
        self.counted = False
        self.awaits = False

    def shown(self, span: trace.Span) -> trace.Span:
        """The span that stands for the call: `span`, or ours, started here."""
        start, self._start = self._start, None
        return span if start is None else start()

    def taken_by(self, found: ForeignSpan) -> bool:
        """Has `found` stand for the call, unless ours does, or another's of the same library."""
        found.claimed = True
        self.counted = self.counted or (found.by.metrics and not found.late)
        if self._start is None and (self.foreign is None or not self.foreign.library.framework):
            return False
        self.foreign, self._start = found, None
        return True

    @property
    def may_come_later(self) -> bool:
        """Whether nobody's span stands for the call yet, and another's may begin after it."""
        return self.awaits and self._start is not None

    def put_off(self, finish: Callable[[], None]) -> Callable[[], None]:
        """Keeps what ends the step until another's span begins; gives what ends it if none does."""
        self._finish = finish
        return self.resume

    def resume(self) -> None:
        """Ends the step, if that was put off."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()


def stand_beside(step: Step, theirs: ForeignSpan | None) -> None:
    """Has `theirs`, from `standing_for`, stand for `step`, which begins here; else looks out for one."""
    assert step.beside is not None
    if theirs is not None:
        _stand_for(step, step.beside, theirs)
    elif (step.event.source, str(step.event.fields.get("api_type"))) in _afterwards:
        step.beside.awaits = True
        _awaiting.set(step)


def _stand_for(step: Step, beside: Beside, found: ForeignSpan) -> None:
    if beside.taken_by(found):
        step.span, ids = found.span, found.ids
        step.event.trace_id, step.event.span_id = ids.trace_id, ids.span_id
        _tell(step, found)


def _tell(step: Step, found: ForeignSpan) -> None:
    """Puts the ids of the record and the session of `step` onto `found`, if that still records."""
    if found.span.is_recording():
        window = step.placed.window
        found.span.set_attributes(
            {semconv.AMFS_RECORD_ID: window.record_id, semconv.AMFS_SESSION_ID: window.session.id}
        )


def ended(step: Step) -> bool:
    """Counts whose span stands for `step`, a model call that has ended; whether it is another's."""
    event, found = step.event, step.beside.foreign if step.beside is not None else None
    if found is not None:
        _tell(step, found)  # the window may have changed since
    operation = str(event.fields.get("api_type") or event.fields.get("operation"))
    scope = semconv.SCOPE if found is None else found.scope
    with _lock:
        counted = _owners.setdefault(event.source, {}).setdefault(operation, {})
        counted[scope] = counted.get(scope, 0) + 1
    return found is not None


def owners() -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Whose spans stand for the calls so far: library → operation → scope → calls. Empty where nobody else is."""
    with _lock:
        return {
            source: {operation: dict(scopes) for operation, scopes in operations.items()}
            for source, operations in _owners.items()
        }
