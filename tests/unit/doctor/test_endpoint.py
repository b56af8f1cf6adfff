"""Looking at an OTLP endpoint: real sockets on loopback."""

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from amfs_otel.doctor.endpoint import endpoint_facts
from amfs_otel.settings import Settings

SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def settings(endpoint: str | None, protocol: str = "grpc", **more: object) -> Settings:
    return Settings(state_dir=Path("/state"), otlp_endpoint=endpoint, otlp_protocol=protocol, **more)  # pyright: ignore[reportArgumentType]


class Refusing(BaseHTTPRequestHandler):
    """Speaks HTTP/1.1 and takes nothing."""

    def do_POST(self) -> None:
        self.send_error(400)

    def log_message(self, *args: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return


@pytest.fixture
def http_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def speaking_http2() -> Generator[int]:
    """A server that answers HTTP/2's preface with its SETTINGS, and anything else by closing."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(2)
                if connection.recv(64).startswith(b"PRI * HTTP/2.0"):
                    connection.sendall(SETTINGS_FRAME)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        thread.join()
        listener.close()


def test_a_plain_http_receiver_is_recognised(http_port: int) -> None:
    facts = endpoint_facts(settings(f"http://127.0.0.1:{http_port}"))
    assert facts is not None
    assert (facts.reachable, facts.speaks, facts.is_default) == (True, "http", False)


def test_a_grpc_receiver_is_recognised() -> None:
    with speaking_http2() as port:
        facts = endpoint_facts(settings(f"127.0.0.1:{port}"))
    assert facts is not None
    assert (facts.reachable, facts.speaks) == (True, "grpc")


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    facts = endpoint_facts(settings(f"http://127.0.0.1:{port}"))
    assert facts is not None
    assert (facts.reachable, facts.speaks) == (False, None)


def test_the_default_depends_on_the_protocol() -> None:
    grpc, http = endpoint_facts(settings(None)), endpoint_facts(settings(None, "http/protobuf"))
    assert grpc is not None
    assert http is not None
    assert (grpc.url, grpc.is_default) == ("http://localhost:4317", True)
    assert http.url == "http://localhost:4318"


def test_switched_off_means_there_is_nothing_to_look_at() -> None:
    assert endpoint_facts(settings("http://127.0.0.1:1", traces_exporter="none")) is None
    assert endpoint_facts(settings("http://127.0.0.1:1", sdk_disabled=True)) is None
