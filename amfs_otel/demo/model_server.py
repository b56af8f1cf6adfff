"""A loopback server that speaks as OpenAI's and Anthropic's do; standard library only.

That is ``chat.completions``, ``responses`` and ``embeddings``, and ``messages``.

::

    with ModelServer() as server:
        client = OpenAI(base_url=server.base_url, api_key="any")
        client = Anthropic(base_url=server.origin, api_key="any")

or ``python -m amfs_otel.demo.model_server --port 0``, which prints the address and serves until it is stopped.

What it answers is decided by the request alone (:func:`amfs_otel.demo.script.reply_for`), unless a test has queued
replies with :meth:`ModelServer.queue`. What it sent, byte for byte, is in :attr:`ModelServer.exchanges`, so that a
captured fact can be compared with the provider's own words.
"""

import argparse
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from amfs_otel.demo.script import Failure, Json, Reply, Rule, reply_for
from amfs_otel.demo.story import MODEL_RULES
from amfs_otel.demo.wire import (
    DONE,
    NEEDED_BY_CHAT,
    NEEDED_WITH_INPUT,
    completion_body,
    completion_chunks,
    error_body,
    error_event,
    failure_of,
)
from amfs_otel.demo.wire_messages import (
    asked_of,
    conversation_of_messages,
    message_body,
    message_error,
    message_error_event,
    message_events,
    refusal_of,
)
from amfs_otel.demo.wire_responses import conversation_of, embeddings_body, response_body, response_events

CHAT_PATH = "/v1/chat/completions"
RESPONSES_PATH = "/v1/responses"
EMBEDDINGS_PATH = "/v1/embeddings"
NEEDED = {CHAT_PATH: NEEDED_BY_CHAT, RESPONSES_PATH: NEEDED_WITH_INPUT, EMBEDDINGS_PATH: NEEDED_WITH_INPUT}
MID_STREAM_FAILURE = Failure(500, "The server had an error while processing your request.", "server_error")


@dataclass(slots=True)
class Exchange:
    """One request and what the server sent back; grows while a stream flows.

    Attributes:
        path: The path asked for.
        headers: The request's headers, names in lower case.
        request: The decoded body; None where it was no JSON.
        status: The HTTP status sent; 0 until then.
        sent: Body bytes in the order they were written, without HTTP chunk framing.
        broken: The client went away before the server was done.
        number: Its place among the server's exchanges, from 1; part of the ids it sent.
        done: Set when the server has nothing more to do for it.
    """

    path: str
    headers: Mapping[str, str]
    request: Any
    status: int = 0
    sent: list[bytes] = field(default_factory=list[bytes])
    broken: bool = False
    number: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def body(self) -> bytes:
        """The whole body as sent so far."""
        return b"".join(self.sent)

    @property
    def json(self) -> Any:
        """The body of a plain answer, decoded."""
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, decoded, without the closing ``[DONE]``."""
        lines = [line.rpartition(b"data: ")[2] for line in self.body.split(b"\n\n") if line]
        return [json.loads(line) for line in lines if line != b"[DONE]"]


class ModelServer:
    """Serves on 127.0.0.1 from a thread of its own; a context manager, and safe to use from any thread.

    Args:
        rules: What the model says; the seed's story where none are given.
        port: The port; 0 takes a free one.

    Attributes:
        exchanges: Every request so far, oldest first.
        hanging: Set when a stream has reached its ``hang_after``.
        resume: Set it to let hanging streams go on; closing the server sets it too.
    """

    def __init__(self, rules: Sequence[Rule] = MODEL_RULES, *, port: int = 0) -> None:
        self.exchanges: list[Exchange] = []
        self.hanging = threading.Event()
        self.resume = threading.Event()
        self._rules = tuple(rules)
        self._queue: deque[Reply] = deque()
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._http.server_address[1]

    @property
    def base_url(self) -> str:
        """What an ``openai`` client takes as ``base_url``."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        """What an ``anthropic`` client takes as ``base_url``."""
        return f"http://127.0.0.1:{self.port}"

    def queue(self, *replies: Reply) -> None:
        """Answer the next requests with these, in order, whatever they ask."""
        with self._lock:
            self._queue.extend(replies)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def serve(self) -> None:
        """Serve on the calling thread until interrupted."""
        with self._http:
            self._http.serve_forever()

    def accept(self, exchange: Exchange) -> None:
        """Put an exchange on record and number it."""
        with self._lock:
            self.exchanges.append(exchange)
            exchange.number = len(self.exchanges)

    def reply_to(self, request: Json) -> Reply:
        """The queued reply, else the scripted one."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
        try:
            return reply_for(request, self._rules)
        except KeyError as error:
            message = f"The model `{request['model']}` does not exist: no scenario {error}."
            return Reply(failure=Failure(404, message, "invalid_request_error", "model_not_found"))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, address: tuple[str, int], owner: ModelServer) -> None:
        self.owner = owner
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over connections that the client dropped between requests; report all else as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] - the only server that makes this handler

    def do_POST(self) -> None:
        """Answer one request; a client that went away ends it quietly."""
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        exchange = Exchange(self.path, headers, _decoded(raw))
        self.server.owner.accept(exchange)
        try:
            self._answer(exchange)
        except (BrokenPipeError, ConnectionResetError):
            exchange.broken = True
            self.close_connection = True
        finally:
            exchange.done.set()

    def _answer(self, exchange: Exchange) -> None:
        asked = asked_of(exchange.path, exchange.request)
        if asked is not None:
            self._answer_message(exchange, asked)
            return
        needed = NEEDED.get(exchange.path)
        if needed is None:
            self._send_failure(exchange, Failure(404, f"Unknown path: {exchange.path}.", "invalid_request_error"))
            return
        request, number = exchange.request, exchange.number
        failure = failure_of(request, exchange.headers.get("authorization"), needed)
        if failure is not None:
            self._send_failure(exchange, failure)
        elif exchange.path == EMBEDDINGS_PATH:
            self._send(exchange, 200, embeddings_body(request), {})
        elif exchange.path == RESPONSES_PATH:
            reply = self.server.owner.reply_to(conversation_of(request))
            self._reply(exchange, reply, response_body, response_events(reply, request, number), b"")
        else:
            reply = self.server.owner.reply_to(request)
            self._reply(exchange, reply, completion_body, completion_chunks(reply, request, number), DONE)

    def _answer_message(self, exchange: Exchange, request: Json) -> None:
        number = exchange.number
        failure = refusal_of(request, exchange.headers)
        reply = Reply() if failure is not None else self.server.owner.reply_to(conversation_of_messages(request))
        failure = failure or reply.failure
        if failure is not None:
            self._send(exchange, failure.status, message_error(failure), _retry_after(failure))
        elif request.get("stream"):
            self._stream(exchange, reply, message_events(reply, request, number), b"", message_error_event())
        else:
            time.sleep(reply.pace.delay_s)
            self._send(exchange, 200, message_body(reply, request, number), {})

    def _reply(
        self,
        exchange: Exchange,
        reply: Reply,
        body: Callable[[Reply, Json, int], bytes],
        chunks: Iterable[bytes],
        closing: bytes,
    ) -> None:
        if reply.failure is not None:
            self._send_failure(exchange, reply.failure)
        elif exchange.request.get("stream"):
            self._stream(exchange, reply, chunks, closing, error_event(MID_STREAM_FAILURE))
        else:
            time.sleep(reply.pace.delay_s)
            self._send(exchange, 200, body(reply, exchange.request, exchange.number), {})

    def _send_failure(self, exchange: Exchange, failure: Failure) -> None:
        self._send(exchange, failure.status, error_body(failure), _retry_after(failure))

    def _send(self, exchange: Exchange, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        exchange.status = status
        exchange.sent.append(body)
        self._head(exchange, {"content-type": "application/json", "content-length": str(len(body)), **headers})
        self.wfile.write(body)

    def _stream(
        self, exchange: Exchange, reply: Reply, chunks: Iterable[bytes], closing: bytes, failing: bytes
    ) -> None:
        pace = reply.pace
        exchange.status = 200
        self._head(exchange, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})
        for position, chunk in enumerate(chunks):
            if position == pace.cut_after:
                self.close_connection = True
                return
            if position == pace.fail_after:
                self._send_chunk(exchange, failing)
                self.wfile.write(b"0\r\n\r\n")
                return
            if position == pace.hang_after:
                self.server.owner.hanging.set()
                self.server.owner.resume.wait()
            time.sleep(pace.delay_s)
            self._send_chunk(exchange, chunk)
        if closing:
            self._send_chunk(exchange, closing)
        self.wfile.write(b"0\r\n\r\n")

    def _send_chunk(self, exchange: Exchange, data: bytes) -> None:
        exchange.sent.append(data)
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _head(self, exchange: Exchange, headers: Mapping[str, str]) -> None:
        self.send_response(exchange.status)
        for name, value in {**headers, **_request_ids(exchange)}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
        """Say nothing: the exchanges are the log."""


def _request_ids(exchange: Exchange) -> dict[str, str]:
    """The request's id under the name that either provider gives the header."""
    return dict.fromkeys(("x-request-id", "request-id"), f"req_demo{exchange.number:06d}")


def _retry_after(failure: Failure) -> dict[str, str]:
    return {} if failure.retry_after_s is None else {"retry-after": str(failure.retry_after_s)}


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def main() -> None:
    """Serve until interrupted; the first line of stdout is the base URL."""
    parser = argparse.ArgumentParser(prog="python -m amfs_otel.demo.model_server", description="The demo's model.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    server = ModelServer(port=parser.parse_args().port)
    print(server.base_url, flush=True)
    try:
        server.serve()
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
