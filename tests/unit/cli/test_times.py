"""Times as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from amfs_otel.cli.times import moment_from
from amfs_otel.errors import ConfigurationError

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("30s", timedelta(seconds=30)),
        ("30m", timedelta(minutes=30)),
        ("6h", timedelta(hours=6)),
        ("6h ago", timedelta(hours=6)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_ago(text: str, ago: timedelta) -> None:
    assert moment_from(text, where="--since", now=NOW) == NOW - ago


def test_with_a_zone_it_is_that_moment() -> None:
    assert moment_from("2026-11-30T13:00:00+01:00", where="--since") == NOW
    assert moment_from("2026-11-30T12:00:00Z", where="--since") == NOW


def test_without_a_zone_it_is_local_time() -> None:
    assert moment_from("2026-11-30T12:00:00", where="--at") == datetime(2026, 11, 30, 12).astimezone()
    assert moment_from("2026-11-30", where="--at").tzinfo is not None


@pytest.mark.parametrize("text", ["", "soon", "7y", "-3d", "2026-13-01", "99999999999d"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--since"):
        moment_from(text, where="--since")
