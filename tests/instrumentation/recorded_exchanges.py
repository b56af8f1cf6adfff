"""The exchanges of `tests/vectors/exchanges/`: their form, a server that answers with them, and clients that ask it.

An exchange is a JSON object. `about` says what is special; `client` is openai, azure or anthropic; `call` the method of
that client and `request` its arguments; `retries` how often the client may try again; `read` how a stream is read
(`all` where it is missing). `answers` is what the provider sends to one attempt after another: `status`, `headers` and
`body` (an object), `text`, or `frames` of a stream, after which the connection breaks where `cut` is true. A frame has
`data` and mostly `event`, or is a `comment`. `expected` holds the facts of the one event that must come of the call:
`usage` (a count that nobody reported is null), and what is null there has no fact.
"""

import asyncio
import gc
import inspect
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

import httpx2
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from pydantic import BaseModel

FOLDER = Path(__file__).parents[1] / "vectors" / "exchanges"
DEPLOYMENT_API = "2026-02-01"
PROVIDERS = {"openai": "openai", "azure": "azure.ai.openai", "anthropic": "anthropic"}
"""A client of an exchange → the provider of an event."""
COUNTS = {
    "input": "input_tokens",
    "cached": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
}
"""A count of an exchange → the fact of an event."""


@dataclass(frozen=True)
class Exchange:
    """One recorded exchange; see this module for its members."""

    name: str
    client: str
    call: str
    read: str
    retries: int
    request: dict[str, Any]
    answers: list[dict[str, Any]]
    expected: dict[str, Any]

    @property
    def streamed(self) -> bool:
        """Whether a stream is asked for."""
        return bool(self.request.get("stream"))


def exchange_from(path: Path) -> Exchange:
    """The exchange of a file."""
    found = json.loads(path.read_text())
    assert found.pop("about").strip()
    return Exchange(path.stem, **{"read": "all", "retries": 0, **found})


def all_exchanges() -> list[Exchange]:
    """Every exchange, by name."""
    return [exchange_from(path) for path in sorted(FOLDER.glob("*.json"))]


def body_of(answer: dict[str, Any]) -> bytes:
    """What an answer sends, byte for byte."""
    if "frames" in answer:
        return b"".join(_frame(frame) for frame in answer["frames"])
    return (answer["text"] if "text" in answer else json.dumps(answer["body"])).encode()


def _frame(frame: dict[str, Any]) -> bytes:
    if "comment" in frame:
        return f": {frame['comment']}\n\n".encode()
    event = f"event: {frame['event']}\n" if "event" in frame else ""
    data = frame["data"] if isinstance(frame["data"], str) else json.dumps(frame["data"])
    return f"{event}data: {data}\n\n".encode()


class Provider:
    """Answers one request after another with what it was given; a context manager."""

    def __init__(self) -> None:
        self.answers: deque[dict[str, Any]] = deque()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                answer = owner.answers.popleft()
                body = body_of(answer)
                self.send_response(answer["status"])
                # A body that is longer than what comes is one whose connection broke.
                sent = {**answer["headers"], "content-length": len(body) + (100 if answer.get("cut") else 0)}
                for name, value in sent.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = bool(answer.get("cut"))

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the library's
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a reader that stops early breaks the connection

        self._http = Server(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class Clients:
    """A client of each kind, synchronous and not, that asks a provider; a context manager."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        origin, self._runner = provider.origin, asyncio.Runner()
        self._http, self._async_http = httpx2.Client(verify=False), httpx2.AsyncClient(verify=False)
        plain: Any = {"api_key": "k", "http_client": self._http}
        asynchronous: Any = {"api_key": "k", "http_client": self._async_http}
        azure: Any = {"azure_endpoint": origin, "api_version": DEPLOYMENT_API}
        self._clients: dict[str, Any] = {
            "openai": OpenAI(base_url=f"{origin}/v1", **plain),
            "azure": AzureOpenAI(**azure, **plain),
            "anthropic": Anthropic(base_url=origin, **plain),
        }
        self._async_clients: dict[str, Any] = {
            "openai": AsyncOpenAI(base_url=f"{origin}/v1", **asynchronous),
            "azure": AsyncAzureOpenAI(**azure, **asynchronous),
            "anthropic": AsyncAnthropic(base_url=origin, **asynchronous),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._runner.run(self._async_http.aclose())
        self._runner.close()

    def play(self, exchange: Exchange) -> list[str]:
        """What the caller of a synchronous client gets to see: types, contents, errors."""
        self.provider.answers.extend(exchange.answers)
        seen: list[str] = []
        try:
            _call(self._clients, exchange, seen)
        except Exception as error:
            seen.append(_shown(error))
        return self._over(exchange, seen)

    def play_async(self, exchange: Exchange) -> list[str]:
        """`play`, with an asynchronous client."""
        self.provider.answers.extend(exchange.answers)
        seen: list[str] = []
        try:
            self._runner.run(_call_async(self._async_clients, exchange, seen))
        except Exception as error:
            seen.append(_shown(error))
        return self._over(exchange, seen)

    def _over(self, exchange: Exchange, seen: list[str]) -> list[str]:
        if exchange.read == "two, then drop":
            gc.collect()
        assert not self.provider.answers
        return seen


def _method(clients: dict[str, Any], exchange: Exchange) -> Any:
    found = clients[exchange.client].with_options(max_retries=exchange.retries)
    for name in exchange.call.split("."):
        found = getattr(found, name)
    return found


def _is_entered(exchange: Exchange) -> bool:
    """Whether the call is made when what the method gave is entered."""
    return exchange.call.endswith(".stream") or ".with_streaming_response." in exchange.call


def _is_raw(exchange: Exchange) -> bool:
    """Whether the method gives a response that is still to be parsed."""
    return ".with_raw_response." in exchange.call or ".with_streaming_response." in exchange.call


def _call(clients: dict[str, Any], exchange: Exchange, seen: list[str]) -> None:
    made = _method(clients, exchange)(**exchange.request)
    if _is_entered(exchange):
        with made as result:
            _read(exchange, result, seen)
    else:
        _read(exchange, made, seen)


def _read(exchange: Exchange, result: Any, seen: list[str]) -> None:
    seen.append(_shown(result))
    if _is_raw(exchange):
        result = result.parse()
        seen.append(_shown(result))
    if not hasattr(result, "__next__"):
        return
    for number, item in enumerate(result):
        seen.append(_shown(item))
        if exchange.read != "all" and number == 1:
            break
    if exchange.read == "two, then close":
        result.close()


async def _call_async(clients: dict[str, Any], exchange: Exchange, seen: list[str]) -> None:
    made = _method(clients, exchange)(**exchange.request)
    if _is_entered(exchange):
        async with made as result:
            await _read_async(exchange, result, seen)
    else:
        await _read_async(exchange, await made, seen)


async def _read_async(exchange: Exchange, result: Any, seen: list[str]) -> None:
    seen.append(_shown(result))
    if _is_raw(exchange):
        result = result.parse()
        if inspect.isawaitable(result):
            result = await result
        seen.append(_shown(result))
    if not hasattr(result, "__anext__"):
        return
    number = 0
    async for item in result:
        seen.append(_shown(item))
        number += 1
        if exchange.read != "all" and number == 2:
            break
    if exchange.read == "two, then close":
        await result.close()
    if exchange.read == "two, then drop":
        del result, item
        await _generators_closed()


async def _generators_closed() -> None:
    """Waits for the tasks in which the loop closes the generators that were dropped, and what they held."""
    for _ in range(2):
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


def _shown(value: Any) -> str:
    """A value by its type and content, without the addresses of objects."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Exception):
        return f"{name}: {value}"
    return f"{name} {value!r}" if isinstance(value, BaseModel) or kind.__module__ == "builtins" else name


def requested_tools(event: dict[str, Any]) -> list[list[Any]] | None:
    """The tools that an event asked for, as an exchange tells them."""
    found: Iterable[dict[str, Any]] = event.get("requested_tools") or ()
    return [[tool["call_id"], tool["tool_name"]] for tool in found] or None


def facts_of(event: dict[str, Any]) -> dict[str, Any]:
    """The facts of an event under the names of an exchange."""
    names = ("response_model", "response_id", "finish_reasons", "error_type", "stream_exit", "attempts")
    counts = {name: event.get(fact) for name, fact in COUNTS.items()}
    return {"usage": counts, "requested_tools": requested_tools(event), **{name: event.get(name) for name in names}}
