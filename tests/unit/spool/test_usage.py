"""How much is used and what it asks for."""

import subprocess
import sys
from pathlib import Path

import pytest

from amfs_otel.spool import Pressure, SpoolWriter, StateDirectory, pressure_from_usage, usage_bytes


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (0, Pressure.NONE),
        (499, Pressure.NONE),
        (500, Pressure.WARN),
        (900, Pressure.NO_MESSAGE_PARTS),
        (970, Pressure.NO_NEW_SESSIONS),
        (1000, Pressure.FULL),
        (2000, Pressure.FULL),
    ],
)
def test_levels(used: int, expected: Pressure) -> None:
    assert pressure_from_usage(used, 1000) is expected


def test_all_writers_and_destinations_count(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    assert usage_bytes(state) == 0
    with SpoolWriter(state, "local") as near, SpoolWriter(state, "f" * 64) as far:
        ends = [w.append("records", b"a" * 16, b"x" * 1000).end for w in (near, far)]
        assert usage_bytes(state) == sum(ends)
        assert near.used_bytes() == sum(ends) or near.used_bytes() == ends[0], "others' bytes may be seconds old"


def test_importing_the_spool_loads_nothing_heavy() -> None:
    code = "import sys; import amfs_otel.spool; print(*sorted(m for m in sys.modules if m.split('.')[0] in HEAVY))"
    heavy = {
        "asyncio",
        "cryptography",
        "logging",
        "opentelemetry",
        "psycopg",
        "random",
        "socket",
        "subprocess",
        "tempfile",
    }
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {heavy!r}\n{code}"], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == []
