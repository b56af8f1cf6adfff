"""What every test gets: an environment without settings of ours, OpenTelemetry's or a provider's; a model on loopback."""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs_otel.demo.model_server import ModelServer

SETTINGS = ("AMFS_", "ANTHROPIC_", "OTEL_", "OPENAI_")
OF_THE_TESTS = "AMFS_OTEL_TEST_"
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests may take longest and end with the quick ones, else in the order given.

    A file is run by one process: where a long one begins last, the others have ended and it runs alone.
    """
    patience_s: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        if mark := item.get_closest_marker("timeout"):
            patience_s[item.path] = max(patience_s[item.path], mark.args[0])
    items.sort(key=lambda item: (-patience_s[item.path], "unit" in item.path.parts))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the machine's own environment would change, proxies included; `AMFS_OTEL_TEST_*` stays."""
    for name in tuple(os.environ):
        setting = name.startswith(SETTINGS) and not name.startswith(OF_THE_TESTS)
        if setting or name.lower() in PROXIES:
            monkeypatch.delenv(name)


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A server of the provider's wire format on a free port; see `amfs_otel.demo.model_server`."""
    with ModelServer() as server:
        yield server
