"""Our health metrics and the Collector's span metrics, through collector.yaml into a real Prometheus."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from amfs_otel.semconv import AMFS_DROP_CAUSE, HEALTH_METRICS, Metric
from tests.backends.conftest import CollectorFactory
from tests.backends.jaeger_api import LOOPBACK
from tests.backends.servers import CONFIGURATIONS, Prometheus, wait_until
from tests.backends.spans import send_agent_trace, tracer_to

pytestmark = pytest.mark.backends


def settings_for(prometheus: Prometheus) -> dict[str, str]:
    return {
        "AMFS_COLLECTOR_METRICS_ENDPOINT": prometheus.otlp_http,
        "AMFS_COLLECTOR_METRICS_EXPORTER": "otlp_http/prometheus",
        "AMFS_COLLECTOR_SPAN_METRICS_INTERVAL": "500ms",
    }


def ask(prometheus: Prometheus, path: str, **query: str) -> Any:
    with LOOPBACK.open(f"{prometheus.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=5) as response:
        return json.load(response)["data"]


def names_in_rules() -> set[str]:
    rules = [
        rule["expr"]
        for group in yaml.safe_load((CONFIGURATIONS / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    return {name for rule in rules for name in re.findall(r"\bamfs_\w+", rule)}


def observe(meter: Meter, metric: Metric) -> None:
    def one(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(3, {AMFS_DROP_CAUSE: "queue_full"})]

    create = {
        "observable_counter": meter.create_observable_counter,
        "observable_gauge": meter.create_observable_gauge,
    }[metric.instrument]
    create(metric.name, callbacks=[one], unit=metric.unit, description=metric.description)


def test_alerts_name_our_metrics_as_prometheus_does(prometheus: Prometheus, collector: CollectorFactory) -> None:
    running = collector(**settings_for(prometheus))
    exporter = OTLPMetricExporter(endpoint=f"{running.otlp_http}/v1/metrics")
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    resource = Resource({"service.name": "metered-agent", "service.instance.id": "a"})
    provider = MeterProvider([reader], resource=resource)
    for metric in HEALTH_METRICS:
        observe(provider.get_meter("amfs-otel"), metric)
    assert provider.force_flush()
    provider.shutdown()

    selector = '{__name__=~"amfs_.*", job="metered-agent", instance="a"}'
    series = wait_until(lambda: ask(prometheus, "query", query=selector)["result"], "health metrics in Prometheus")
    names = {each["metric"]["__name__"] for each in series}
    assert len(names) == len(HEALTH_METRICS)
    assert names_in_rules() <= names
    dropped = next(each["metric"] for each in series if each["metric"]["__name__"] == "amfs_events_dropped_total")
    assert dropped["amfs_drop_cause"] == "queue_full"
    wait_until(
        lambda: "AmfsEventsDropped" in {alert["labels"]["alertname"] for alert in ask(prometheus, "alerts")["alerts"]},
        "Prometheus to raise the alert",
        40,
    )


def test_span_metrics_count_all_traces(prometheus: Prometheus, collector: CollectorFactory) -> None:
    """What the sampler leaves out is counted all the same, and receipts are not."""
    running = collector(**settings_for(prometheus), AMFS_COLLECTOR_KEEP_PERCENT="0")
    with tracer_to(running.otlp_http, "counted-agent") as tracer:
        for _ in range(7):
            send_agent_trace(tracer)
    with tracer_to(running.otlp_http, "amfs-otel") as tracer, tracer.start_as_current_span("amfs.record"):
        pass

    query = 'sum by (gen_ai_request_model) (traces_span_metrics_calls_total{gen_ai_operation_name="chat"})'
    found = wait_until(lambda: ask(prometheus, "query", query=query)["result"], "span metrics in Prometheus")
    assert [(each["metric"]["gen_ai_request_model"], each["value"][1]) for each in found] == [("gpt-5", "7")]
    assert ask(prometheus, "query", query='traces_span_metrics_calls_total{span_name="amfs.record"}')["result"] == []
