import pytest

from amfs_otel.errors import ConfigurationError
from amfs_otel.export.otlp import new_span_id, new_trace_id, otlp_exporter, traces_url


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp", "https://c/otlp/v1/traces"),
        ("https://c/otlp/v1/traces", "https://c/otlp/v1/traces"),
        ("https://c/v1/traces/", "https://c/v1/traces"),
        ("https://c/otlp?key=1", "https://c/otlp/v1/traces?key=1"),
        ("c:4318", "http://c:4318/v1/traces"),
    ],
)
def test_the_traces_path_is_there_once(endpoint, url):
    assert traces_url(endpoint) == url


def test_another_protocol_is_named():
    with pytest.raises(ConfigurationError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL.*http/protobuf, got 'http/json'"):
        otlp_exporter("http://c:4318", "http/json")


def test_ids_are_never_the_invalid_zero(monkeypatch):
    monkeypatch.setattr("secrets.randbits", lambda _bits: 0)
    assert (new_trace_id(), new_span_id()) == (1, 1)
