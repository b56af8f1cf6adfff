"""What the patches of web frameworks share: a request begins with the application's call and ends with its body.

A boundary makes no event and no span. It only sets the mark by which `amfs_otel.capture` keeps the events of one
request apart from those of all others. Where a SERVER span, or a boundary further out, has set it, nothing is done.
"""

import weakref
from collections.abc import Callable, Coroutine
from typing import Any, cast

from amfs_otel import capture, guard
from amfs_otel.instrumentor import Wrapper

_REQUESTS = frozenset({"http", "websocket"})


def asgi(source: str) -> Wrapper:
    """The wrapper of an ASGI application's `__call__`: streamed body and background tasks are parts of that call."""

    def called(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if guard.run(source, _type_of, args, kwargs) not in _REQUESTS:
            return wrapped(*args, **kwargs)
        return _marked(source, wrapped, args, kwargs)

    return called


def _type_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    scope = args[0] if args else kwargs.get("scope")
    kind = cast("dict[str, Any]", scope).get("type") if isinstance(scope, dict) else None
    return kind if type(kind) is str else None


async def _marked(
    source: str, wrapped: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    request = guard.run(source, capture.enter_request)
    try:
        return await wrapped(*args, **kwargs)
    finally:
        if request is not None:
            capture.end_request(request)


def wsgi(source: str) -> Wrapper:
    """The wrapper of a WSGI application's `__call__`: the request ends when the server closes the body."""

    def called(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = guard.run(source, capture.enter_request)
        if request is None:
            return wrapped(*args, **kwargs)
        try:
            body = wrapped(*args, **kwargs)
        except BaseException:
            capture.end_request(request)
            raise
        if not guard.run(source, _ends_with, body, request):
            capture.end_request(request)
        return body

    return called


def _ends_with(body: Any, request: capture.Request) -> bool:
    """Has `request` end when `body` is closed; `False` where it is complete already (a list, a tuple)."""
    request.returned = True
    if hasattr(body, "close"):
        try:
            body.close = _Close(body, request)
        except (AttributeError, TypeError):
            pass  # a generator: it is closed by the server, which drops it then
        else:
            return True
    try:
        weakref.finalize(body, capture.end_request_later, request).atexit = False
    except TypeError:
        return False
    return True


class _Close:
    """Stands in the place of a body's `close`, once: then the body is as it was."""

    __slots__ = ("_body", "_close", "_own", "_request")

    def __init__(self, body: Any, request: capture.Request) -> None:
        self._body, self._request = body, request
        self._own = "close" in getattr(body, "__dict__", {})
        self._close = body.close

    def __call__(self) -> Any:
        body, self._body = self._body, None
        if body is not None:
            guard.run("boundary", self._restore, body)
        try:
            return self._close()
        finally:
            capture.end_request(self._request)

    def _restore(self, body: Any) -> None:
        if self._own:
            body.close = self._close
        else:
            del body.close
