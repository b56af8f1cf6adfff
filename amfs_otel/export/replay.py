"""A recorded decision trace → GenAI spans, to any OTLP endpoint.

The call shapes of upstream's documentation are kept: `configure_otel(endpoint=, service_name=)` and
`TraceExporter().export_trace(trace)`. A replayed span has the times of what it shows. Ids are made from the content
hash: whoever replays a trace twice has it once, and never inside the original trace, to which the root links. Spans
hold structure and names only; texts stay in the record.
"""

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Link, SpanContext
from opentelemetry.util.types import AttributeValue

from amfs_otel import semconv
from amfs_otel.capture.attributes import SPAN_EVENTS, end_attributes, span_kind, span_name, start_attributes
from amfs_otel.capture.content import Masker, SpanNames
from amfs_otel.errors import ConfigurationError
from amfs_otel.export.otlp import finished_span, otlp_exporter, resource_named, span_context
from amfs_otel.export.told import ToldStep, ToldTrace, told_from_decision_trace, told_from_facts
from amfs_otel.model import Kind
from amfs_otel.settings import Settings

DEFAULT_ENDPOINT = "localhost:4317"
EXPORT_TIMEOUT_S = 10.0

_UNKNOWN = "unknown"
_NAMES = SpanNames(Masker())
_SPANS = (
    Kind.AGENT_RUN, Kind.LLM_CALL, Kind.EMBEDDINGS, Kind.TOOL_CALL, Kind.RETRIEVAL, Kind.MEMORY_READ,
    Kind.MEMORY_QUERY, Kind.MEMORY_WRITE,
)  # fmt: skip
_INFERENCE = (Kind.LLM_CALL, Kind.EMBEDDINGS)


@dataclass(frozen=True, slots=True)
class Target:
    """Where replayed spans go. None = not said."""

    endpoint: str | None = None
    service_name: str | None = None
    protocol: str | None = None


_configured: list[Target] = [Target()]


def configure_otel(
    endpoint: str | None = None, service_name: str | None = None, *, protocol: str | None = None
) -> None:
    """Sets where the `TraceExporter`s made from now on send to. Sets no OpenTelemetry provider.

    Args:
        endpoint: URL or `host:port`. Default: OpenTelemetry's settings, else `localhost:4317`.
        service_name: `service.name` of the spans. Default: that of the recorded process.
        protocol: `grpc` or `http/protobuf`. Default: OpenTelemetry's settings, else `grpc`.
    """
    _configured[0] = Target(endpoint, service_name, protocol)


class TraceExporter:
    """Sends recorded decision traces as spans. Arguments win over `configure_otel`, that over the environment.

    Args:
        endpoint: As in `configure_otel`.
        service_name: As in `configure_otel`.
        protocol: As in `configure_otel`.
        timeout_s: Seconds that one `export_trace` may take, retries included.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        service_name: str | None = None,
        *,
        protocol: str | None = None,
        timeout_s: float = EXPORT_TIMEOUT_S,
    ) -> None:
        settings, configured = Settings.from_env(), _configured[0]
        self._endpoint = endpoint or configured.endpoint or settings.otlp_endpoint or DEFAULT_ENDPOINT
        self._protocol = protocol or configured.protocol or settings.otlp_protocol
        self._service_name = service_name or configured.service_name
        self._fallback_name = settings.service_name or semconv.RECEIPT_SERVICE
        self._timeout_s = timeout_s

    def export_trace(self, trace: object) -> bool:
        """Sends one trace and waits for the answer. False = the receiver did not take it in time.

        Args:
            trace: A record's document, the answer of `explain`, or an upstream `DecisionTrace` (object or mapping).

        Raises:
            ConfigurationError: The object is none of these, or the protocol is unknown.
        """
        told = told_trace(trace)
        service = self._service_name or told.service or self._fallback_name
        with suppress_instrumentation():
            exporter = otlp_exporter(self._endpoint, self._protocol, timeout_s=self._timeout_s)
            try:
                return exporter.export(spans_from_trace(told, resource_named(service))) is SpanExportResult.SUCCESS
            finally:
                exporter.shutdown()


def told_trace(trace: object) -> ToldTrace:
    """Reads whatever `export_trace` takes.

    Raises:
        ConfigurationError: It is nothing of the kind.
    """
    facts, head = getattr(trace, "facts", None), getattr(trace, "head", None)
    if isinstance(facts, Mapping) and isinstance(head, Mapping):
        return told_from_facts(cast("Mapping[str, Any]", head), cast("Mapping[str, Any]", facts))
    told = told_from_decision_trace(trace)
    if told.agent is None and semconv.AMFS_SESSION_ID not in told.attributes:
        raise ConfigurationError(
            "this cannot be replayed",
            where="export_trace",
            expected="a decision trace with agent_id or session_id, an explanation, or a record's document",
            got=type(trace).__qualname__,
        )
    return told


def spans_from_trace(told: ToldTrace, resource: Resource) -> Sequence[ReadableSpan]:
    """The root span `invoke_agent` and one child per step; contexts, statements, outcomes become its events.

    O(steps). Every child lies within the root's time, however incomplete the times of the trace are.
    """
    ids = _Ids(told.content_hash)
    started_ns, ended_ns = _bounds(told)
    root = span_context(ids.trace_id, ids.span_id("root"))
    shown = [step for step in told.steps if step.kind in _SPANS]
    contexts = [span_context(ids.trace_id, ids.span_id(f"step {index}")) for index in range(len(shown))]
    by_id = {step.id: context for step, context in zip(shown, contexts, strict=True) if step.id}
    spans = [_root_span(told, root, resource, started_ns, ended_ns)]
    for step, context in zip(shown, contexts, strict=True):
        parent = by_id.get(step.parent, root)
        spans.append(_step_span(step, context, root if parent is context else parent, resource, started_ns))
    return spans


class _Ids:
    """Ids of the spans of one replay."""

    def __init__(self, content_hash: str | None) -> None:
        self._seed = content_hash.encode() if content_hash else secrets.token_bytes(32)
        self.trace_id = int.from_bytes(self._digest("trace")[:16], "big") or 1

    def span_id(self, label: str) -> int:
        return int.from_bytes(self._digest(label)[:8], "big") or 1

    def _digest(self, label: str) -> bytes:
        return hashlib.sha256(b"\0".join((b"amfs-otel/replay", self._seed, label.encode()))).digest()


def _bounds(told: ToldTrace) -> tuple[int, int]:
    times = [told.started_ns, told.ended_ns, *(t for step in told.steps for t in (step.start_ns, step.end_ns))]
    known = [at for at in times if at is not None] or [time.time_ns()]
    return min(known), max(known)


def _root_span(
    told: ToldTrace, context: SpanContext, resource: Resource, started_ns: int, ended_ns: int
) -> ReadableSpan:
    attributes: dict[str, AttributeValue] = {semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_INVOKE_AGENT}
    if told.agent:
        attributes[semconv.GEN_AI_AGENT_NAME] = told.agent
    attributes.update(told.attributes)
    return finished_span(
        f"{semconv.OPERATION_INVOKE_AGENT} {told.agent}" if told.agent else semconv.OPERATION_INVOKE_AGENT,
        context,
        parent=None,
        resource=resource,
        attributes=attributes,
        start_ns=started_ns,
        end_ns=ended_ns,
        events=[
            Event(
                SPAN_EVENTS[step.kind],
                start_attributes(step.kind, step.fields, _NAMES, _source_of(step)),
                step.start_ns or ended_ns,
            )
            for step in told.steps
            if step.kind in SPAN_EVENTS
        ],
        links=[Link(link)] if (link := _original(told)) is not None else [],
    )


def _source_of(step: ToldStep) -> str:
    """The library that the step was seen in, as far as that is known."""
    return str(step.fields.get("source") or "")


def _original(told: ToldTrace) -> SpanContext | None:
    if told.origin is None:
        return None
    trace, span = told.origin
    return span_context(int(trace, 16), int(span, 16), remote=True)


def _step_span(
    step: ToldStep, context: SpanContext, parent: SpanContext, resource: Resource, started_ns: int
) -> ReadableSpan:
    fields = {name: value for name, value in step.fields.items() if value is not None}
    if step.kind in _INFERENCE:
        fields.setdefault(
            "operation", semconv.OPERATION_CHAT if step.kind is Kind.LLM_CALL else semconv.OPERATION_EMBEDDINGS
        )
        fields.setdefault("provider", _UNKNOWN)
    elif step.kind is Kind.TOOL_CALL:
        fields.setdefault("tool_name", _UNKNOWN)
    source = _source_of(step)
    attributes = {
        **end_attributes(step.kind, fields, _NAMES, source),
        **start_attributes(step.kind, fields, _NAMES, source),
    }
    if step.error_type is not None:
        attributes[semconv.ERROR_TYPE] = step.error_type
    start_ns = started_ns if step.start_ns is None else step.start_ns
    return finished_span(
        span_name(step.kind, fields, source),
        context,
        parent=parent,
        resource=resource,
        attributes=attributes,
        start_ns=start_ns,
        end_ns=max(start_ns, step.end_ns or 0),
        kind=span_kind(step.kind, fields),
        error=step.error_type is not None,
    )
