"""The capture side of one process: resolves windows, starts and ends spans and steps, tells the sink.

Everything here runs on the caller's thread. A patch calls the functions of `amfs_otel.capture`; they find the installed
`Capture` and hand back a `Step`, or `None` where nothing is captured (not installed, disabled, suppressed).
"""

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from amfs_otel import guard, semconv
from amfs_otel.capture import attributes, foreign
from amfs_otel.capture.ambient import SPAN_KEY, current_run, last_memory, place_here
from amfs_otel.capture.announced import AnnouncedCall
from amfs_otel.capture.content import Masker, SpanNames, name
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.placing import Placing
from amfs_otel.capture.sessions import Calls, Place, Session, Window, next_seq
from amfs_otel.capture.span_content import Remembered, content_attributes
from amfs_otel.capture.steps import Root, Step, below_root, below_step, counted, message_of, type_name
from amfs_otel.capture.windows import Windows
from amfs_otel.model import ClosedBy, Event, Kind, RecordKind, Sink
from amfs_otel.settings import Settings

new_id = random.Random().getrandbits  # noqa: S311  ids, not secrets

_LLM_CALL = Kind.LLM_CALL  # a member is slow to find in its enumeration
_NAMES = ("model", "tool_name", "agent_name")
"""Fields that stand in span names and metrics, too."""


class Capture(Placing):
    """What patches report to. One per process; fork makes a new one.

    Args:
        settings: The process's settings.
        sink: Where events go.
        masker: Masks texts that go onto spans.
        tracer: Tracer of the application's provider.
        metrics: The client metrics.
    """

    def __init__(self, settings: Settings, sink: Sink, masker: Masker, tracer: Tracer, metrics: ClientMetrics) -> None:
        super().__init__(settings, Windows(sink, self._end_root))
        self.sink, self.masker = sink, masker
        self.tracer, self.metrics = tracer, metrics
        self.content_on_spans = settings.span_content.on_spans
        self.names = SpanNames(masker)
        self._remembered_texts = Remembered()
        self._inherited = False

    def after_fork_in_child(self) -> None:
        """What is open is the parent's to report; its lock may be held by a thread that does not exist here."""
        self.windows.lock = threading.RLock()
        self._inherited = True

    # -- steps and instants --------------------------------------------------------------------------------------

    def begin(
        self,
        kind: Kind,
        source: str,
        fields: dict[str, Any],
        memory: Session | None = None,
        *,
        inside: Step | None = None,
        announced: AnnouncedCall | None = None,
    ) -> Step:
        """Starts a step: an event with a duration and a span. `announced` is the call that it is the account of."""
        start_ns, mono_ns = time.time_ns(), time.perf_counter_ns()
        if announced is not None:
            start_ns, mono_ns = announced.start_ns, mono_ns - announced.elapsed_ns
        call = announced
        if call is None and kind is _LLM_CALL:
            call = AnnouncedCall.here()
            inside = (call.claim() if call is not None else None) or inside
        here, theirs, late = context.get_current(), None, False
        if foreign.watched and kind in foreign.MODEL_KINDS:
            theirs = guard.run("spans", foreign.standing_for, kind, source, call)
            here = here if theirs is None else theirs.outside(here)
            late = theirs is not None or source in foreign.watched
        outer = inside or self.step_in(here)
        place = place_here(here) if outer is None else outer.place
        event = self._event(kind, source, fields, start_ns, outer)
        if announced is not None:
            event.seq = announced.seq
        with self.windows.lock:
            window, flag = self.resolve(place, memory, inside)
            event.parent_id = event.parent_id or window.run_event_id
            starts = self._parent_span if late else self._start_span
            below = here if inside is None or inside.placed.window is not window else below_step(inside, here)
            span = guard.run("spans", starts, event, window, below) or trace.INVALID_SPAN
            self._own_agent(event, window, memory)
            event.flags = flag
            calls = counted(event, outer, window)
            placed = self.windows.place(window, event, place, provisional=bool(flag), step=True)
        if memory is not None:
            last_memory.set((memory, event.seq))
        began_in = here.get(SPAN_KEY)
        step = Step(self, event, placed, place=place, span=span, mono_ns=mono_ns, calls=calls, began_in=began_in)
        if late:
            step.beside = foreign.Beside(partial(self._started, event, window.root, below))
            guard.run("spans", foreign.stand_beside, step, theirs)
        return step

    def report(self, call: AnnouncedCall, result: dict[str, Any], error: BaseException | None) -> None:
        """The event of an announced model call that no client took over."""
        step = self.begin(Kind.LLM_CALL, call.source, call.fields(), inside=call.inside, announced=call)
        step.end(result) if error is None else step.fail(error, result)

    def begin_run(self, source: str, fields: dict[str, Any], session: Session) -> Step:
        """Starts a framework's root run: its step's span is the root span of the window of `session`."""
        start_ns, mono_ns, here = time.time_ns(), time.perf_counter_ns(), context.get_current()
        outer = self.step_in(here)
        place = place_here(here) if outer is None else outer.place
        event = self._event(Kind.AGENT_RUN, source, fields, start_ns, outer)
        with self.windows.lock:
            window = self.windows.window_of(session, place)
            span = self._started(event, window.root, here)
            span.set_attributes(self._root_attributes(window))
            self._end_root(window, start_ns)
            window.root, window.owns_root = Root(span, window.record_id, place.parent_span_id), False
            window.run_event_id, session.calls = event.id, Calls()
            placed = self.windows.place(window, event, place, provisional=False, step=True)
        began_in = here.get(SPAN_KEY)
        return Step(
            self, event, placed, place=place, span=span, mono_ns=mono_ns, calls=session.calls, began_in=began_in
        )

    def instant(
        self,
        kind: Kind,
        source: str,
        fields: dict[str, Any],
        memory: Session | None = None,
        *,
        start_ns: int = 0,
        inside: Step | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Something without a duration: an event of the window's root span. Arguments: see `capture.instant`."""
        now_ns, here = time.time_ns(), context.get_current()
        outer = inside or self.step_in(here)
        place = place_here(here) if outer is None else outer.place
        event = self._event(kind, source, fields, start_ns or now_ns, outer)
        event.end_ns = now_ns
        if error is not None:
            event.status, event.error_type = "error", type_name(error)
            event.result = {"error_message": message_of(error)}
        with self.windows.lock:
            window, flag = self.resolve(place, memory, inside)
            event.parent_id, event.flags = event.parent_id or window.run_event_id, flag
            self._own_agent(event, window, memory)
            self.put_instant(window, event, place, provisional=bool(flag))
        if memory is not None:
            last_memory.set((memory, event.seq))

    def put_instant(self, window: Window, event: Event, place: Place, *, provisional: bool = False) -> None:
        """Places an ended event and shows it on the window's root span."""
        root = guard.run("spans", self.root_of, window, event.start_ns)
        shown_as = attributes.SPAN_EVENTS.get(event.kind)
        if root is not None:
            ids = root.span.get_span_context()
            event.trace_id, event.span_id = ids.trace_id, ids.span_id
            if shown_as is not None and root.span.is_recording():
                guard.run("spans", self._show_instant, root.span, shown_as, event)
        self.windows.place(window, event, place, provisional=provisional, step=False)

    def _show_instant(self, root: Span, shown_as: str, event: Event) -> None:
        shown = attributes.attributes_from_fields(event.kind, event.fields, self.names, event.source)
        root.add_event(shown_as, shown, timestamp=event.start_ns)

    def _event(self, kind: Kind, source: str, fields: dict[str, Any], start_ns: int, outer: Step | None) -> Event:
        for key in _NAMES:
            given = fields.get(key)
            if given is not None:
                fields[key] = self.names[name(given) or ""]
        parent_id = outer.event.id if outer is not None else 0
        return Event(kind, new_id(64), next_seq(), start_ns, source, fields, parent_id=parent_id)

    @staticmethod
    def _own_agent(event: Event, window: Window, memory: Session | None) -> None:
        if memory is not None:
            # Handles of several agents may share one tracker.
            agent = event.fields.pop("agent", memory.agent)
            if agent != window.session.agent:
                event.agent = agent

    # -- spans ---------------------------------------------------------------------------------------------------

    def root_of(self, window: Window, start_ns: int, here: Context | None = None) -> Root | None:
        """The window's root span, started (in `here`) if need be; renamed where the window took it over."""
        root: Root | None = window.root
        if root is None:
            if self.settings.sdk_disabled:
                return None
            span = self.tracer.start_span(
                self._root_name(window),
                context=here,
                kind=SpanKind.INTERNAL,
                attributes=self._root_attributes(window),
                start_time=start_ns,
            )
            root = window.root = Root(span, window.record_id, window.place.parent_span_id)
        elif root.record_id != window.record_id:
            root.record_id = window.record_id
            root.span.update_name(self._root_name(window))
            root.span.set_attributes(self._root_attributes(window))
        return root

    def _root_name(self, window: Window) -> str:
        return f"{semconv.OPERATION_INVOKE_AGENT} {self.names[name(window.session.agent) or '']}"

    def _root_attributes(self, window: Window) -> dict[str, Any]:
        session = window.session
        found: dict[str, Any] = {
            semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_INVOKE_AGENT,
            semconv.GEN_AI_AGENT_NAME: self.names[name(session.agent) or ""],
            semconv.AMFS_RECORD_ID: window.record_id,
            semconv.AMFS_SESSION_ID: session.id,
            semconv.AMFS_OPENED_BY: session.opened_by,
            semconv.AMFS_INFERRED: session.inferred,
        }
        if session.session_id:
            drawn = session.opened_by == "amfs"
            key = semconv.AMFS_MEMORY_SESSION_ID if drawn else semconv.GEN_AI_CONVERSATION_ID
            found[key] = self.names[name(session.session_id) or ""]
        return found

    def _start_span(self, event: Event, window: Window, here: Context) -> Span:
        return self._started(event, self.root_of(window, event.start_ns, here), here)

    def _parent_span(self, event: Event, window: Window, here: Context) -> Span:
        """What the span of `event`, which is not started yet, will be a part of."""
        return trace.get_current_span(below_root(self.root_of(window, event.start_ns, here), here))

    def _started(self, event: Event, root: Root | None, here: Context) -> Span:
        span = self.tracer.start_span(
            attributes.span_name(event.kind, event.fields, event.source),
            context=below_root(root, here),
            kind=attributes.span_kind(event.kind, event.fields),
            attributes=attributes.start_attributes(event.kind, event.fields, self.names, event.source),
            start_time=event.start_ns,
        )
        ids = span.get_span_context()
        event.trace_id, event.span_id = ids.trace_id, ids.span_id
        return span

    def later(self, function: Callable[[], None]) -> None:
        """Calls `function` at the next event or tick of the worker. Takes no lock."""
        self.windows.later(function)

    def finish(self, step: Step, result: dict[str, Any] | None, error: BaseException | None, elapsed_ns: int) -> None:
        """Ends the event and the span of `step`."""
        if self._inherited:
            return
        event = step.event
        if error is not None:
            event.status = "error"
            event.error_type = event.error_type or type_name(error)
            result = {**(result or {}), "error_message": message_of(error)}
        if result is not None and result.get("response_model") is not None:
            result["response_model"] = self.names[result["response_model"]]
        event.result = result
        event.end_ns = event.start_ns + elapsed_ns
        guard.run("spans", self._end_span, step, event)
        if self.metrics.enabled and not step.counted_elsewhere and not self._is_counted_unseen(step):
            guard.run("metrics", self.metrics.record, event, step.calls)
        self.windows.ended(step.placed, event)

    @staticmethod
    def _is_counted_unseen(step: Step) -> bool:
        """Whether another's metrics count a call whose span of theirs is not recorded, so that nothing tells of it."""
        sampled = not foreign.watched or step.span.get_span_context().trace_flags.sampled
        return not sampled and foreign.counts(step.event.source)

    def _end_span(self, step: Step, event: Event) -> None:
        if foreign.watched and event.kind in foreign.MODEL_KINDS and foreign.ended(step):
            return
        span = step.shown()
        try:
            if span.is_recording():
                self._set_end_attributes(span, event)
        finally:
            span.end(end_time=event.end_ns)

    def _set_end_attributes(self, span: Span, event: Event) -> None:
        result = event.result or {}
        shown: dict[str, Any] = {}
        if event.status == "ok" or result:
            shown = attributes.end_attributes(event.kind, result, self.names, event.source)
        if event.error_type is not None:
            shown[semconv.ERROR_TYPE] = event.error_type
            span.set_status(Status(StatusCode.ERROR))
        if self.content_on_spans:
            both = {**event.fields, **result}
            limit = self.settings.span_attribute_limit
            content = guard.run(
                event.source, content_attributes, event.kind, both, self.masker, limit, self._remembered_texts
            )
            shown.update(content or {})
        if self.settings.semconv_dual:
            for key, legacy in semconv.LEGACY_ATTRIBUTES.items():
                if key in shown:
                    shown[legacy] = shown[key]
        span.set_attributes(shown)

    def _end_root(self, window: Window, ended_ns: int) -> tuple[int, int]:
        root: Root | None = window.root
        if root is None:
            return 0, 0
        ids = root.span.get_span_context()
        if window.owns_root:
            if root.span.is_recording() and window.closed is not None:
                root.span.set_attribute(semconv.AMFS_CLOSED_BY, str(window.closed))
            guard.run("spans", root.span.end, end_time=ended_ns)
        return (ids.trace_id, ids.span_id) if ids.is_valid else (0, 0)

    # -- outcomes ------------------------------------------------------------------------------------------------

    def commit(
        self,
        source: str,
        fields: dict[str, Any],
        changes: list[dict[str, Any]],
        memory: Session | None = None,
        *,
        start_ns: int = 0,
        step: Step | None = None,
    ) -> None:
        """An outcome: closes the window into which it falls if that holds an event, else becomes an outcome record.

        Args:
            source: The library that it was seen in.
            fields: Fields of the `outcome` event.
            changes: Fields of one `confidence_change` event each.
            memory: The tracker's session, for AMFS.
            start_ns: When the commit began.
            step: The step of the commit, where one was begun in an open window; ended here.
        """
        now_ns = time.time_ns()
        place = step.place if step is not None else self.place()
        if step is not None:
            step.end(fields)
        with self.windows.lock:
            self.windows.close_due()
            window = step.placed.window if step is not None else self.existing(place, memory)
            if window is not None and window.committed:
                self.windows.close(window, ClosedBy.COMMIT)
                window = None
            if window is None or window.closed is not None or window.events == 0:
                session = self._named_session(place, memory) or self.windows.implicit_session(
                    place, self.settings.default_agent
                )
                assert session is not None
                window = self.windows.window_of(session, place, kind=RecordKind.OUTCOME)
            if step is None:
                outcome = self._event(
                    Kind.OUTCOME, source, fields, start_ns or now_ns, self.step_in(context.get_current())
                )
                outcome.end_ns = now_ns
                self._own_agent(outcome, window, memory)
                self.put_instant(window, outcome, place)
            else:
                outcome = step.event
            for change in changes:
                event = self._event(Kind.CONFIDENCE_CHANGE, source, change, now_ns, None)
                event.end_ns, event.parent_id = now_ns, outcome.id
                self.put_instant(window, event, place)
            run = current_run.get()
            if run is not None and window is run.window and window.record_kind is RecordKind.DECISION:
                window.committed = True
            else:
                self.windows.close(window, ClosedBy.COMMIT)

    def checkpoint(self) -> None:
        """Closes the window that is open here; the next one of its session continues it."""
        place = self.place()
        with self.windows.lock:
            window = self.existing(place)
            if window is not None and window.events:
                window.session.continues = window.record_id
                self.windows.close(window, ClosedBy.CHECKPOINT)
