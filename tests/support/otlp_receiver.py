"""A real OTLP receiver on loopback, gRPC and HTTP/protobuf, that keeps what it gets and can misbehave.

::

    with OtlpReceiver() as receiver:
        ... OTEL_EXPORTER_OTLP_ENDPOINT=receiver.http_endpoint ...
        spans = receiver.wait_for_spans(3)

`receiver.behave("hang")` leaves requests without an answer until the receiver closes, `"unavailable"` answers 503 or
UNAVAILABLE, `"reject"` 400 or INVALID_ARGUMENT. `refused_endpoint()` is a port on which nobody listens.
"""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.otlp_decode import (
    LogEvent,
    Metric,
    Span,
    logs_from_request,
    metrics_from_request,
    spans_from_request,
)

Behaviour = Literal["ok", "hang", "unavailable", "reject"]
Signal = Literal["traces", "metrics", "logs"]

_MESSAGES: dict[str, tuple[Any, Any]] = {
    "traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
}
_METHODS = {
    f"/opentelemetry.proto.collector.{package}.v1.{service}/Export": signal
    for signal, package, service in (
        ("traces", "trace", "TraceService"),
        ("metrics", "metrics", "MetricsService"),
        ("logs", "logs", "LogsService"),
    )
}


class OtlpReceiver:
    """Listens on two free ports of 127.0.0.1 while it is a context."""

    def __init__(self, behaviour: Behaviour = "ok") -> None:
        self._behaviour: Behaviour = behaviour
        self._arrived = threading.Condition()
        self._released = threading.Event()
        self._requests: dict[str, list[Any]] = {"traces": [], "metrics": [], "logs": []}
        self.paths: list[str] = []
        """Path of each HTTP request, method of each call."""
        self.headers: list[dict[str, str]] = []
        """Headers or metadata of each, keys in lower case."""

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self._http.daemon_threads = True
        self._http_thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._http_thread.start()
        self._pool = ThreadPoolExecutor(max_workers=8)
        self._grpc = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        self._grpc.add_generic_rpc_handlers((_GrpcHandler(self),))
        port = self._grpc.add_insecure_port("127.0.0.1:0")
        self._grpc.start()
        self.grpc_endpoint = f"http://127.0.0.1:{port}"
        self.http_endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._grpc.stop(grace=0).wait()
        self._pool.shutdown()
        self._http.shutdown()
        self._http_thread.join()
        self._http.server_close()

    def behave(self, behaviour: Behaviour) -> None:
        """Changes what happens to the requests that arrive from now on."""
        self._behaviour = behaviour

    def endpoint(self, protocol: str) -> str:
        """The endpoint for `grpc` or `http/protobuf`."""
        return self.grpc_endpoint if protocol == "grpc" else self.http_endpoint

    @property
    def spans(self) -> list[Span]:
        """Spans accepted so far."""
        with self._arrived:
            return [span for request in self._requests["traces"] for span in spans_from_request(request)]

    @property
    def metrics(self) -> list[Metric]:
        """Metrics accepted so far, each export again."""
        with self._arrived:
            return [metric for request in self._requests["metrics"] for metric in metrics_from_request(request)]

    @property
    def logs(self) -> list[LogEvent]:
        """Log records accepted so far."""
        with self._arrived:
            return [event for request in self._requests["logs"] for event in logs_from_request(request)]

    def wait_for_spans(self, count: int, *, named: str | None = None, timeout_s: float = 60) -> list[Span]:
        """Waits until `count` spans (of that name) have arrived and returns them; an AssertionError says what came."""

        def wanted() -> list[Span]:
            return [span for span in self.spans if named is None or span.name == named]

        self.wait_until(lambda: len(wanted()) >= count, timeout_s=timeout_s, what=f"{count} spans {named or ''}")
        return wanted()

    def wait_for_requests(self, count: int, *, timeout_s: float = 60) -> None:
        """Waits until `count` requests have been received, answered or not."""
        self.wait_until(lambda: len(self.paths) >= count, timeout_s=timeout_s, what=f"{count} requests")

    def wait_until(self, predicate: Callable[[], bool], *, timeout_s: float = 60, what: str = "the condition") -> None:
        """Waits for `predicate`, asked again after each request."""
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while not predicate():
                if not self._arrived.wait(max(0.0, deadline - time.monotonic())) and not predicate():
                    names = [span.name for span in self.spans]
                    raise AssertionError(f"{what} within {timeout_s} s; {len(self.paths)} requests, spans {names}")

    def receive(self, signal: str, body: bytes, path: str, headers: dict[str, str]) -> Behaviour:
        """Takes one request and says how it is to be answered. Called by the two servers."""
        behaviour = self._behaviour
        with self._arrived:
            self.paths.append(path)
            self.headers.append(headers)
            if behaviour == "ok":
                self._requests[signal].append(_MESSAGES[signal][0].FromString(body))
            self._arrived.notify_all()
        if behaviour == "hang":
            self._released.wait()
        return behaviour


def refused_endpoint() -> str:
    """A loopback URL on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def _handler_for(receiver: OtlpReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            signal = self.path.rpartition("/v1/")[2]
            if signal not in _MESSAGES:
                self._answer(404, b"")
                return
            headers = {key.lower(): value for key, value in self.headers.items()}
            behaviour = receiver.receive(signal, body, self.path, headers)
            if behaviour == "hang":
                self.close_connection = True
                return
            status = {"ok": 200, "unavailable": 503, "reject": 400}[behaviour]
            self._answer(status, _MESSAGES[signal][1]().SerializeToString())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


class _GrpcHandler(grpc.GenericRpcHandler):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        signal = _METHODS.get(details.method)
        if signal is None:
            return None
        headers = {key.lower(): str(value) for key, value in details.invocation_metadata}

        def export(body: bytes, context: grpc.ServicerContext) -> bytes:
            behaviour = self._receiver.receive(signal, body, details.method, headers)
            if behaviour in ("unavailable", "hang"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
            if behaviour == "reject":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not this")
            return _MESSAGES[signal][1]().SerializeToString()

        return grpc.unary_unary_rpc_method_handler(export)
