"""Microseconds since the epoch -> what answers and tables show. Unknown or impossible times are None, never 0."""

from datetime import UTC, datetime, timedelta
from typing import Any

from amfs_otel.graph.texts import integer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = 253_402_300_799 * 10**6  # 9999-12-31, the last day that datetime knows


def moment(time_us: Any) -> datetime | None:
    """The UTC time of `time_us`."""
    us = integer(time_us)
    if us is None or not 0 < us <= _LAST_US:
        return None
    return _EPOCH + timedelta(microseconds=us)


def rfc3339(time_us: Any) -> str | None:
    """RFC 3339 with microseconds and Z, as in record headers."""
    when = moment(time_us)
    return when and rfc3339_of(when)


def rfc3339_of(when: datetime) -> str:
    """RFC 3339 with microseconds and Z of an aware time."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def span_ms(start_us: Any, end_us: Any) -> float | None:
    """Milliseconds from start to end, to the microsecond."""
    start, end = integer(start_us), integer(end_us)
    return None if start is None or end is None or end < start else (end - start) / 1000
