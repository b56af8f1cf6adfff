"""Whether our hook starts under `opentelemetry-instrument`: tried, in a process of its own."""

import pytest

from amfs_otel.doctor.hook import hook_facts


def test_it_starts_in_an_ordinary_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRACES", "METRICS", "LOGS"):
        monkeypatch.setenv(f"OTEL_{name}_EXPORTER", "none")
    assert hook_facts().ran


def test_one_wrong_exporter_stops_everything_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "no-such-exporter")
    found = hook_facts()
    assert not found.ran
    assert "no-such-exporter" in found.said
