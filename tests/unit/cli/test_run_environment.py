"""What `amfs-otel run` adds to a program's environment."""

import pytest

from amfs_otel.cli.run import EXPORTERS, environment

OFF = dict.fromkeys(EXPORTERS, "none")


def test_exporters_are_off_where_nothing_says_otherwise() -> None:
    assert environment({"PATH": "/bin"}) == {"PATH": "/bin", **OFF}


@pytest.mark.parametrize(
    "said",
    [
        "OTEL_TRACES_EXPORTER",
        "OTEL_METRICS_EXPORTER",
        "OTEL_LOGS_EXPORTER",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "OTEL_EXPORTER_ZIPKIN_ENDPOINT",
        "AMFS_OTEL_ENDPOINT",
    ],
)
def test_whoever_says_something_keeps_what_they_said(said: str) -> None:
    environ = {said: "console"}
    assert environment(environ) == environ


def test_an_empty_variable_says_nothing() -> None:
    assert environment({"OTEL_EXPORTER_OTLP_ENDPOINT": ""})["OTEL_TRACES_EXPORTER"] == "none"


def test_keep_content_keeps_every_text() -> None:
    assert environment({}, keep_content=True)["AMFS_OTEL_LEDGER_CONTENT"] == "all"
