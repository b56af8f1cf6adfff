"""Fixtures for tests against a real Jaeger, Collector and Prometheus, started on loopback with free ports.

They run with `--backends` only (conftest.py of the repository). A Jaeger or Collector that is not built then fails its
tests: a run that is meant to prove something cannot pass by leaving it out. Prometheus is an extra and listed as not run.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.backends.programs import COLLECTOR, EXTRAS, JAEGER, PROMETHEUS, PROMTOOL, Program, binary_path, is_built
from tests.backends.servers import (
    CONFIGURATIONS,
    Collector,
    Jaeger,
    Prometheus,
    collector_server,
    jaeger_server,
    prometheus_server,
)
from tests.support.not_run import not_run

CollectorFactory = Callable[..., Collector]
"""`collector_server` without its log: `(configuration=..., **settings)`; runs until the test ends."""


def _binary(program: Program) -> Path:
    if not is_built(program):
        if program in EXTRAS:
            not_run(f"{program.title} is not built: `python -m tests.backends --all`")
        pytest.fail(f"{program.title} is not built: run `make backends` (needs Go >= 1.26)", pytrace=False)
    return binary_path(program)


@pytest.fixture(scope="session")
def otelcol() -> Path:
    """The Collector's binary."""
    return _binary(COLLECTOR)


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own checker of rules."""
    return _binary(PROMTOOL)


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """One Jaeger for the whole run: tests tell their traces apart by service or by trace id."""
    _binary(JAEGER)
    with jaeger_server(tmp_path_factory.mktemp("jaeger") / "jaeger.log") as running:
        yield running


@pytest.fixture
def collector(otelcol: Path, tmp_path: Path) -> Iterator[CollectorFactory]:
    """Start Collectors that run until the test ends: `collector(configuration=..., AMFS_COLLECTOR_...="...")`."""
    with contextlib.ExitStack() as stack:
        numbers = itertools.count(1)

        def start(configuration: Path = CONFIGURATIONS / "collector.yaml", **settings: str) -> Collector:
            log = tmp_path / f"collector-{next(numbers)}.log"
            return stack.enter_context(collector_server(log, configuration, **settings))

        yield start


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that takes OTLP and evaluates `collector-config/alerts.yaml`, empty."""
    _binary(PROMETHEUS)
    with prometheus_server(tmp_path) as running:
        yield running
