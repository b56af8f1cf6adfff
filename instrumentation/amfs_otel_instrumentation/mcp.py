"""MCP's Python SDK: tools called and resources read, by its clients and in its servers, and the context between them.

Read: mcp 1.8.0, 1.9.0, 1.30.0, 2.0.0, 2.3.0. A client's public call is the event, however often it asks the server; a
server's event begins where all its transports meet. What a client asks and a server of the same process answers is one
event, the client's. Of all that a server answers, only tools and resources are steps of somebody's decision: listings
and prompts are not captured. What a tool's own result calls an error is one.

1.x sends no trace context, so a client's request gets it here, in `_meta`; 2.x sends it over streams, and our session
is added. What a server reads there counts while its event is placed and is its span's parent; the handler's context has
that span alone.

Whoever calls a server names the tool, so a name becomes one of spans and metrics there only once the server has listed
it or answered a call of it well; until then the event alone has it (`unlisted`).

2.x has spans of its own (scope `mcp-python-sdk`), one of them for each request that is sent or answered. Where a step
of ours stands for the request, its span takes that one's place, kind and name as the conventions want them; the spans
of all other requests are left alone. `mcp.resource.uri` is not shown: a URI's path may be content.
"""

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from mcp.client.session import ClientSession
from opentelemetry import context, trace
from opentelemetry.trace import SpanKind

from amfs_otel import capture, guard
from amfs_otel.capture import Step
from amfs_otel.instrumentor import Wrapper
from amfs_otel_instrumentation._mcp_fields import (
    CALL,
    KINDS,
    LIST,
    READ,
    Json,
    about_server,
    asked_from_fields,
    code_from_error,
    ended_from_error_data,
    ended_from_result,
    fields_from_params,
    params_from_call,
    tools_from_list,
)
from amfs_otel_instrumentation._mcp_sent import (
    SOURCE,
    SentCall,
    context_from_meta,
    context_here,
    sent_as,
    sent_here,
    sent_of,
    with_context,
)
from amfs_otel_instrumentation._mcp_tools import is_known, learn

requires = "mcp >= 1.8, < 3"

Call = Callable[..., Coroutine[Any, Any, Any]]
End = Callable[[Step, Any], None]

_FIRST = not hasattr(ClientSession, "server_info")
"""Whether it is 1.x."""


# -- clients -------------------------------------------------------------------------------------------------------


def _asked_by_client(method: str) -> Wrapper:
    """The wrapper of a client's public method that sends requests of `method`."""

    async def wrapper(wrapped: Call, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sent = guard.run(SOURCE, _begin_sent, method, instance, args, kwargs)
        if sent is None:
            return await wrapped(*args, **kwargs)
        try:
            return await _run(sent.step, wrapped, args, kwargs, _answered)
        finally:
            sent.over()

    return wrapper


def _begin_sent(method: str, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SentCall | None:
    fields = None
    if capture.active() is not None:
        fields = fields_from_params(method, params_from_call(method, args, kwargs))
    if fields is None:
        return None
    asked, outer = asked_from_fields(fields), sent_here()
    if outer is not None and outer.asked == asked and getattr(outer.client, "_session", None) is client:
        outer.taken = False
        return None
    fields |= {**_server_of(client), "remote": True}
    step = capture.begin(KINDS[method], SOURCE, fields)
    return None if step is None else SentCall(step, client, asked, fields.get("arguments"))


_servers: "weakref.WeakKeyDictionary[Any, Json]" = weakref.WeakKeyDictionary()
"""Session of 1.x → who answered when it was initialized."""


def _server_of(client: Any) -> Json:
    session = getattr(client, "_session", client)
    if session is None:
        return {}
    if _FIRST:
        return _servers.get(session, {})
    server = session.server_info
    return about_server(getattr(server, "name", None), getattr(server, "version", None), session.protocol_version)


async def _initialized(wrapped: Call, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = await wrapped(*args, **kwargs)
    guard.run(SOURCE, _remember, instance, result)
    return result


def _remember(session: Any, result: Any) -> None:
    server = result.serverInfo
    _servers[session] = about_server(server.name, server.version, result.protocolVersion)


async def _requested(wrapped: Call, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """1.x sends a request: its copy with our context goes instead."""
    request = guard.run(SOURCE, _with_context, instance, args[0] if args else kwargs.get("request"))
    if request is None:
        return await wrapped(*args, **kwargs)
    if args:
        return await wrapped(request, *args[1:], **kwargs)
    return await wrapped(**{**kwargs, "request": request})


def _with_context(session: Any, request: Any) -> Any:
    sent = sent_here()
    if sent is None or getattr(getattr(request, "root", None), "method", None) != sent.asked[0]:
        return None
    sent.request_id = str(session._request_id)  # noqa: SLF001  the id that this request is about to get
    return with_context(sent, request)


def _injected(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """2.x has written the trace context of a request into `_meta`: our session goes there, too."""
    result = wrapped(*args, **kwargs)
    sent = guard.run(SOURCE, sent_here)
    if sent is not None:
        guard.run(SOURCE, lambda: args[0].update(context_here(sent)))
    return result


# -- servers -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Served:
    """A request that `server` handles: its step, and the mark that keeps its events apart where there was none."""

    step: Step
    request: capture.Request | None
    server: Any

    def answered(self, step: Step, result: Any) -> None:
        """Ends `step`; a tool whose call was answered well is one that the server has."""
        status, error_type, fields = ended_from_result(step.event.fields["mcp_method"], result)
        if step.event.fields.get("unlisted") is True and status != "error" and not step.done:
            name = step.event.fields["tool_name"]
            learn(self.server, (name,))
            if is_known(self.server, name):
                fields |= {"tool_name": name, "unlisted": False}
                step.span.update_name(f"{CALL} {name}")
        _end(step, (status, error_type, fields))


def _begin_served(
    server: Any, method: str, params: Mapping[str, Any], meta: Any, about: Json
) -> _Served | SentCall | None:
    """Begins the step of a request that a server handles, or finds the client's step that stands for it."""
    fields = fields_from_params(method, params)
    if fields is None:
        return None
    here = context_from_meta(meta)
    sent = sent_as(asked_from_fields(fields), fields.get("arguments"), here)
    if sent is not None:
        return sent
    if method == CALL and not is_known(server, fields["tool_name"]):
        fields["unlisted"] = True
    request = capture.enter_request()
    token = context.attach(here)
    try:
        step = capture.begin(KINDS[method], SOURCE, {**fields, **about, "served": True})
    finally:
        context.detach(token)
    if step is not None:
        return _Served(step, request, server)
    if request is not None:
        capture.end_request(request)
    return None


async def _serve(
    served: _Served | SentCall | None, wrapped: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if served is None:
        return await wrapped(*args, **kwargs)
    if isinstance(served, SentCall):
        token = served.attach_for_server()
        try:
            return await wrapped(*args, **kwargs)
        finally:
            Step.detach(token)
    try:
        return await _run(served.step, wrapped, args, kwargs, _left_unanswered if _FIRST else served.answered)
    finally:
        if served.request is not None:
            capture.end_request(served.request)


async def _handled(wrapped: Call, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """2.x: a request from any transport, and its answer as it goes onto the wire."""
    served = guard.run(SOURCE, _asked_of_runner, instance, *args, **kwargs)
    result = await _serve(served, wrapped, args, kwargs)
    guard.run(SOURCE, _listed, instance, result, *args, **kwargs)
    return result


def _listed(runner: Any, result: Any, _dctx: Any, method: Any, *_: Any, **__: Any) -> None:
    if method == LIST:
        learn(runner.server, tools_from_list(result))


def _asked_of_runner(runner: Any, dctx: Any, method: Any, params: Any) -> _Served | SentCall | None:
    if method not in KINDS or capture.active() is None:
        return None
    about = about_server(runner.server.name, runner.server.version, runner.connection.protocol_version)
    about["request_id"] = str(dctx.request_id)
    params = params or {}
    return _begin_served(runner.server, method, params, params.get("_meta"), about)


async def _first_handled(wrapped: Call, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """1.x: a request from any transport; its answer is given inside, to the message that it came with."""
    served = guard.run(SOURCE, _asked_of_server, instance, args, kwargs)
    return await _serve(served, wrapped, args, kwargs)


def _asked_of_server(server: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Served | SentCall | None:
    given: Json = {**dict(zip(("message", "req"), args, strict=False)), **kwargs}
    request: Any = given.get("req")
    method = getattr(request, "method", None)
    if method == LIST:
        _listing[given["message"]] = server
    if method not in KINDS or capture.active() is None:
        return None
    params: Any = request.params
    about = about_server(server.name, server.version)
    about["request_id"] = str(given["message"].request_id)
    members = cast("Json", vars(params))
    served = _begin_served(server, method, members, getattr(params.meta, "model_extra", None), about)
    if isinstance(served, _Served):
        _answers[given["message"]] = served
    return served


_answers: "weakref.WeakKeyDictionary[Any, _Served]" = weakref.WeakKeyDictionary()
"""1.x: what serves the request to which a responder will answer; others may answer inside it."""

_listing: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()
"""1.x: the server whose tools a responder will list."""


async def _responded(wrapped: Call, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    guard.run(SOURCE, _end_served, instance, args[0] if args else kwargs.get("response"))
    return await wrapped(*args, **kwargs)


def _end_served(responder: Any, response: Any) -> None:
    result, served = getattr(response, "root", None), _answers.pop(responder, None)
    server = _listing.pop(responder, None)
    if server is not None:
        learn(server, tools_from_list(result))
    if served is not None:
        if result is not None:
            served.answered(served.step, result)
        else:
            _end(served.step, ended_from_error_data(response))


def _left_unanswered(step: Step, _: Any) -> None:
    """The client has cancelled the request: the SDK swallows what tells of it."""
    if not step.done:
        step.fail(asyncio.CancelledError())


# -- ends ----------------------------------------------------------------------------------------------------------


async def _run(step: Step, wrapped: Call, args: tuple[Any, ...], kwargs: dict[str, Any], end: End) -> Any:
    """Runs a call or a handler inside `step`; `end` ends it with the result."""
    token = step.attach()
    try:
        result = await wrapped(*args, **kwargs)
    except BaseException as error:
        step.detach(token)
        guard.run(SOURCE, _fail, step, error)
        step.fail(error)
        raise
    step.detach(token)
    guard.run(SOURCE, end, step, result)
    step.end()
    return result


def _fail(step: Step, error: BaseException) -> None:
    code = code_from_error(error)
    if not step.done:
        step.event.error_type = code
        step.fail(error, {**_sent_in(step), "status_code": code})


def _answered(step: Step, result: Any) -> None:
    _end(step, ended_from_result(step.event.fields["mcp_method"], result))


def _end(step: Step, ended: tuple[str, str | None, Json]) -> None:
    if not step.done:
        step.event.status, step.event.error_type, fields = ended
        step.end({**fields, **_sent_in(step)})


def _sent_in(step: Step) -> Json:
    """JSON-RPC's id of the request that a client has sent in `step`."""
    sent = sent_of(step)
    return {"request_id": sent.request_id} if sent is not None else {}


# -- the SDK's own spans -------------------------------------------------------------------------------------------


def _native_span(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The SDK starts its own span of a request, which gives way to ours where there is one."""
    ours = guard.run(SOURCE, _span_instead, kwargs.get("kind"), kwargs.get("attributes"))
    return wrapped(*args, **kwargs) if ours is None else ours


def _span_instead(kind: Any, attributes: Any) -> AbstractContextManager[trace.Span] | None:
    """A stand-in for our span, current already, which the SDK can neither write to nor end."""
    step = capture.current_step(SOURCE)
    if step is None or attributes is None or attributes.get("mcp.method.name") != step.event.fields.get("mcp_method"):
        return None
    if kind is SpanKind.CLIENT:
        sent = sent_here()
        if sent is None:
            return None
        sent.request_id = attributes.get("jsonrpc.request.id")
    ids = step.span.get_span_context()
    return nullcontext(trace.NonRecordingSpan(ids)) if ids.is_valid else None


# -- hooks ---------------------------------------------------------------------------------------------------------

_call_tool, _read_resource = _asked_by_client(CALL), _asked_by_client(READ)

hooks: dict[str, Wrapper] = {
    "mcp.client.session:ClientSession.call_tool": _call_tool,
    "mcp.client.session:ClientSession.read_resource": _read_resource,
}
if _FIRST:
    hooks |= {
        "mcp.client.experimental.tasks:ExperimentalClientFeatures.call_tool_as_task?": _call_tool,
        "mcp.client.session:ClientSession.initialize": _initialized,
        "mcp.shared.session:BaseSession.send_request": _requested,
        "mcp.shared.session:RequestResponder.respond": _responded,
        "mcp.server.lowlevel.server:Server._handle_request": _first_handled,
    }
else:
    hooks |= {
        "mcp.client.client:Client.call_tool": _call_tool,
        "mcp.client.client:Client.read_resource": _read_resource,
        "mcp.server.runner:ServerRunner._on_request": _handled,
        "mcp.server._otel:otel_span": _native_span,
        "mcp.shared.jsonrpc_dispatcher:otel_span": _native_span,
        "mcp.shared.jsonrpc_dispatcher:inject_trace_context": _injected,
    }
