"""What every test gets: an environment without settings of ours, OpenTelemetry's or a provider's; a model on loopback."""

import os
from collections.abc import Iterator

import pytest

from amfs_otel.demo.model_server import ModelServer

SETTINGS = ("AMFS_", "ANTHROPIC_", "OTEL_", "OPENAI_")
OF_THE_TESTS = "AMFS_OTEL_TEST_"
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


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
