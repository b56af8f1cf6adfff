"""Nanoseconds since the epoch -> what answers and tables show. Unknown or impossible times are None, never 0."""

from datetime import UTC, datetime
from typing import Any

from amfs_otel.graph.texts import integer

_LAST_NS = 253_402_300_799 * 10**9  # 9999-12-31, the last day that datetime knows


def moment(time_ns: Any) -> datetime | None:
    """The UTC time of `time_ns`, cut to microseconds."""
    ns = integer(time_ns)
    if ns is None or not 0 < ns <= _LAST_NS:
        return None
    seconds, rest_ns = divmod(ns, 10**9)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)


def rfc3339(time_ns: Any) -> str | None:
    """RFC 3339 with microseconds and Z, as in record headers."""
    when = moment(time_ns)
    return when and rfc3339_of(when)


def rfc3339_of(when: datetime) -> str:
    """RFC 3339 with microseconds and Z of an aware time."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def span_ms(start_ns: Any, end_ns: Any) -> float | None:
    """Milliseconds from start to end, to the microsecond."""
    start, end = integer(start_ns), integer(end_ns)
    return None if start is None or end is None or end < start else round((end - start) / 1e6, 3)
