"""OTLP as plain data: what an exporter really sent, decoded for tests, and the same from SDK objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.sdk.trace import ReadableSpan

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")


@dataclass(frozen=True)
class SpanEvent:
    name: str
    attributes: dict[str, Any]
    time_ns: int = 0


@dataclass(frozen=True)
class Span:
    name: str
    kind: str = "internal"
    attributes: dict[str, Any] = field(default_factory=dict)
    status: str = "unset"
    status_message: str = ""
    trace_id: str = ""
    span_id: str = ""
    parent_id: str | None = None
    flags: int = 0
    start_ns: int = 0
    end_ns: int = 0
    events: tuple[SpanEvent, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    resource: dict[str, Any] = field(default_factory=dict)
    scope: str = ""
    scope_version: str = ""


@dataclass(frozen=True)
class Metric:
    """One instrument of one scope: `points` are (attributes, value); a histogram's value is (count, sum)."""

    name: str
    instrument: str
    unit: str
    points: tuple[tuple[dict[str, Any], Any], ...]
    buckets: tuple[float, ...] = ()
    resource: dict[str, Any] = field(default_factory=dict)
    scope: str = ""


@dataclass(frozen=True)
class LogEvent:
    name: str
    attributes: dict[str, Any]
    body: Any = None
    trace_id: str = ""
    span_id: str = ""
    resource: dict[str, Any] = field(default_factory=dict)
    scope: str = ""


def value_of(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [value_of(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return getattr(value, which)


def attributes_of(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pair: KeyValue
    for pair in pairs:
        if pair.key in found:
            raise AssertionError(f"attribute {pair.key} sent twice")
        found[pair.key] = value_of(pair.value)
    return found


def spans_from_request(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(
            name=span.name,
            kind=KINDS[span.kind],
            attributes=attributes_of(span.attributes),
            status=STATUSES[span.status.code],
            status_message=span.status.message,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex() or None,
            flags=span.flags,
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            events=tuple(SpanEvent(e.name, attributes_of(e.attributes), e.time_unix_nano) for e in span.events),
            links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            resource=attributes_of(group.resource.attributes),
            scope=scoped.scope.name,
            scope_version=scoped.scope.version,
        )
        for group in request.resource_spans
        for scoped in group.scope_spans
        for span in scoped.spans
    ]


def metrics_from_request(request: ExportMetricsServiceRequest) -> list[Metric]:
    return [
        _metric(metric, attributes_of(group.resource.attributes), scoped.scope.name)
        for group in request.resource_metrics
        for scoped in group.scope_metrics
        for metric in scoped.metrics
    ]


def _metric(metric: Any, resource: dict[str, Any], scope: str) -> Metric:
    which = metric.WhichOneof("data")
    data = getattr(metric, which)
    buckets: tuple[float, ...] = ()
    if which == "histogram":
        instrument = "histogram"
        points = tuple((attributes_of(p.attributes), (p.count, p.sum)) for p in data.data_points)
        buckets = tuple(data.data_points[0].explicit_bounds) if data.data_points else ()
    else:
        instrument = "gauge" if which == "gauge" else "counter" if data.is_monotonic else "updowncounter"
        points = tuple((attributes_of(p.attributes), getattr(p, p.WhichOneof("value"))) for p in data.data_points)
    return Metric(metric.name, instrument, metric.unit, points, buckets, resource, scope)


def logs_from_request(request: ExportLogsServiceRequest) -> list[LogEvent]:
    return [
        LogEvent(
            name=record.event_name,
            attributes=attributes_of(record.attributes),
            body=value_of(record.body),
            trace_id=record.trace_id.hex(),
            span_id=record.span_id.hex(),
            resource=attributes_of(group.resource.attributes),
            scope=scoped.scope.name,
        )
        for group in request.resource_logs
        for scoped in group.scope_logs
        for record in scoped.log_records
    ]


def span_from_readable(span: ReadableSpan) -> Span:
    """The same from an SDK span (in-memory exporter). Tests of the wire use the receiver instead."""
    context, scope = span.get_span_context(), span.instrumentation_scope
    assert context is not None
    return Span(
        name=span.name,
        kind=span.kind.name.lower(),
        attributes={key: _plain(value) for key, value in (span.attributes or {}).items()},
        status=span.status.status_code.name.lower(),
        status_message=span.status.description or "",
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_id=f"{span.parent.span_id:016x}" if span.parent else None,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        events=tuple(
            SpanEvent(event.name, {k: _plain(v) for k, v in (event.attributes or {}).items()}, event.timestamp)
            for event in span.events
        ),
        links=tuple((f"{k.context.trace_id:032x}", f"{k.context.span_id:016x}") for k in span.links),
        resource=dict(span.resource.attributes),
        scope=scope.name if scope else "",
        scope_version=(scope.version or "") if scope else "",
    )


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
