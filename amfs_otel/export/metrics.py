"""Our own health as metrics, on the application's `MeterProvider`: we never make one.

All instruments are observable: they cost nothing between two collections and read one `HealthSnapshot` each time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from amfs_otel import guard, semconv


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """How the pipeline of this process is, at one moment. None = unknown; nothing is then reported, never 0.

    Attributes:
        events_dropped: Events that no record will hold, cause → count since the start.
        spool_bytes: Bytes in the local spool.
        spool_oldest_age_s: Age of the oldest spooled record, seconds; 0 where the spool is empty.
        drain_lag_s: Age of the oldest record that the store does not have, seconds.
        seal_lag_s: Age of the oldest stored record without an entry, seconds.
        records_signed: Records signed, kind → count since the start.
        patches_disabled: Patches that switched themselves off.
        internal_errors: Errors that `guard` kept from the agent, patch → count since the start.
        development_key: Whether records are signed with a development key.
    """

    events_dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    spool_bytes: int | None = None
    spool_oldest_age_s: float | None = None
    drain_lag_s: float | None = None
    seal_lag_s: float | None = None
    records_signed: Mapping[str, int] = field(default_factory=dict[str, int])
    patches_disabled: int | None = None
    internal_errors: Mapping[str, int] = field(default_factory=dict[str, int])
    development_key: bool | None = None


_Reading = Callable[[HealthSnapshot], Iterable[Observation]]


class HealthMetrics:
    """The health instruments on one meter.

    Args:
        meter: From the application's provider, scope `semconv.SCOPE`.
        snapshot: Called on the reader's thread, once per instrument and collection. It must be quick and take no lock
            that is held across I/O. An error in it is counted and reports nothing.
    """

    def __init__(self, meter: Meter, snapshot: Callable[[], HealthSnapshot]) -> None:
        self._snapshot = snapshot
        for metric, reading in _READINGS.items():
            create = (
                meter.create_observable_counter
                if metric.instrument == "observable_counter"
                else meter.create_observable_gauge
            )
            create(metric.name, [self._callback(reading)], unit=metric.unit, description=metric.description)

    def _callback(self, reading: _Reading) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            now = guard.run("metrics", self._snapshot)
            return () if now is None else reading(now)

        return observe


def _one(value: float | None) -> Iterable[Observation]:
    return () if value is None else (Observation(value),)


def _each(counts: Mapping[str, int], key: str) -> Iterable[Observation]:
    return [Observation(count, {key: name}) for name, count in counts.items()]


_READINGS: dict[semconv.Metric, _Reading] = {
    semconv.EVENTS_DROPPED: lambda now: _each(now.events_dropped, semconv.AMFS_DROP_CAUSE),
    semconv.SPOOL_SIZE: lambda now: _one(now.spool_bytes),
    semconv.SPOOL_OLDEST_AGE: lambda now: _one(now.spool_oldest_age_s),
    semconv.DRAIN_LAG: lambda now: _one(now.drain_lag_s),
    semconv.SEAL_LAG: lambda now: _one(now.seal_lag_s),
    semconv.RECORDS_SIGNED: lambda now: _each(now.records_signed, semconv.AMFS_RECORD_KIND),
    semconv.PATCHES_DISABLED: lambda now: _one(now.patches_disabled),
    semconv.INTERNAL_ERRORS: lambda now: _each(now.internal_errors, semconv.AMFS_PATCH),
    semconv.DEVELOPMENT_KEY: lambda now: _one(None if now.development_key is None else int(now.development_key)),
}
