"""Health metrics on a real SDK meter, checked by the oracle; unknown is no observation, an error of ours is silent."""

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from amfs_otel import guard, semconv
from amfs_otel.export.metrics import HealthMetrics, HealthSnapshot
from tests.support.oracle import check_metrics
from tests.support.otlp_decode import metrics_from_request


@pytest.fixture
def read():
    """Makes the instruments over a snapshot; returns what a collection then exports, as OTLP."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)

    def metrics(snapshot):
        HealthMetrics(provider.get_meter(semconv.SCOPE), snapshot)
        data = reader.get_metrics_data()
        return [] if data is None else metrics_from_request(encode_metrics(data))

    yield metrics
    provider.shutdown()
    guard.reset()


FULL = HealthSnapshot(
    events_dropped={"queue_full": 3, "spool_full": 1},
    spool_bytes=4096,
    spool_oldest_age_s=1.5,
    drain_lag_s=2.5,
    seal_lag_s=0.0,
    records_signed={"decision": 5, "outcome": 2},
    patches_disabled=0,
    internal_errors={"openai": 4},
    development_key=True,
)


def test_every_health_metric_is_reported_with_its_unit(read):
    found = {metric.name: metric for metric in read(lambda: FULL)}
    assert {name: metric.unit for name, metric in found.items()} == {m.name: m.unit for m in semconv.HEALTH_METRICS}
    assert {name: metric.instrument for name, metric in found.items()} == {
        m.name: m.instrument.removeprefix("observable_") for m in semconv.HEALTH_METRICS
    }
    assert {name: list(metric.points) for name, metric in found.items()} == {
        "amfs.events.dropped": [({"amfs.drop.cause": "queue_full"}, 3), ({"amfs.drop.cause": "spool_full"}, 1)],
        "amfs.spool.size": [({}, 4096)],
        "amfs.spool.oldest_age": [({}, 1.5)],
        "amfs.drain.lag": [({}, 2.5)],
        "amfs.seal.lag": [({}, 0.0)],
        "amfs.records.signed": [({"amfs.record.kind": "decision"}, 5), ({"amfs.record.kind": "outcome"}, 2)],
        "amfs.patches.disabled": [({}, 0)],
        "amfs.internal_errors": [({"amfs.patch": "openai"}, 4)],
        "amfs.development_key": [({}, 1)],
    }
    assert check_metrics(found.values()) == []


def test_what_is_unknown_is_not_reported(read):
    assert read(HealthSnapshot) == []


def test_an_error_in_the_snapshot_is_counted_and_reports_nothing(read):
    def broken():
        raise OSError("the spool is gone")

    assert read(broken) == []
    assert guard.counters()["metrics"]["errors"] == len(semconv.HEALTH_METRICS)
