"""Calls that clients of this process have sent, and how a server tells that one of them is what it is asked.

A call goes out with the trace context of its span, and our session as baggage, in `_meta` of its parameters, written by
the propagator of the application. A server in the same process finds the call again: through the context, where the
two share one, else by the ids in `_meta`. What it is asked must then be that call, tool and arguments: whoever has
received a call knows its ids, and may use them to ask for something else.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from opentelemetry import baggage, context, propagate, trace
from opentelemetry.context import Context

from amfs_otel import capture
from amfs_otel.capture import Step
from amfs_otel.capture.ambient import BAGGAGE_SESSION, STEP_KEY

SOURCE = "mcp"

Json = dict[str, Any]

_ANSWERING = context.create_key("amfs_otel-mcp-answering")
"""The sent call whose answer a server in this process is at work on, in this context."""

_sent: "dict[int, SentCall]" = {}
"""By the ids of their events."""


class SentCall:
    """A client's call from its beginning to its end; it may ask the server more than once.

    Attributes:
        step: Its step.
        client: Whose public method was called.
        asked: Method and name of what is asked for.
        arguments: Copy of a tool's arguments.
        request_id: JSON-RPC's id of the newest request.
        taken: Whether a server in this process has taken that request for this call.
    """

    __slots__ = ("arguments", "asked", "client", "request_id", "step", "taken")

    def __init__(self, step: Step, client: Any, asked: tuple[str, str], arguments: Any) -> None:
        self.step = step
        self.client = client
        self.asked = asked
        self.arguments = arguments
        self.request_id: str | None = None
        self.taken = False
        _sent[step.event.id] = self

    def over(self) -> None:
        """Forgets it; its step has ended."""
        _sent.pop(self.step.event.id, None)

    def attach_for_server(self) -> Any:
        """Makes its step current for the server that is at work on it; give the token to `Step.detach`."""
        self.taken = True
        shown = trace.set_span_in_context(self.step.span)
        return context.attach(context.set_value(_ANSWERING, self, context.set_value(STEP_KEY, self.step, shown)))


def sent_here() -> SentCall | None:
    """The call that this context is waiting for: not inside what a server does for it."""
    step = capture.current_step(SOURCE)
    sent = sent_of(step) if step is not None else None
    return None if sent is None or context.get_value(_ANSWERING) is sent else sent


def sent_of(step: Step) -> SentCall | None:
    """The sent call whose step is `step`."""
    return _sent.get(step.event.id)


def sent_as(asked: tuple[str, str], arguments: Any, here: Context) -> SentCall | None:
    """The call of this process that a server is asked for in `here`: its own context, or what `_meta` says."""
    sent = sent_here()
    if sent is not None and sent.asked == asked:
        return sent
    caller = trace.get_current_span(here).get_span_context()
    session = baggage.get_baggage(BAGGAGE_SESSION, here)
    for one in list(_sent.values()):
        own = one.step.span.get_span_context()
        same_span = (own.trace_id, own.span_id) == (caller.trace_id, caller.span_id)
        known = same_span if own.is_valid else session == one.step.placed.window.session.id
        if known and not one.taken and one.asked == asked and _may_be(_given(arguments), _given(one.arguments)):
            return one
    return None


def _given(arguments: Any) -> Any:
    return {} if arguments is None else arguments


def _may_be(received: Any, sent: Any) -> bool:
    """Whether `sent` may have become `received` on the wire; what other than JSON becomes there nobody knows."""
    kind = cast("type[Any]", type(sent))
    if kind in (str, int, bool, type(None)):
        return type(received) is kind and received == sent
    if kind is list:
        items, others = cast("list[Any]", sent), cast("list[Any]", received)
        return type(others) is list and len(others) == len(items) and all(map(_may_be, others, items))
    if kind is dict:
        members, found = cast("Json", sent), cast("Json", received)
        if type(found) is not dict or not all(type(key) is str for key in members):
            return type(found) is dict
        return found.keys() == members.keys() and all(_may_be(found[key], item) for key, item in members.items())
    return True


# -- `_meta` -------------------------------------------------------------------------------------------------------


def context_here(sent: SentCall) -> dict[str, str]:
    """What the propagator writes for a request of `sent`: the current span, and baggage with our session in it."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, baggage.set_baggage(BAGGAGE_SESSION, sent.step.placed.window.session.id))
    return carrier


def context_from_meta(meta: Any) -> Context:
    """The current context with what the propagator reads from `_meta`; what is no text is nobody's trace context."""
    here = context.get_current()
    if not isinstance(meta, Mapping):
        return here
    members = cast("Mapping[Any, Any]", meta).items()
    carrier = {key: value for key, value in members if type(key) is str and type(value) is str}
    with suppress(ValueError, TypeError):
        return propagate.extract(carrier, here)
    return here


def with_context(sent: SentCall, request: Any) -> Any:
    """A copy of 1.x's `request` with the context of `sent` in `_meta`; what the application wrote there stays."""
    params = request.root.params
    written = context_here(sent)
    if not written:
        return request
    given: Any = params.meta
    if given is None:
        meta = params.Meta(**written)
    else:
        meta = given.model_copy(update={key: v for key, v in written.items() if key not in (given.model_extra or {})})
    root = request.root.model_copy(update={"params": params.model_copy(update={"meta": meta})})
    return request.model_copy(update={"root": root})
