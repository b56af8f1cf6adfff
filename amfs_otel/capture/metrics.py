"""The client metrics of profile genai-0.1.0, on the application's MeterProvider, never one of ours."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.util.types import AttributeValue

from amfs_otel import semconv
from amfs_otel.capture.attributes import OPERATIONS
from amfs_otel.capture.sessions import Calls
from amfs_otel.libraries import CONVENTIONS, Conventions, Duration
from amfs_otel.model import Event, Kind
from amfs_otel.semconv import Metric

_USAGE: dict[str, Metric] = {
    "input_tokens": semconv.INFERENCE_INPUT_TOKENS,
    "output_tokens": semconv.INFERENCE_OUTPUT_TOKENS,
    "cached_tokens": semconv.INFERENCE_CACHE_READ_TOKENS,
    "cache_write_tokens": semconv.INFERENCE_CACHE_WRITE_TOKENS,
    "reasoning_tokens": semconv.INFERENCE_REASONING_TOKENS,
}


class ClientMetrics:
    """Records an ended event's metrics; instruments are made at first use.

    Args:
        meter: Meter of the application's provider; `None` records nothing (SDK disabled).
        dual: Whether the legacy metrics are recorded, too.
    """

    def __init__(self, meter: Meter | None, *, dual: bool = False) -> None:
        self._meter = meter
        self._dual = dual
        self._histograms: dict[str, Histogram] = {}
        self._counters: dict[str, Counter] = {}

    def record(self, event: Event, calls: Calls | None) -> None:
        """Records what `event`, which has ended, contributes; `calls` are those of the agent run that it is."""
        if not self.enabled:
            return
        seconds = (event.end_ns - event.start_ns) / 1e9
        own = CONVENTIONS.get(event.source)
        if event.kind is Kind.LLM_CALL:
            self._inference(event, seconds)
        elif event.kind is Kind.EMBEDDINGS:
            self._embeddings(event, seconds)
        elif own is not None and (measured := _duration_of(event, own)) is not None:
            self._observe(_metric_of(measured), seconds, _of_own(event, own))
        elif event.kind is Kind.TOOL_CALL:
            shown: dict[str, AttributeValue] = {semconv.GEN_AI_TOOL_NAME: str(event.fields.get("tool_name"))}
            self._observe(semconv.EXECUTE_TOOL_DURATION, seconds, _with_error(shown, event))
        elif event.kind is Kind.RETRIEVAL:
            self._observe(semconv.RETRIEVAL_DURATION, seconds, _with_error({}, event))
        elif event.kind is Kind.AGENT_RUN:
            self._agent_run(event, seconds, calls)
        else:
            shown = {semconv.GEN_AI_OPERATION_NAME: OPERATIONS[event.kind]}
            self._observe(semconv.OPERATION_DURATION, seconds, _with_error(shown, event))

    def _agent_run(self, event: Event, seconds: float, calls: Calls | None) -> None:
        shown: dict[str, AttributeValue] = {}
        if event.fields.get("agent_name"):
            shown[semconv.GEN_AI_AGENT_NAME] = str(event.fields["agent_name"])
        if calls is not None:
            self._observe(semconv.INVOKE_AGENT_INFERENCE_CALLS, calls.inference, shown)
            self._observe(semconv.INVOKE_AGENT_TOOL_CALLS, calls.tools, shown)
        self._observe(semconv.INVOKE_AGENT_DURATION, seconds, _with_error(shown, event))

    def _embeddings(self, event: Event, seconds: float) -> None:
        result, shown = event.result or {}, _of_call(event)
        self._observe(semconv.EMBEDDINGS_DURATION, seconds, shown)
        if result.get("input_tokens") is not None:
            self._observe(semconv.EMBEDDINGS_OPERATION_INPUT_TOKENS, result["input_tokens"], shown)
        if self._dual:
            self._legacy(seconds, result, shown)

    def _inference(self, event: Event, seconds: float) -> None:
        result = event.result or {}
        shown = _of_call(event)
        self._observe(semconv.INFERENCE_DURATION, seconds, shown)
        plain = _without_error(shown)
        first_ms = result.get("time_to_first_chunk_ms")
        if first_ms is not None:
            self._observe(semconv.INFERENCE_TIME_TO_FIRST_CHUNK, first_ms / 1000, plain)
        by_modality = {**plain, semconv.GEN_AI_TOKEN_MODALITY: semconv.MODALITY_UNKNOWN}
        for name, metric in _USAGE.items():
            count = result.get(name)
            if count is None and event.status == "error" and name in ("input_tokens", "output_tokens"):
                count = 0
            if count is not None:
                self._count(metric, count, by_modality)
        for name, metric in (
            ("input_tokens", semconv.INFERENCE_OPERATION_INPUT_TOKENS),
            ("output_tokens", semconv.INFERENCE_OPERATION_OUTPUT_TOKENS),
        ):
            if result.get(name) is not None:
                self._observe(metric, result[name], shown)
        if self._dual:
            self._legacy(seconds, result, shown)

    @property
    def enabled(self) -> bool:
        """Whether anything is recorded at all: not without a provider, which the application may still set."""
        meter = self._meter
        return meter is not None and getattr(meter, "_real_meter", meter) is not None

    def chunks(self, event: Event, gaps_ns: Sequence[int]) -> None:
        """The gaps between the chunks of a stream that has ended, ns."""
        if self.enabled:
            shown = _without_error(_of_call(event))
            for gap_ns in gaps_ns:
                self._observe(semconv.INFERENCE_TIME_PER_OUTPUT_CHUNK, gap_ns / 1e9, shown)
                if self._dual:
                    self._observe(semconv.LEGACY_TIME_PER_OUTPUT_CHUNK, gap_ns / 1e9, shown)

    def _legacy(self, seconds: float, result: Mapping[str, Any], shown: dict[str, AttributeValue]) -> None:
        """A model call in the words of before: its duration was that of any operation."""
        self._observe(semconv.OPERATION_DURATION, seconds, shown)
        plain = _without_error(shown)
        first_ms = result.get("time_to_first_chunk_ms")
        if first_ms is not None:
            self._observe(semconv.LEGACY_TIME_TO_FIRST_CHUNK, first_ms / 1000, plain)
        for name, token_type in (("input_tokens", "input"), ("output_tokens", "output")):
            if result.get(name) is not None:
                self._observe(
                    semconv.LEGACY_TOKEN_USAGE, result[name], {**plain, semconv.GEN_AI_TOKEN_TYPE: token_type}
                )

    def _observe(self, metric: Metric, value: float, shown: Mapping[str, AttributeValue]) -> None:
        histogram = self._histograms.get(metric.name)
        if histogram is None:
            assert self._meter is not None
            histogram = self._histograms[metric.name] = self._meter.create_histogram(
                metric.name,
                metric.unit,
                metric.description,
                explicit_bucket_boundaries_advisory=metric.buckets,
            )
        histogram.record(value, shown)

    def _count(self, metric: Metric, value: int, shown: Mapping[str, AttributeValue]) -> None:
        counter = self._counters.get(metric.name)
        if counter is None:
            assert self._meter is not None
            counter = self._counters[metric.name] = self._meter.create_counter(
                metric.name, metric.unit, metric.description
            )
        counter.add(value, shown)


def _of_call(event: Event) -> dict[str, AttributeValue]:
    fields, result = event.fields, event.result or {}
    shown: dict[str, AttributeValue] = {
        semconv.GEN_AI_OPERATION_NAME: fields["operation"],
        semconv.GEN_AI_PROVIDER_NAME: fields["provider"],
    }
    for name, key in (
        ("model", semconv.GEN_AI_REQUEST_MODEL),
        ("server_address", semconv.SERVER_ADDRESS),
        ("server_port", semconv.SERVER_PORT),
    ):
        if fields.get(name) is not None:
            shown[key] = fields[name]
    if result.get("response_model") is not None:
        shown[semconv.GEN_AI_RESPONSE_MODEL] = result["response_model"]
    return _with_error(shown, event)


def _duration_of(event: Event, own: Conventions) -> Duration | None:
    return own.served_duration if event.fields.get("served") is True else own.duration


@cache
def _metric_of(duration: Duration) -> Metric:
    return Metric(duration.name, "histogram", "s", duration.description, duration.buckets)


def _of_own(event: Event, own: Conventions) -> dict[str, AttributeValue]:
    """What a library's own conventions have its metrics say."""
    known = {**event.fields, **(event.result or {})}
    shown: dict[str, AttributeValue] = {
        own.attributes[name]: known[name] for name in own.measured_by if known.get(name) is not None
    }
    if event.kind in own.genai_kinds:
        shown[semconv.GEN_AI_OPERATION_NAME] = OPERATIONS[event.kind]
    if event.kind is Kind.TOOL_CALL and known.get("unlisted") is not True:
        shown[semconv.GEN_AI_TOOL_NAME] = str(known["tool_name"])
    return _with_error(shown, event)


def _without_error(shown: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {key: value for key, value in shown.items() if key != semconv.ERROR_TYPE}


def _with_error(shown: dict[str, AttributeValue], event: Event) -> dict[str, AttributeValue]:
    if event.error_type is not None:
        shown[semconv.ERROR_TYPE] = event.error_type
    return shown
