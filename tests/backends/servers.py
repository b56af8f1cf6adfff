"""Start the built programs on loopback, wait until they serve, and stop them again.

Each server runs with the very file of `collector-config/` that users take; what a test changes, it changes through the
environment variables of that file. Ports are free ones: another program can take one between our look and the server's
start, so a server that dies at once is started again with new ones.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.error
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from tests.backends.jaeger_api import LOOPBACK, JaegerApi, JaegerTrace
from tests.backends.programs import COLLECTOR, JAEGER, PROMETHEUS, binary_path

CONFIGURATIONS = Path(__file__).resolve().parents[2] / "collector-config"
Answer = TypeVar("Answer")
_START_S = 30.0
_STOP_S = 10.0


class ServerDiedError(RuntimeError):
    """A server ended before it served; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Jaeger:
    """A running Jaeger: where it takes OTLP, and its query API."""

    otlp_grpc: str
    otlp_http: str
    api: JaegerApi

    def await_trace(self, trace_id: str, spans: int = 1, timeout_s: float = 30.0) -> JaegerTrace:
        """The trace of this id as soon as Jaeger has this many spans of it.

        Raises:
            TimeoutError: It has fewer after `timeout_s`.
        """

        def ask() -> JaegerTrace | None:
            found = self.api.trace(trace_id)
            return found if found and len(found.spans) >= spans else None

        return wait_until(ask, f"{spans} spans of trace {trace_id}", timeout_s)


@dataclass(frozen=True, slots=True)
class Collector:
    """A running Collector: where it takes OTLP, and the log that it writes."""

    otlp_grpc: str
    otlp_http: str
    log: Path


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus: its base URL, and where the Collector's `otlp_http` exporter sends."""

    url: str
    otlp_http: str


def free_ports(count: int) -> list[int]:
    """`count` different loopback ports that were free a moment ago."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(ask: Callable[[], Answer | Literal[False] | None], what: str, timeout_s: float = 30.0) -> Answer:
    """Ask until the answer is true in itself, and return it.

    Raises:
        TimeoutError: It was not within `timeout_s`; the message says `what` was waited for, and the last answer.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = 0.02
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s; the last answer was {answer!r}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.25)
    return answer


def answers(url: str) -> bool:
    """Whether a GET of `url` succeeds now."""
    try:
        with LOOPBACK.open(url, timeout=2) as response:
            return response.status == 200
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return False
    except OSError:
        return False


@contextlib.contextmanager
def _running(command: list[str], environment: Mapping[str, str], ready_url: str, log: Path) -> Generator[None]:
    """Run `command` until the block ends. The environment is only what is given: nothing of the caller's leaks in."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=dict(environment), stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        wait_until(lambda: answers(ready_url) or process.poll() is not None, f"{command[0]} to serve", _START_S)
        if process.poll() is not None:
            tail = log.read_text(errors="replace")[-4000:]
            raise ServerDiedError(f"{command[0]} ended with {process.returncode}:\n{tail}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


Server = TypeVar("Server")


@contextlib.contextmanager
def _started(start: Callable[[], contextlib.AbstractContextManager[Server]], tries: int = 3) -> Generator[Server]:
    """Enter what `start` makes, again when the server dies at once."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(start())
        except ServerDiedError:
            if tries == 1:
                raise
            server = stack.enter_context(_started(start, tries - 1))
        yield server


@contextlib.contextmanager
def _jaeger_once(log: Path, otlp_grpc_port: int | None) -> Generator[Jaeger]:
    grpc, http, query, query_grpc = free_ports(4)
    grpc = otlp_grpc_port or grpc
    environment = {
        "AMFS_JAEGER_GRPC": f"127.0.0.1:{grpc}",
        "AMFS_JAEGER_HTTP": f"127.0.0.1:{http}",
        "AMFS_JAEGER_QUERY": f"127.0.0.1:{query}",
        "AMFS_JAEGER_QUERY_GRPC": f"127.0.0.1:{query_grpc}",
    }
    command = [str(binary_path(JAEGER)), "--config", str(CONFIGURATIONS / "jaeger.yaml")]
    url = f"http://127.0.0.1:{query}"
    with _running(command, environment, f"{url}/api/services", log):
        yield Jaeger(f"http://127.0.0.1:{grpc}", f"http://127.0.0.1:{http}", JaegerApi(url))


def jaeger_server(log: Path, otlp_grpc_port: int | None = None) -> contextlib.AbstractContextManager[Jaeger]:
    """Jaeger with `collector-config/jaeger.yaml`, empty, for the length of a `with` block; it writes to `log`.

    `otlp_grpc_port` is for a test whose sender was there first.
    """
    return _started(lambda: _jaeger_once(log, otlp_grpc_port))


@contextlib.contextmanager
def _collector_once(configuration: Path, log: Path, settings: Mapping[str, str]) -> Generator[Collector]:
    grpc, http, health = free_ports(3)
    environment = {
        "AMFS_COLLECTOR_GRPC": f"127.0.0.1:{grpc}",
        "AMFS_COLLECTOR_HTTP": f"127.0.0.1:{http}",
        "AMFS_COLLECTOR_HEALTH": f"127.0.0.1:{health}",
        **settings,
    }
    command = [str(binary_path(COLLECTOR)), "--config", str(configuration)]
    with _running(command, environment, f"http://127.0.0.1:{health}/", log):
        yield Collector(f"http://127.0.0.1:{grpc}", f"http://127.0.0.1:{http}", log)


def collector_server(
    log: Path, configuration: Path = CONFIGURATIONS / "collector.yaml", **settings: str
) -> contextlib.AbstractContextManager[Collector]:
    """The Collector for the length of a `with` block; it writes to `log`.

    Args:
        log: A file that need not exist.
        configuration: A Collector configuration with the endpoints of `collector.yaml` in its environment variables.
        settings: Further variables of that file, such as `AMFS_COLLECTOR_TRACES_ENDPOINT="127.0.0.1:4317"`.
    """
    return _started(lambda: _collector_once(configuration, log, settings))


@contextlib.contextmanager
def _prometheus_once(directory: Path) -> Generator[Prometheus]:
    (port,) = free_ports(1)
    command = [
        str(binary_path(PROMETHEUS)),
        f"--config.file={CONFIGURATIONS / 'prometheus.yaml'}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-otlp-receiver",
    ]
    url = f"http://127.0.0.1:{port}"
    with _running(command, {}, f"{url}/-/ready", directory / "prometheus.log"):
        yield Prometheus(url, f"{url}/api/v1/otlp")


def prometheus_server(directory: Path) -> contextlib.AbstractContextManager[Prometheus]:
    """Prometheus with `collector-config/prometheus.yaml` for the length of a `with` block; all it writes is in `directory`."""
    return _started(lambda: _prometheus_once(directory))
