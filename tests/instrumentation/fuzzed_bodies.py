"""Bodies as no provider sends them: a server that answers with them, and what a call makes of them, comparable."""

import copy
import random
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self, cast

WRONG: list[Any] = [
    None, 0, -1, 1.5, "text", "\ud800", "\x00", [], {}, [None], [[]], {"a": None}, True, 2**63, "x" * 5000,
]  # fmt: skip


class Bodies:
    """A server that answers every request with the bytes put into it; a context manager."""

    def __init__(self) -> None:
        self.body, self.media = b"", "application/json"
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", owner.media)
                self.send_header("content-length", str(len(owner.body)))
                self.end_headers()
                self.wfile.write(owner.body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the library's
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
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


def spoiled(value: Any, chance: random.Random, probability: float) -> Any:
    """A copy of a JSON value in which some members are null, missing or of another type."""
    if chance.random() < probability:
        return copy.deepcopy(chance.choice(WRONG))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {k: spoiled(v, chance, probability) for k, v in members.items() if chance.random() >= probability / 2}
    if isinstance(value, list):
        return [spoiled(item, chance, probability) for item in cast("list[Any]", value)]
    return value


def outcome(call: Callable[[], Any]) -> tuple[str, str]:
    """What a call gave or raised, comparable."""
    try:
        result = call()
        if hasattr(result, "__next__"):
            result = list(result)
    except Exception as error:
        return type(error).__qualname__, str(error)
    return type(result).__qualname__, repr(result)
