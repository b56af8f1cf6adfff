"""The traffic that is measured: one support conversation, its canned replies, and clients that never leave the process.

Runs in the environment of every instrumentation: only the standard library and openai are imported, and the latter where
it is used.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

MODEL = "gpt-4o-mini"
_SYSTEM = (
    "You answer customers of a bicycle shop. Look an order up before you say anything about it, never guess a delivery "
    "date, and keep it to three sentences. If the customer wants a refund, hand over to a colleague at once."
)
_QUESTION = (
    "Good morning, my order 73155 has two inner tubes and a saddle in it. The saddle came on Friday, the tubes did not. "
    "Are they on their way, or must I order them anew? I would need them before the weekend if that is possible at all."
)
_ANSWER = (
    "Let me see what became of the inner tubes of order 73155. " + "They left our store and are with the carrier. " * 9
)
_WORDS = ("the", "tubes", "left", "our", "store", "and", "should", "be", "with", "you", "on", "Thursday", "morning")
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Find an order, what it holds, and where each of its parcels is.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "string"}, "parcels": {"type": "boolean"}},
            "required": ["number"],
        },
    },
}
_USAGE: dict[str, Any] = {
    "prompt_tokens": 161,
    "completion_tokens": 74,
    "total_tokens": 235,
    "prompt_tokens_details": {"cached_tokens": 96, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}


def chat_arguments(**more: Any) -> dict[str, Any]:
    """Arguments of a chat completion with a tool; message texts of about 0.4 KB."""
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _QUESTION}]
    chosen = {"temperature": 0.3, "max_tokens": 300, "top_p": 0.95, "seed": 11}
    return {"model": MODEL, "messages": messages, "tools": [_TOOL], **chosen, **more}


def chat_body() -> bytes:
    """The provider's reply to `chat_arguments`: a text of about 0.5 KB and one tool call."""
    arguments = json.dumps({"number": "73155", "parcels": True})
    call = {"id": "call_Wq81LmNz", "type": "function", "function": {"name": "find_order", "arguments": arguments}}
    message = {"role": "assistant", "content": _ANSWER, "refusal": None, "annotations": [], "tool_calls": [call]}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    return json.dumps({**_head("chat.completion"), "choices": [choice], "usage": _USAGE}).encode()


def chat_events(chunks: int) -> list[bytes]:
    """The same as a stream: `chunks` pieces of text between a role, a finish reason, the usage and the end mark."""
    head = _head("chat.completion.chunk")

    def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return b"data: " + json.dumps({**head, "choices": [choice], "usage": None}).encode() + b"\n\n"

    pieces = [event({"content": _WORDS[number % len(_WORDS)] + " "}) for number in range(chunks)]
    usage = b"data: " + json.dumps({**head, "choices": [], "usage": _USAGE}).encode() + b"\n\n"
    return [event({"role": "assistant", "content": ""}), *pieces, event({}, "stop"), usage, b"data: [DONE]\n\n"]


def _head(kind: str) -> dict[str, Any]:
    told = {"id": "chatcmpl-Q2v8Rk4d", "object": kind, "created": 1790000000, "model": f"{MODEL}-2024-07-18"}
    return {**told, "service_tier": "default", "system_fingerprint": "fp_51c0aa9e7b"}


def http_library() -> Any:
    """The library under the installed openai: httpx, or httpx2 from 3.0 on."""
    inside = importlib.import_module("openai._base_client")
    return getattr(inside, "httpx2", None) or inside.httpx


def client(*, chunks: int = 200, asynchronous: bool = False) -> Any:
    """An OpenAI client over a transport that answers from memory, a streaming request with `chunks` pieces."""
    import openai

    http, body, events = http_library(), chat_body(), chat_events(chunks)

    class Events(http.SyncByteStream, http.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            return iter(events)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for event in events:
                yield event

    def reply(request: Any) -> Any:
        if b'"stream":true' in request.content or b'"stream": true' in request.content:
            return http.Response(200, headers={"content-type": "text/event-stream"}, stream=Events())
        return http.Response(200, headers={"content-type": "application/json"}, content=body)

    async def answer(request: Any) -> Any:
        return reply(request)

    if asynchronous:
        over = http.AsyncClient(transport=http.MockTransport(answer))
        return openai.AsyncOpenAI(api_key="sk-bench", max_retries=0, http_client=over)
    return openai.OpenAI(
        api_key="sk-bench", max_retries=0, http_client=http.Client(transport=http.MockTransport(reply))
    )


class Shortcut:
    """Hands out replies that the SDK parsed beforehand, so that what is left of a call is what wraps it.

    The SDK's request step and the reading of a stream are replaced below every public class, before anything is
    instrumented: whoever wraps `create` or the client's `request` still does.
    """

    def __init__(self) -> None:
        inside = importlib.import_module("openai._base_client")
        streaming = importlib.import_module("openai._streaming")
        self.reply: Any = None
        self.chunks: list[Any] | None = None
        self._http = http_library()
        self._replace_requests(inside.SyncAPIClient, inside.AsyncAPIClient)
        self._replace_reading(streaming.Stream, streaming.AsyncStream)
        completions = importlib.import_module("openai.resources.chat.completions.completions")
        for name in ("maybe_transform", "async_maybe_transform"):
            self._skip_transforming(completions, name)

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
        request = self._http.Request("POST", "https://api.openai.com/v1/chat/completions")
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

    def take(self, *, chunks: int | None = None) -> None:
        """From now on replies are a parsed completion, or streams of `chunks` parsed pieces."""
        self.give_back()
        arguments = chat_arguments()
        if chunks is None:
            self.reply = client().chat.completions.create(**arguments)
        else:
            self.chunks = list(client(chunks=chunks).chat.completions.create(**arguments, stream=True))
            self.reply = self.chunks

    def give_back(self) -> None:
        """From now on requests go through the whole SDK again."""
        self.reply = self.chunks = None
