"""Jaeger's HTTP query API, as far as tests ask it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs of servers on this machine, whatever proxy the environment names."""


@dataclass(frozen=True, slots=True)
class JaegerSpan:
    """A span as Jaeger gives it back.

    Attributes:
        name: The span's name.
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: The parent's span id, else None; Jaeger keeps it where the parent itself is missing.
        service: `service.name` of the resource.
        attributes: Attributes by key; Jaeger adds `span.kind`, `otel.scope.name`, `otel.status_code` and `error`.
        resource: The resource's attributes without `service.name`.
        events: Span events, each with its attributes and its name under `event`.
        start_us: Microseconds since the epoch.
        duration_us: Microseconds.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    service: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    start_us: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class JaegerTrace:
    """A trace as Jaeger gives it back, spans by start time."""

    trace_id: str
    spans: tuple[JaegerSpan, ...]

    def span(self, name: str) -> JaegerSpan:
        """The one span of this name.

        Raises:
            LookupError: There is none, or more than one; the message lists what there is.
        """
        found = [span for span in self.spans if span.name == name]
        if len(found) != 1:
            raise LookupError(f"{len(found)} spans {name!r} in {[span.name for span in self.spans]}")
        return found[0]

    def named(self, name: str) -> list[JaegerSpan]:
        """All spans of this name."""
        return [span for span in self.spans if span.name == name]


class JaegerApi:
    """A client of the query API at `url`; each method asks once and raises `OSError` when there is no answer."""

    def __init__(self, url: str) -> None:
        self.url = url

    def services(self) -> set[str]:
        """The names of the services that Jaeger has spans of."""
        return set(self._get("/api/services") or ())

    def traces(self, service: str, tags: Mapping[str, str] | None = None, limit: int = 5000) -> list[JaegerTrace]:
        """Traces with a span of `service` (and of these tags, on one span), whole, newest first."""
        query = {"service": service, "limit": str(limit), "lookback": "1d"}
        if tags:
            query["tags"] = json.dumps(tags)
        return [_trace_from_json(trace) for trace in self._get(f"/api/traces?{urllib.parse.urlencode(query)}") or ()]

    def trace(self, trace_id: str) -> JaegerTrace | None:
        """The trace of this id (32 hex digits), or None while Jaeger has no span of it."""
        try:
            found = self._get(f"/api/traces/{trace_id}")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise
        return _trace_from_json(found[0]) if found else None

    def _get(self, path: str) -> Any:
        with LOOPBACK.open(self.url + path, timeout=10) as response:
            return json.load(response)["data"]


def _attributes(tags: list[dict[str, Any]]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in tags}


def _trace_from_json(trace: dict[str, Any]) -> JaegerTrace:
    spans = [_span_from_json(span, trace["processes"][span["processID"]]) for span in trace["spans"]]
    return JaegerTrace(trace["traceID"], tuple(sorted(spans, key=lambda span: span.start_us)))


def _span_from_json(span: dict[str, Any], process: dict[str, Any]) -> JaegerSpan:
    parents = [
        reference["spanID"]
        for reference in span["references"]
        if reference["refType"] == "CHILD_OF" and reference["traceID"] == span["traceID"]
    ]
    return JaegerSpan(
        name=span["operationName"],
        trace_id=span["traceID"],
        span_id=span["spanID"],
        parent_id=parents[0] if parents else None,
        service=process["serviceName"],
        attributes=_attributes(span["tags"]),
        resource=_attributes(process["tags"]),
        events=tuple(_attributes(log["fields"]) for log in span["logs"]),
        start_us=span["startTime"],
        duration_us=span["duration"],
    )
