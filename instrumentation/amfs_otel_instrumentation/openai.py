"""OpenAI: chat.completions, responses and embeddings, synchronous and not, Azure and compatible providers included.

Read: openai 1.1.0, 1.26.0, 3.57.0. What a call carries is mapped in `_openai_facts`, streams are folded in
`_openai_folds`, messages are made on the worker by `_openai_messages`; `_stainless` watches streams and raw responses.
`create` and `parse` are patched because `parse` does not pass through `create`; the `.stream()` helpers,
`with_raw_response`, `with_streaming_response` and the Azure classes all come by one of the two. What `parse` reads a
reply with is patched for the replies that it refuses, as it does where one was cut at its length.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from openai import AsyncStream, Stream

from amfs_otel import capture, guard, semconv
from amfs_otel.capture.streams import StreamWatch
from amfs_otel.model import Kind
from amfs_otel_instrumentation import _openai_facts as facts
from amfs_otel_instrumentation._openai_facts import Fields
from amfs_otel_instrumentation._openai_folds import ChatFold, ResponseFold
from amfs_otel_instrumentation._stainless import (
    body_of,
    is_model,
    watch_parsing,
    watch_stream,
    watch_unread_body,
    watch_unread_stream,
)

requires = "openai >= 1.1, < 4"

SOURCE = "openai"

_AZURE_CLASSES = frozenset({"AzureOpenAI", "AsyncAzureOpenAI"})
_PROVIDERS = (
    (".openai.azure.com", semconv.PROVIDER_AZURE_OPENAI),
    (".services.ai.azure.com", "azure.ai.inference"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    (".amazonaws.com", "aws.bedrock"),
    ("api.anthropic.com", semconv.PROVIDER_ANTHROPIC),
    (".cohere.ai", "cohere"),
    (".cohere.com", "cohere"),
    (".deepseek.com", "deepseek"),
    (".groq.com", "groq"),
    (".mistral.ai", "mistral_ai"),
    (".moonshot.ai", "moonshot_ai"),
    (".moonshot.cn", "moonshot_ai"),
    (".perplexity.ai", "perplexity"),
    (".x.ai", "x_ai"),
)
"""End of a host's name → provider. A server that we do not know speaks OpenAI's protocol, so it counts as openai."""


@dataclass(frozen=True, slots=True)
class Surface:
    """One of the provider's endpoints.

    Attributes:
        kind: Kind of the event.
        request: (provider and server, keyword arguments) → fields known at the start.
        reply: (fields of the request, reply) → fields known at the end.
        fold: Makes the fold of a stream from the fields of the request; `None` where nothing is streamed.
        failure: Error code of a reply that failed although nothing is raised.
    """

    kind: Kind
    request: Callable[[Fields, Mapping[str, Any]], Fields]
    reply: Callable[[Fields, Any], Fields]
    fold: Callable[[Fields], ChatFold | ResponseFold] | None = None
    failure: Callable[[Any], str | None] | None = None

    def begin(
        self, running: capture.Capture, wrapped: Callable[..., Any], instance: Any, kwargs: Mapping[str, Any]
    ) -> capture.Step | None:
        """Begins the step of a call, unless it is a part of one that has a step already.

        A keyword that the method does not know is a TypeError, and no call.
        """
        names = _keywords(getattr(wrapped, "__func__", wrapped))
        if names is not None and not names.issuperset(kwargs):
            return None
        fields = self.request(_where(instance._client), kwargs)  # noqa: SLF001  resources show their client nowhere else
        outer = capture.current_step(SOURCE)
        if outer is not None and _same_call(outer.event.fields, fields):
            return None
        return running.begin(self.kind, SOURCE, fields)

    def finish(self, step: capture.Step, result: Any) -> None:
        """Ends the step with `result`, or has its stream or unread body end it."""
        if is_model(result.__class__):
            self._end(step, result)
        elif isinstance(result, (Stream, AsyncStream)):
            watch_stream(result, self._watch(step))
        elif not hasattr(result, "http_response"):
            self._end(step, result)
        elif (body := body_of(result)) is not None:
            self._end(step, facts.node_from_body(body))
        elif step.event.fields.get("stream"):
            watch_unread_stream(result, self._watch(step))
        else:
            watch_unread_body(result, self._watch(step), lambda body: self._end(step, facts.node_from_body(body)))

    def _end(self, step: capture.Step, reply: Any) -> None:
        if self.failure is not None:
            _note_failure(step, self.failure(reply))
        step.end(self.reply(step.event.fields, reply))

    def _watch(self, step: capture.Step) -> StreamWatch:
        current = capture.current()
        metrics = current.metrics if current is not None else None
        if self.fold is None:
            return StreamWatch(step, lambda _: None, dict, metrics)
        fold = self.fold(step.event.fields)

        def result() -> Fields:
            if isinstance(fold, ResponseFold):
                _note_failure(step, fold.failure())
            return fold.result()

        return StreamWatch(step, fold.fold, result, metrics)


def _note_failure(step: capture.Step, code: str | None) -> None:
    if code is not None:
        step.event.status, step.event.error_type = "error", code


def _same_call(outer: Fields, inner: Fields) -> bool:
    """Whether a public method of the SDK was called by another one of the SDK, for the same request."""
    return all(outer.get(name) == inner.get(name) for name in ("operation", "model", "server_address", "server_port"))


# -- who answers ---------------------------------------------------------------------------------------------------

REMEMBERED_PLACES = 256
_places: dict[int, tuple[Any, type, Fields]] = {}


def _where(client: Any) -> Fields:
    """Provider and server of a client, remembered by its base URL, an object that nobody changes."""
    url = client._base_url  # noqa: SLF001  the public property computes anew each time
    known = _places.get(id(url))
    if known is None or known[0] is not url or known[1] is not client.__class__:
        if len(_places) >= REMEMBERED_PLACES:
            _places.clear()
        known = _places[id(url)] = (url, client.__class__, _where_is(client, client.base_url))
    return known[2]


def _where_is(client: Any, url: Any) -> Fields:
    host = str(url.host)
    azure = any(kind.__name__ in _AZURE_CLASSES for kind in type(client).__mro__)
    found = next((provider for end, provider in _PROVIDERS if f".{host}".endswith(end)), semconv.PROVIDER_OPENAI)
    return {
        "provider": semconv.PROVIDER_AZURE_OPENAI if azure else found,
        "server_address": host,
        "server_port": url.port or (80 if url.scheme == "http" else 443),
    }


# -- wrappers ------------------------------------------------------------------------------------------------------


def _sync(surface: Surface) -> Callable[..., Any]:
    def wrapper(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        running = capture.active()
        if running is None:
            return wrapped(*args, **kwargs)
        step = guard.run(SOURCE, surface.begin, running, wrapped, instance, kwargs)
        return capture.call(step, wrapped, args, kwargs, surface.finish)

    return wrapper


@functools.cache
def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """The keywords that a method takes; `None` where it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def _async(surface: Surface) -> Callable[..., Any]:
    def wrapper(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Called here, so that a wrong argument is a TypeError at the same moment as without us.
        call = wrapped(*args, **kwargs)
        ours = _awaited(surface, wrapped, instance, kwargs, _Unstarted(call))
        guard.run(SOURCE, _named_as, ours, call)
        return ours

    return wrapper


def _named_as(ours: Any, call: Any) -> None:
    """Gives our coroutine the name of the call's, which stands in warnings and task names."""
    ours.__name__, ours.__qualname__ = getattr(call, "__name__", "create"), getattr(call, "__qualname__", "create")


class _Unstarted:
    """A coroutine that is closed quietly if ours, which was to await it, never ran."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Any) -> None:
        self.coroutine = coroutine

    def __del__(self) -> None:
        close = getattr(self.coroutine, "close", None)
        if close is not None:
            close()


async def _awaited(
    surface: Surface, wrapped: Callable[..., Any], instance: Any, kwargs: dict[str, Any], call: _Unstarted
) -> Any:
    """The step begins where the call is awaited: a coroutine that never runs is no call."""
    running = capture.active()
    step = None if running is None else guard.run(SOURCE, surface.begin, running, wrapped, instance, kwargs)
    return await capture.acall(step, _as_is, (call.coroutine,), {}, surface.finish)


def _as_is(coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    return coroutine


def _retried(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The SDK asks how long to wait before it tries again: one more attempt of the call that is under way."""
    step = guard.run(SOURCE, capture.current_step, SOURCE)
    if step is not None:
        step.attempts += 1
    return wrapped(*args, **kwargs)


_chat = Surface(Kind.LLM_CALL, facts.chat_request, facts.chat_reply, ChatFold)
_responses = Surface(Kind.LLM_CALL, facts.response_request, facts.response_reply, ResponseFold, facts.response_error)
_embeddings = Surface(Kind.EMBEDDINGS, facts.embeddings_request, facts.embeddings_reply)
_chat_parsing = watch_parsing(SOURCE, facts.chat_reply)
_response_parsing = watch_parsing(SOURCE, facts.response_reply)

hooks = {"openai._base_client:BaseClient._calculate_retry_timeout": _retried}
hooks_when_imported = {
    "openai.resources.chat.completions:Completions.create": _sync(_chat),
    "openai.resources.chat.completions:AsyncCompletions.create": _async(_chat),
    "openai.resources.chat.completions:Completions.parse?": _sync(_chat),
    "openai.resources.chat.completions:AsyncCompletions.parse?": _async(_chat),
    "openai.resources.beta.chat.completions:Completions.parse?": _sync(_chat),
    "openai.resources.beta.chat.completions:AsyncCompletions.parse?": _async(_chat),
    "openai.resources.responses:Responses.create?": _sync(_responses),
    "openai.resources.responses:AsyncResponses.create?": _async(_responses),
    "openai.resources.responses:Responses.parse?": _sync(_responses),
    "openai.resources.responses:AsyncResponses.parse?": _async(_responses),
    "openai.resources.beta.responses.responses:Responses.create?": _sync(_responses),
    "openai.resources.beta.responses.responses:AsyncResponses.create?": _async(_responses),
    "openai.resources.embeddings:Embeddings.create": _sync(_embeddings),
    "openai.resources.embeddings:AsyncEmbeddings.create": _async(_embeddings),
    "openai.lib._chat_completion_resources:_parse_chat_completion?": _chat_parsing,
    "openai.resources.chat.completions.completions:_parse_chat_completion?": _chat_parsing,
    "openai.resources.beta.chat.completions:_parse_chat_completion?": _chat_parsing,
    "openai.lib._response_resources:parse_response?": _response_parsing,
    "openai.resources.responses.responses:parse_response?": _response_parsing,
}
"""The SDK imports an endpoint when it is first used; importing that of the responses takes longer than all of ours."""
