"""Anthropic: messages, beta messages and their helpers, synchronous and not, Bedrock, Vertex and Foundry included.

Read: anthropic 0.40.0, 0.75.0, 2.14.0. What a call carries is mapped in `_anthropic_facts`, streams are folded in
`_anthropic_folds`, messages are made on the worker by `_anthropic_messages`; `_stainless` watches streams and raw
responses.

The one hook of a call is the client's `request`, where `create`, `stream`, `parse`, the tool runner,
`with_raw_response` and `with_streaming_response` of every platform's classes meet. They do not meet above it: Bedrock's
resources hold functions of the first party's classes, and `stream` is no part of `create`. What `parse` reads a reply
with is patched for the replies that it refuses.

From 2.x on the SDK has spans of its own (scope `com.anthropic.sdk.python`), one of them for the same call. Where a step
of ours stands for the call, its span takes that one's place: the SDK is handed a span that records nothing and has our
span's context, so the server still receives a trace context, as the client's options say. Every other span of the SDK
is left alone, and so are those of a client that was given a tracer provider of its own.
"""

import inspect
import weakref
from collections.abc import Callable
from typing import Any, cast

from anthropic import AsyncStream, Stream
from anthropic.lib.streaming import MessageStream
from opentelemetry import trace

from amfs_otel import capture, guard, semconv
from amfs_otel.capture.streams import StreamWatch
from amfs_otel.model import Kind
from amfs_otel_instrumentation import _anthropic_facts as facts
from amfs_otel_instrumentation._anthropic_facts import Fields
from amfs_otel_instrumentation._anthropic_folds import MessageFold
from amfs_otel_instrumentation._stainless import (
    body_of,
    is_model,
    watch_parsing,
    watch_stream,
    watch_unread_body,
    watch_unread_stream,
)

requires = "anthropic >= 0.40, < 3"

SOURCE = "anthropic"

_PATH = "/v1/messages"
_PLATFORMS = (("anthropic.lib.bedrock", "aws.bedrock"), ("anthropic.lib.vertex", "gcp.vertex_ai"))
"""Beginning of the name of the module of a client's class → provider."""
_HOSTS = (
    (".amazonaws.com", "aws.bedrock"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    (".deepseek.com", "deepseek"),
    (".moonshot.ai", "moonshot_ai"),
    (".moonshot.cn", "moonshot_ai"),
)
"""End of a host's name → provider. A server that we do not know speaks Anthropic's protocol, so it counts as theirs."""


# -- steps ---------------------------------------------------------------------------------------------------------


def _begin(client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> capture.Step | None:
    """Begins the step of a request that asks a model; `None` for any other request."""
    options, running = _options(1, args, kwargs), capture.active()
    if running is None or not _asks_a_model(options):
        return None
    fields = facts.request_fields(_where(client), _body(options))
    conversation = _open_telemetry(client).get("conversation_id")
    if conversation is not None:
        fields["conversation_id"] = facts.word(conversation)
    return running.begin(Kind.LLM_CALL, SOURCE, fields)


def _options(place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The options of a request, which may be given by position."""
    return args[place] if len(args) > place else kwargs.get("options")


def _body(options: Any) -> Fields:
    """The request's body; `extra_body` of the caller's is merged into it later."""
    body, extra = options.json_data, options.extra_json
    found = cast("Fields", body) if isinstance(body, dict) else {}
    return {**found, **cast("Fields", extra)} if isinstance(extra, dict) else found


def _asks_a_model(options: Any) -> bool:
    url = getattr(options, "url", None)
    return isinstance(url, str) and url.partition("?")[0] == _PATH and options.method.lower() == "post"


def _finish(step: capture.Step, result: Any) -> None:
    """Ends the step with `result`, or has its stream or unread body end it."""
    if is_model(result.__class__):
        step.end(facts.reply_fields(result))
    elif issubclass(type(result), (Stream, AsyncStream)):
        watch = _watch(step)
        watch_stream(result, watch)
        if _HELPERS_MAKE_STREAMS:
            _watches[result.response] = watch
    elif not hasattr(result, "http_response"):
        step.end(facts.reply_fields(result))
    elif (body := body_of(result)) is not None:
        _end(step, body)
    elif step.event.fields.get("stream"):
        watch_unread_stream(result, _watch(step))
    else:
        watch_unread_body(result, _watch(step), lambda body: _end(step, body))


def _end(step: capture.Step, body: bytes) -> None:
    step.end(facts.reply_fields(facts.node_from_body(body)))


def _watch(step: capture.Step) -> StreamWatch:
    current, fold = capture.current(), MessageFold()
    return StreamWatch(step, fold.fold, fold.result, current.metrics if current is not None else None)


# -- who answers ---------------------------------------------------------------------------------------------------

_places: "weakref.WeakKeyDictionary[Any, tuple[Any, Fields]]" = weakref.WeakKeyDictionary()
_apart: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Tracers of clients whose own spans go to another provider than ours: there they stand for the call alone."""


def _where(client: Any) -> Fields:
    """Provider and server of a client, remembered for as long as its base URL stays the same object."""
    url = client.base_url
    known = _places.get(client)
    if known is None or known[0] is not url:
        known = _places[client] = (url, _where_is(client, url))
        provider = _open_telemetry(client).get("tracer_provider")
        if provider is not None and provider is not trace.get_tracer_provider():
            _apart.add(client._tracer)  # noqa: SLF001  the SDK shows the tracer nowhere else
    return known[1]


def _where_is(client: Any, url: Any) -> Fields:
    host = str(url.host)
    modules = [kind.__module__ for kind in type(client).__mro__]
    found = next((provider for start, provider in _PLATFORMS for name in modules if name.startswith(start)), None)
    if found is None:
        found = next((provider for end, provider in _HOSTS if f".{host}".endswith(end)), semconv.PROVIDER_ANTHROPIC)
    return {
        "provider": found,
        "server_address": host,
        "server_port": url.port or (80 if url.scheme == "http" else 443),
    }


def _open_telemetry(client: Any) -> Fields:
    """The client's `open_telemetry` option, which the SDK has from 2.x on."""
    return getattr(client, "_open_telemetry", None) or {}


# -- wrappers ------------------------------------------------------------------------------------------------------


def _request(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    step = guard.run(SOURCE, _begin, instance, args, kwargs)
    return capture.call(step, wrapped, args, kwargs, _finish)


async def _arequest(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The SDK's own coroutines await it at once, so the step begins where the application awaits the call."""
    step = guard.run(SOURCE, _begin, instance, args, kwargs)
    return await capture.acall(step, wrapped, args, kwargs, _finish)


def _retried(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The SDK asks how long to wait before it tries again: one more attempt of the call that is under way."""
    step = guard.run(SOURCE, capture.current_step, SOURCE)
    if step is not None:
        step.attempts += 1
    return wrapped(*args, **kwargs)


def _native_span(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The SDK starts its own span of a call, which gives way to ours where there is one."""
    ours = guard.run(SOURCE, _span_instead, args, kwargs)
    return wrapped(*args, **kwargs) if ours is None else ours


def _span_instead(args: tuple[Any, ...], kwargs: dict[str, Any]) -> trace.Span | None:
    """A stand-in for our span, which the SDK can neither write to nor end."""
    step = capture.current_step(SOURCE)
    if step is None or not args or args[0] in _apart or not _asks_a_model(_options(2, args, kwargs)):
        return None
    ids = step.shown().get_span_context()
    return trace.NonRecordingSpan(ids) if ids.is_valid else None


_parsing = watch_parsing(SOURCE, lambda _, reply: facts.reply_fields(reply))


# -- helpers of older releases -------------------------------------------------------------------------------------

_HELPERS_MAKE_STREAMS = "raw_stream" not in inspect.signature(MessageStream.__init__).parameters
"""Whether `messages.stream` reads a second stream over the response of the one that `request` gave."""

_watches: "weakref.WeakKeyDictionary[Any, StreamWatch]" = weakref.WeakKeyDictionary()
"""Response → the watch of the stream over it."""


def _stream_made(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A stream is made: the watch over its response, if there is one, moves to it."""
    made = wrapped(*args, **kwargs)
    guard.run(SOURCE, _watch_again, instance)
    return made


def _watch_again(stream: Any) -> None:
    watch = _watches.get(stream.response)
    if watch is None:
        return
    for name in ("close", "aclose"):  # the first stream, which nobody reads, would say that it was left early
        stream.response.__dict__.pop(name, None)
    watch_stream(stream, watch)


hooks = {
    "anthropic._base_client:SyncAPIClient.request": _request,
    "anthropic._base_client:AsyncAPIClient.request": _arequest,
    "anthropic._base_client:BaseClient._calculate_retry_timeout": _retried,
    "anthropic._base_client:start_api_call_span?": _native_span,
}
if _HELPERS_MAKE_STREAMS:
    hooks["anthropic._streaming:Stream.__init__"] = hooks["anthropic._streaming:AsyncStream.__init__"] = _stream_made
hooks_when_imported = {
    "anthropic.resources.messages.messages:parse_response?": _parsing,
    "anthropic.resources.beta.messages.messages:parse_response?": _parsing,
    "anthropic.resources.beta.messages.messages:parse_beta_response?": _parsing,
}
