"""Real servers on loopback, and many clients at once, for the tests of request boundaries."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Protocol

import uvicorn
from werkzeug.serving import WSGIRequestHandler, make_server

CLIENTS = 50


class Get(Protocol):
    """Asks the server for a path."""

    def __call__(self, path: str, headers: Mapping[str, str] = ...) -> str:
        """The whole body."""
        ...


def _getter(port: int) -> Get:
    def get(path: str, headers: Mapping[str, str] = MappingProxyType({})) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read().decode()
            assert response.status == 200, body
            return body
        finally:
            connection.close()

    return get


@contextmanager
def serving_asgi(app: Any) -> Iterator[Get]:
    """Serves an ASGI application with uvicorn; at the end every request is over."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS)
    config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=10)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield _getter(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


class _Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, kind: str, message: str, *args: Any) -> None:
        pass


@contextmanager
def serving_wsgi(app: Any) -> Iterator[Get]:
    """Serves a WSGI application with a thread for each connection; at the end every request is over."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS)
    server: Any = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet, fd=listening.fileno())
    server.daemon_threads = False  # so that closing the server waits for them
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield _getter(listening.getsockname()[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        listening.close()


def at_once(ask: Callable[[int], Any], clients: int = CLIENTS) -> list[Any]:
    """`ask(number)` for every client, all released together."""
    together = threading.Barrier(clients)

    def client(number: int) -> Any:
        together.wait()
        return ask(number)

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(client, range(clients)))
