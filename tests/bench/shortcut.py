"""The short way through an SDK: replies parsed beforehand, so that what is left of a call is what wraps it."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tests.bench.transport import http_library

_RESOURCES = {
    "openai": "openai.resources.chat.completions.completions",
    "anthropic": "anthropic.resources.messages.messages",
}
_URL = "https://api.example.com/v1/answers"


class Shortcut:
    """Hands out replies that `sdk` parsed beforehand.

    The SDK's request step and the reading of a stream are replaced below every public class, before anything is
    instrumented: whoever wraps `create` or the client's `request` still does.
    """

    def __init__(self, sdk: str) -> None:
        inside = importlib.import_module(f"{sdk}._base_client")
        streaming = importlib.import_module(f"{sdk}._streaming")
        self.reply: Any = None
        self.chunks: list[Any] | None = None
        self._http = http_library(sdk)
        self._replace_requests(inside.SyncAPIClient, inside.AsyncAPIClient)
        self._replace_reading(streaming.Stream, streaming.AsyncStream)
        resource = importlib.import_module(_RESOURCES[sdk])
        for name in ("maybe_transform", "async_maybe_transform"):
            if hasattr(resource, name):
                self._skip_transforming(resource, name)

    def _replace_requests(self, sync: Any, asynchronous: Any) -> None:
        plain, awaited = sync.request, asynchronous.request

        def request(client: Any, *args: Any, **kwargs: Any) -> Any:
            if self.reply is None:
                return plain(client, *args, **kwargs)
            return self._reply(client, kwargs.get("stream_cls"))

        async def arequest(client: Any, *args: Any, **kwargs: Any) -> Any:
            if self.reply is None:
                return await awaited(client, *args, **kwargs)
            return self._reply(client, kwargs.get("stream_cls"))

        sync.request, asynchronous.request = request, arequest

    def _reply(self, client: Any, stream_class: Any) -> Any:
        if self.chunks is None:
            return self.reply
        request = self._http.Request("POST", _URL)
        response = self._http.Response(200, headers={"content-type": "text/event-stream"}, content=b"", request=request)
        return stream_class(cast_to=object, response=response, client=client)

    def _replace_reading(self, sync: Any, asynchronous: Any) -> None:
        plain, awaited = sync.__stream__, asynchronous.__stream__

        def read(stream: Any) -> Iterator[Any]:
            yield from plain(stream) if self.chunks is None else self.chunks

        async def aread(stream: Any) -> AsyncIterator[Any]:
            if self.chunks is None:
                async for chunk in awaited(stream):
                    yield chunk
            else:
                for chunk in self.chunks:
                    yield chunk

        sync.__stream__, asynchronous.__stream__ = read, aread

    def _skip_transforming(self, module: Any, name: str) -> None:
        """The real step also drops arguments that were not given; whoever looks at the body relies on that."""
        original: Callable[..., Any] = getattr(module, name)

        def given(data: dict[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in data.items() if type(value).__name__ not in ("Omit", "NotGiven")}

        async def asynchronous(data: Any, kind: Any) -> Any:
            return await original(data, kind) if self.reply is None else given(data)

        def sync(data: Any, kind: Any) -> Any:
            return original(data, kind) if self.reply is None else given(data)

        setattr(module, name, asynchronous if name.startswith("async") else sync)

    def take(self, create: Callable[..., Any], *, streamed: bool = False) -> None:
        """From now on replies are what `create()` gives now, or streams of the chunks that it gives now."""
        self.give_back()
        reply = create()
        self.chunks = list(reply) if streamed else None
        self.reply = self.chunks if streamed else reply

    @property
    def state(self) -> tuple[Any, ...]:
        """What is handed out now; can be set again."""
        return self.reply, self.chunks

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        self.reply, self.chunks = state

    def give_back(self) -> None:
        """From now on requests go through the whole SDK again."""
        self.reply = self.chunks = None
