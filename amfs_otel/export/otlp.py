"""Spans that we send ourselves, past the application's SDK: how they are made and which exporter carries them.

No `TracerProvider` is involved: a finished span needs no sampler (it is always on), no limits (a hash must never be
shortened) and no `atexit` hook, and whatever watches the application's providers must not see it. Certificates,
headers, compression and timeout are read by the exporter itself from OpenTelemetry's variables.
"""

import secrets
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from amfs_otel import semconv
from amfs_otel.errors import ConfigurationError

_TRACES_PATH = "/v1/traces"
_SCOPE = InstrumentationScope(semconv.SCOPE)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def span_context(trace_id: int, span_id: int, *, remote: bool = False) -> SpanContext:
    """A sampled span context."""
    return SpanContext(trace_id, span_id, is_remote=remote, trace_flags=_SAMPLED)


def new_trace_id() -> int:
    """128 random bits, not zero."""
    return secrets.randbits(128) or 1


def new_span_id() -> int:
    """64 random bits, not zero."""
    return secrets.randbits(64) or 1


def resource_named(service: str) -> Resource:
    """A resource with `service.name` alone: the application's resource attributes describe the application."""
    return Resource({"service.name": service})


def finished_span(
    name: str,
    context: SpanContext,
    *,
    parent: SpanContext | None,
    resource: Resource,
    attributes: Mapping[str, AttributeValue],
    start_ns: int,
    end_ns: int,
    kind: SpanKind = SpanKind.INTERNAL,
    error: bool = False,
    events: Sequence[Event] = (),
    links: Sequence[Link] = (),
) -> ReadableSpan:
    """A span as an exporter takes it. Times are ns since the epoch."""
    return ReadableSpan(
        name,
        context=context,
        parent=parent,
        resource=resource,
        attributes=attributes,
        events=events,
        links=links,
        kind=kind,
        status=Status(StatusCode.ERROR if error else StatusCode.UNSET),
        start_time=start_ns,
        end_time=end_ns,
        instrumentation_scope=_SCOPE,
    )


def otlp_exporter(endpoint: str, protocol: str, *, timeout_s: float | None = None) -> SpanExporter:
    """An exporter of OpenTelemetry's own.

    Args:
        endpoint: URL or `host:port` of the receiver; for HTTP `/v1/traces` is added where the path lacks it.
        protocol: `grpc` or `http/protobuf`.
        timeout_s: Seconds that one export may take, retries included; None = OpenTelemetry's setting.

    Raises:
        ConfigurationError: The protocol is none of the two.
    """
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter(endpoint=_url(endpoint), timeout=timeout_s)
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        return HttpExporter(endpoint=traces_url(endpoint), timeout=timeout_s)
    raise ConfigurationError(
        "unknown OTLP protocol",
        where="OTEL_EXPORTER_OTLP_PROTOCOL",
        expected="grpc or http/protobuf",
        got=repr(protocol[:40]),
    )


def traces_url(endpoint: str) -> str:
    """The URL to which OTLP over HTTP posts spans: `endpoint` with `/v1/traces`, once."""
    parts = urlsplit(_url(endpoint))
    path = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=path if path.endswith(_TRACES_PATH) else path + _TRACES_PATH))


def _url(endpoint: str) -> str:
    """`host:port` as a plain-text URL; the gRPC exporter would take it for TLS."""
    return endpoint if "://" in endpoint else f"http://{endpoint}"
