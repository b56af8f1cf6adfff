"""Does anything listen at the OTLP endpoint, and does it speak what the exporter speaks?"""

import socket
from urllib.parse import urlsplit

from amfs_otel.doctor.facts import EndpointFacts
from amfs_otel.settings import Settings

LIMIT_S = 2.0
DEFAULTS = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}
# RFC 9113, 3.4: the client's preface and an empty SETTINGS frame. A gRPC server answers with its own SETTINGS.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_SETTINGS_FRAME = 4
_HTTP1_REQUEST = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def endpoint_facts(settings: Settings) -> EndpointFacts | None:
    """Looks at the endpoint; `None` where spans are switched off."""
    if (settings.traces_exporter or "otlp").strip().lower() == "none" or settings.sdk_disabled:
        return None
    url = settings.otlp_endpoint or DEFAULTS.get(settings.otlp_protocol, DEFAULTS["grpc"])
    host, port, is_tls = _place(url, settings.otlp_protocol)
    reachable = _answer(host, port, b"") is not None
    speaks = _speaks(host, port) if reachable and not is_tls else None
    return EndpointFacts(url, settings.otlp_endpoint is None, settings.otlp_protocol, reachable, speaks)


def _place(url: str, protocol: str) -> tuple[str, int, bool]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    is_tls = parts.scheme == "https"
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.hostname or "localhost", port or (443 if is_tls else 4317 if protocol == "grpc" else 80), is_tls


def _speaks(host: str, port: int) -> str | None:
    answer = _answer(host, port, _HTTP2_PREFACE)
    if answer is not None and len(answer) > 3 and answer[3] == _SETTINGS_FRAME and not answer.startswith(b"HTTP"):
        # A server may speak both on one port; then the plain one is what tells OTLP over HTTP apart.
        plain = _answer(host, port, _HTTP1_REQUEST) or b""
        return "both" if plain.startswith(b"HTTP/1.") else "grpc"
    answer = answer if answer and answer.startswith(b"HTTP/1.") else _answer(host, port, _HTTP1_REQUEST)
    return "http" if answer and answer.startswith(b"HTTP/1.") else None


def _answer(host: str, port: int, request: bytes) -> bytes | None:
    """The first bytes of the answer to `request`, empty where none comes; `None` where nobody listens."""
    try:
        with socket.create_connection((host, port), timeout=LIMIT_S) as connection:
            if not request:
                return b""
            connection.settimeout(LIMIT_S)
            connection.sendall(request)
            return connection.recv(64)
    except TimeoutError:
        return b"" if request else None
    except OSError:
        return b"" if request else None
