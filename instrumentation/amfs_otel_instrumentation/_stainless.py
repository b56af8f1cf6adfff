"""Streams and raw responses of the SDKs that Stainless generates (openai, anthropic), which are built alike.

A stream keeps its own type and identity: the iterator inside it is replaced. Its `close()`, and that of the stream
helpers, touch nothing but `response.close` (`aclose`), so that attribute is watched on the instance. A raw response
whose body the application reads by itself is watched where it is parsed, read and closed. What is put on an instance is
taken away again as soon as it has served. A reply that `parse` cannot make the wanted type of is read where it fails.
"""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from amfs_otel import capture, guard
from amfs_otel.capture.streams import StreamWatch, WatchedAsyncIterator, WatchedIterator


@functools.lru_cache(256)
def is_model(kind: type) -> bool:
    """Whether replies of this class are pydantic's, which take long to say so themselves, or what they lack."""
    return issubclass(kind, BaseModel)


def watch_stream(stream: Any, watch: StreamWatch) -> None:
    """Has `watch` see the chunks and the end of `stream`, an instance of the SDK's `Stream` or `AsyncStream`."""
    inner = stream._iterator  # noqa: SLF001  the one place that all ways of reading share
    asynchronous = hasattr(inner, "__anext__")
    stream._iterator = (WatchedAsyncIterator if asynchronous else WatchedIterator)(inner, watch)  # noqa: SLF001
    name, prefix = ("aclose", "ag") if asynchronous else ("close", "gi")
    _on_close(stream.response, name, functools.partial(_closed, weakref.ref(inner), prefix, watch))


def _closed(reference: "weakref.ref[Any]", prefix: str, watch: StreamWatch) -> None:
    """The response was closed: early, unless the SDK's generator did it itself, has ended or is gone."""
    inner = reference()
    if getattr(inner, f"{prefix}_frame", None) is not None and not getattr(inner, f"{prefix}_running", False):
        watch.done("closed_early")


def _on_close(response: Any, name: str, closed: Callable[[], None]) -> None:
    """Calls `closed` after the first `response.close()`, which also takes the watcher and its cycle away.

    The response is not held weakly: the collector clears weak references before the SDK's generators close it.
    """
    original = getattr(response, name)

    def close() -> None:
        response.__dict__.pop(name, None)
        original()
        closed()

    async def aclose() -> None:
        response.__dict__.pop(name, None)
        await original()
        closed()

    setattr(response, name, functools.wraps(original)(aclose if name == "aclose" else close))


def body_of(raw: Any) -> bytes | None:
    """The body of a raw response, if it has been read already."""
    http = raw.http_response
    return http.content if hasattr(http, "_content") else None


def watch_unread_stream(raw: Any, watch: StreamWatch) -> None:
    """Watches a raw response to a streaming call for the stream that its `parse` makes."""

    def parsed(stream: Any) -> None:
        # From here on the stream's own end counts; its close reaches the same response.
        raw.__dict__.pop("close", None)
        watch_stream(stream, watch)

    _after(raw, "parse", parsed, watch)
    _watch_reading(raw, watch)


def watch_unread_body(raw: Any, watch: StreamWatch, whole: Callable[[bytes], None]) -> None:
    """Watches a raw response whose body has not been read yet; `whole` ends the step where it is read at once."""
    http = raw.http_response
    name = "aread" if inspect.iscoroutinefunction(raw.parse) else "read"
    _after(http, name, whole, watch)
    _watch_reading(raw, watch, lambda: http.__dict__.pop(name, None))


def _watch_reading(raw: Any, watch: StreamWatch, forget: Callable[[], object] = lambda: None) -> None:
    """Notices how reading in pieces ended: at its end the HTTP library closes the response, before the application."""
    if not hasattr(raw, "close"):
        return
    http = raw.http_response
    original, closed_before = raw.close, lambda: "complete" if http.is_closed else "closed_early"

    def ending() -> None:
        raw.__dict__.pop("close", None)
        forget()
        watch.done(closed_before())

    def close() -> None:
        ending()
        original()

    async def aclose() -> None:
        ending()
        await original()

    raw.close = functools.wraps(original)(aclose if inspect.iscoroutinefunction(original) else close)


def _after(holder: Any, name: str, then: Callable[[Any], None], watch: StreamWatch) -> None:
    """Has `then` look at what the next call of `holder.name` gives; that call takes the watcher away."""
    original, source = getattr(holder, name), watch.step.event.source

    def watched(*args: Any, **kwargs: Any) -> Any:
        holder.__dict__.pop(name, None)
        try:
            value = original(*args, **kwargs)
        except BaseException as error:
            watch.failed(error)
            raise
        guard.run(source, then, value)
        return value

    async def awatched(*args: Any, **kwargs: Any) -> Any:
        holder.__dict__.pop(name, None)
        try:
            value = await original(*args, **kwargs)
        except BaseException as error:
            watch.failed(error)
            raise
        guard.run(source, then, value)
        return value

    setattr(holder, name, functools.wraps(original)(awatched if inspect.iscoroutinefunction(original) else watched))


def watch_parsing(source: str, fields_of: Callable[[dict[str, Any], Any], dict[str, Any]]) -> Callable[..., Any]:
    """A wrapper of the function by which a `parse` method reads a reply: the model has answered where it raises, too.

    `fields_of` makes the fields of the request and the reply those known at the end; the step ends with them and the
    error, which the method's own wrapper sees without the reply.
    """

    def refused(reply: Any, error: BaseException) -> None:
        step = capture.current_step(source)
        if step is not None:
            step.fail(error, fields_of(step.event.fields, reply))

    def wrapper(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return wrapped(*args, **kwargs)
        except BaseException as error:
            guard.run(source, refused, kwargs.get("chat_completion", kwargs.get("response")), error)
            raise

    return wrapper
