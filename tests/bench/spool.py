"""The spool against plain `write` and `fdatasync` of the same bytes to the same file system."""

from __future__ import annotations

import os
import secrets
import statistics
import tempfile
import time
from pathlib import Path

from amfs_otel.spool import LOCAL, SpoolWriter, StateDirectory
from tests.bench.report import TIMES, Effort, Figure, Section

SIZES = (1536, 16384)


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("Spool")
    with tempfile.TemporaryDirectory(prefix="amfs-otel-bench-") as home:
        for size in SIZES:
            payload = secrets.token_bytes(size)
            ratios: list[float] = []
            speeds: list[float] = []
            for number in range(effort.of(8, 3)):
                plain = _plain(Path(home) / f"plain-{size}-{number}", payload, effort.of(100, 40))
                ours = _spooled(StateDirectory(Path(home) / f"state-{size}-{number}"), payload, effort.of(100, 40))
                ratios.append(ours / plain)
                speeds.append(ours)
            section.figures.append(
                Figure(
                    f"frames of {size / 1024:g} KiB, each on the medium, of write + fdatasync",
                    statistics.median(ratios),
                    TIMES,
                    0.8,
                    at_least=True,
                    note=f"{statistics.median(speeds):,.0f} a second here",
                )
            )
    return section


def _plain(path: Path, payload: bytes, count: int) -> float:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, payload)
        os.fdatasync(descriptor)
        started = time.perf_counter()
        for _ in range(count):
            os.write(descriptor, payload)
            os.fdatasync(descriptor)
        return count / (time.perf_counter() - started)
    finally:
        os.close(descriptor)


def _spooled(state: StateDirectory, payload: bytes, count: int) -> float:
    identity = secrets.token_bytes(16)
    with SpoolWriter(state, LOCAL) as writer:
        writer.append("records", identity, payload)
        writer.sync()
        started = time.perf_counter()
        for _ in range(count):
            writer.append("records", identity, payload)
            writer.sync()
        return count / (time.perf_counter() - started)
