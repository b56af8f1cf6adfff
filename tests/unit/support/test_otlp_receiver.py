"""The receiver is a real one: OpenTelemetry's own exporters are content with it, in each way it can behave."""

import time

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode

from tests.support.otlp_decode import span_from_readable
from tests.support.otlp_receiver import OtlpReceiver, refused_endpoint

PROTOCOLS = ("grpc", "http/protobuf")


def exporter(endpoint, protocol, timeout=5.0):
    if protocol == "grpc":
        return GrpcSpans(endpoint=endpoint, timeout=timeout, insecure=True)
    return HttpSpans(endpoint=f"{endpoint}/v1/traces", timeout=timeout)


@pytest.fixture
def spans():
    kept = []

    class Keep(SimpleSpanProcessor):
        def __init__(self):
            pass

        def on_end(self, span):
            kept.append(span)

        def shutdown(self):
            pass

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Keep())
    tracer = provider.get_tracer("probe", "7")
    with tracer.start_as_current_span("root", kind=SpanKind.CLIENT) as root:
        root.set_attributes({"s": "text", "i": 1, "d": 1.0, "b": True, "l": ["x", "y"]})
        root.add_event("noted", {"n": 1})
        root.set_status(Status(StatusCode.ERROR, "why"))
        with tracer.start_as_current_span("child"):
            pass
    return kept


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_spans_arrive_as_they_were(protocol, spans):
    with OtlpReceiver() as receiver:
        sender = exporter(receiver.endpoint(protocol), protocol)
        assert sender.export(spans) is SpanExportResult.SUCCESS
        sender.shutdown()
        child, root = receiver.wait_for_spans(2)
    assert (root.name, root.kind, root.status, root.status_message) == ("root", "client", "error", "why")
    assert root.attributes == {"s": "text", "i": 1, "d": 1.0, "b": True, "l": ["x", "y"]}
    assert [type(value) for value in root.attributes.values()] == [str, int, float, bool, list]
    assert [(event.name, event.attributes) for event in root.events] == [("noted", {"n": 1})]
    assert (child.parent_id, child.trace_id) == (root.span_id, root.trace_id)
    assert (root.scope, root.scope_version) == ("probe", "7")
    assert root.resource["telemetry.sdk.language"] == "python"
    local = span_from_readable(spans[1])
    assert (local.attributes, local.span_id, local.end_ns) == (root.attributes, root.span_id, root.end_ns)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_metrics_arrive(protocol):
    with OtlpReceiver() as receiver:
        endpoint = receiver.endpoint(protocol)
        sender = (
            GrpcMetrics(endpoint=endpoint, insecure=True)
            if protocol == "grpc"
            else HttpMetrics(endpoint=f"{endpoint}/v1/metrics")
        )
        provider = MeterProvider([PeriodicExportingMetricReader(sender)], shutdown_on_exit=False)
        meter = provider.get_meter("probe")
        meter.create_counter("count", "{x}").add(2, {"k": "v"})
        meter.create_histogram("time", "s", explicit_bucket_boundaries_advisory=[1, 2]).record(1.5)
        meter.create_up_down_counter("level").add(-1)
        provider.shutdown()
        found = {metric.name: metric for metric in receiver.metrics}
    assert (found["count"].instrument, found["count"].unit) == ("counter", "{x}")
    assert found["count"].points == (({"k": "v"}, 2),)
    assert (found["time"].instrument, found["time"].buckets) == ("histogram", (1.0, 2.0))
    assert found["time"].points == (({}, (1, 1.5)),)
    assert found["level"].instrument == "updowncounter"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("behaviour", ["unavailable", "reject", "hang"])
def test_it_can_misbehave(protocol, behaviour, spans):
    with OtlpReceiver(behaviour) as receiver:
        sender = exporter(receiver.endpoint(protocol), protocol, timeout=0.4)
        began = time.monotonic()
        assert sender.export(spans) is SpanExportResult.FAILURE
        assert time.monotonic() - began < 5
        assert receiver.paths
        assert receiver.spans == []
        receiver.behave("ok")
        assert sender.export(spans) is SpanExportResult.SUCCESS
        assert len(receiver.spans) == 2
        sender.shutdown()


def test_nobody_listens_on_a_refused_endpoint(spans):
    sender = exporter(refused_endpoint(), "http/protobuf", timeout=0.3)
    assert sender.export(spans) is SpanExportResult.FAILURE
    sender.shutdown()


def test_waiting_says_what_came_instead(spans):
    with OtlpReceiver() as receiver:
        sender = exporter(receiver.http_endpoint, "http/protobuf")
        sender.export(spans)
        sender.shutdown()
        with pytest.raises(AssertionError, match=r"5 spans.*'child', 'root'"):
            receiver.wait_for_spans(5, timeout_s=0.05)
