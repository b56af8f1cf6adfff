"""Synthetic spans for the backends: what an agent and a sealing process send, made with the OpenTelemetry SDK.

They have the shape of ours (`invoke_agent`, `chat`, `execute_tool`, and `amfs.record` as a child of the root), so that
what a Collector configuration does to them it does to ours.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from amfs_otel.semconv import RECEIPT_SERVICE, RECEIPT_SPAN

AGENT_SPANS = ("invoke_agent deploy-agent", "chat gpt-5", "execute_tool lookup")


class SeededIds(IdGenerator):
    """Ids from a seed of the test's own: the plugin that orders tests at random reseeds the SDK's source for each."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()

    def generate_span_id(self) -> int:
        return self._random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._random.getrandbits(128) or 1


@dataclass(frozen=True, slots=True)
class SentTrace:
    """A trace that was sent: its id as 32 hex digits, and the context of its root span."""

    trace_id: str
    root: SpanContext


@contextlib.contextmanager
def tracer_to(otlp_http: str, service: str, seed: int | None = None) -> Generator[Tracer]:
    """A tracer whose spans have all been sent to `otlp_http` when the block ends."""
    exporter = OTLPSpanExporter(endpoint=f"{otlp_http}/v1/traces", timeout=10)
    provider = TracerProvider(
        resource=Resource({"service.name": service, "service.version": "1.2.3"}), id_generator=SeededIds(seed)
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("amfs-otel", "0.1.0")
        assert provider.force_flush()
    finally:
        provider.shutdown()


def send_agent_trace(tracer: Tracer, *, failed: bool = False) -> SentTrace:
    """One agent run: a root, a model call and a tool call below it; the tool fails if `failed`."""
    root_name, chat_name, tool_name = AGENT_SPANS
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "deploy-agent"}
    with tracer.start_as_current_span(root_name, attributes=agent) as root:
        root.add_event("amfs.context", {"amfs.context.label": "git-log", "amfs.context.source": "git"})
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.finish_reasons": ("stop", "tool_calls"),
            "gen_ai.usage.input_tokens": 2**40,
        }
        with tracer.start_as_current_span(chat_name, kind=SpanKind.CLIENT, attributes=chat):
            pass
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}
        with tracer.start_as_current_span(tool_name, attributes=tool) as span:
            if failed:
                span.set_status(Status(StatusCode.ERROR, "no such host"))
    context = root.get_span_context()
    return SentTrace(f"{context.trace_id:032x}", context)


def send_child(
    tracer: Tracer, parent: SpanContext, name: str, attributes: Mapping[str, str | int] | None = None
) -> SpanContext:
    """One span `name` below `parent`, which another process has made; returns its context."""
    remote = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    where = set_span_in_context(NonRecordingSpan(remote))
    with tracer.start_as_current_span(name, context=where, attributes=attributes) as span:
        return span.get_span_context()


def record_hash_of(sent: SentTrace) -> str:
    """What its receipt bears; another for each trace, because one Jaeger serves all tests."""
    return sent.trace_id.rjust(64, "0")


def send_receipts(otlp_http: str, traces: list[SentTrace], *, name: str = RECEIPT_SPAN) -> None:
    """One receipt for each trace, as the sealing process sends it; numbered in `amfs.sequence_number` from 1."""
    with tracer_to(otlp_http, RECEIPT_SERVICE) as tracer:
        for number, sent in enumerate(traces, start=1):
            attributes = {"amfs.sequence_number": number, "amfs.record_hash": record_hash_of(sent)}
            send_child(tracer, sent.root, name, attributes)
