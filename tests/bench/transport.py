"""A provider in memory: the transport of a client, which answers from what was written beforehand and never leaves the process.

Runs in the environment of every instrumentation: only the standard library is imported, and the SDK by its name.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

REQUEST_ID, STREAM_ID = "req_plain_41", "req_stream_42"
_FAILURE = {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Slow down, please."}


@dataclass(frozen=True, slots=True)
class Replies:
    """What one endpoint answers.

    Attributes:
        body: The reply to a plain request.
        events: The server-sent events of a stream with so many pieces of text.
    """

    body: Callable[[], bytes]
    events: Callable[[int], list[bytes]] | None = None


@dataclass(slots=True)
class Provider:
    """The provider; what it does next can be changed between calls.

    Attributes:
        endpoints: Path (its end) → replies.
        pieces: Of a stream.
        status: Of the next replies; from 400 on an error body is sent.
        body: In place of the endpoint's own.
        delay_s: Before a reply; asynchronous clients only.
        piece_delay_s: Before each event of a stream; asynchronous clients only.
        break_after: The connection is lost after so many events.
        received: The body of the last request.
    """

    endpoints: Mapping[str, Replies]
    pieces: int = 200
    status: int = 200
    body: bytes | None = None
    delay_s: float = 0.0
    piece_delay_s: float = 0.0
    break_after: int | None = None
    received: bytes = b""

    def sent(self) -> dict[str, Any]:
        """The body of the last request, parsed."""
        return json.loads(self.received)

    def client(self, sdk: str, *, asynchronous: bool = False) -> Any:
        """A client of `sdk` (`openai` or `anthropic`) whose transport this is; it never repeats a request."""
        library, http = importlib.import_module(sdk), http_library(sdk)
        name = {"openai": "OpenAI", "anthropic": "Anthropic"}[sdk]
        if asynchronous:
            over = http.AsyncClient(transport=http.MockTransport(self._answerer(http, asynchronous=True)))
            return getattr(library, f"Async{name}")(api_key="sk-bench", max_retries=0, http_client=over)
        over = http.Client(transport=http.MockTransport(self._answerer(http)))
        return getattr(library, name)(api_key="sk-bench", max_retries=0, http_client=over)

    def _answerer(self, http: Any, *, asynchronous: bool = False) -> Callable[[Any], Any]:
        """The function that a mock transport of `http` asks; events and bodies are made once."""
        bodies = {path: replies.body() for path, replies in self.endpoints.items()}
        streams: dict[tuple[str, int], Any] = {}

        def reply(request: Any) -> Any:
            self.received = request.content
            path = next((known for known in self.endpoints if request.url.path.endswith(known)), None)
            if self.status >= 400 or path is None:
                failure = json.dumps({"type": "error", "error": _FAILURE}).encode()
                return http.Response(self.status if path else 404, headers=_headers(REQUEST_ID), content=failure)
            if b'"stream":true' in self.received or b'"stream": true' in self.received:
                key = (path, self.pieces)
                if key not in streams:
                    events = self.endpoints[path].events
                    assert events is not None, f"{path} has no stream"
                    streams[key] = self._stream(http, events(self.pieces))
                return http.Response(200, headers=_headers(STREAM_ID, "text/event-stream"), stream=streams[key])
            return http.Response(200, headers=_headers(REQUEST_ID), content=self.body or bodies[path])

        async def answer(request: Any) -> Any:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            return reply(request)

        return answer if asynchronous else reply

    def _stream(self, http: Any, events: list[bytes]) -> Any:
        provider = self

        class Events(http.SyncByteStream, http.AsyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                for number, event in enumerate(events):
                    if number == provider.break_after:
                        raise http.ReadError("connection lost")
                    yield event

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for number, event in enumerate(events):
                    if number == provider.break_after:
                        raise http.ReadError("connection lost")
                    if provider.piece_delay_s:
                        await asyncio.sleep(provider.piece_delay_s)
                    yield event

        return Events()


def _headers(request_id: str, kind: str = "application/json") -> dict[str, str]:
    return {"content-type": kind, "x-request-id": request_id, "request-id": request_id}


def http_library(sdk: str) -> Any:
    """The library under the installed `sdk`: httpx, or httpx2 in newer releases."""
    inside = importlib.import_module(f"{sdk}._base_client")
    return getattr(inside, "httpx2", None) or inside.httpx


def event(data: Mapping[str, Any], *, named: bool = False) -> bytes:
    """A server-sent event; `named`: with its type as the event's name."""
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()
