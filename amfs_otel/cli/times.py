"""Times as people write them."""

import re
from datetime import UTC, datetime, timedelta

from amfs_otel.errors import ConfigurationError

_AGO = re.compile(r"(\d{1,6})\s*(s|m|h|d|w)(?:\s+ago)?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_from(text: str, *, where: str, now: datetime | None = None) -> datetime:
    """The aware time that a text means: RFC 3339, a date, or `30m`, `6h`, `7d` ago. Without a zone it is local time.

    Args:
        text: What was typed.
        where: The option, for the message.
        now: Default: the clock.

    Raises:
        ConfigurationError: It is none of these.
    """
    match = _AGO.fullmatch(text.strip())
    if match:
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(
            "is no time",
            where=where,
            expected="RFC 3339 (2026-11-30T17:00:00Z), a date, or 30m, 6h, 7d ago",
            got=repr(text[:40]),
        ) from None
    return found.astimezone()
