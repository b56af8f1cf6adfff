"""At exit, where nobody listens at the OTLP endpoint and only our telemetry waits for it.

OpenTelemetry's exporters then retry for ten seconds a signal while the program ends. The same program without us would
have nothing to send and would not wait, so neither does it with us: the exporters are told to give up. Where the
application has telemetry of its own, nothing is touched: that wait is its own.
"""

import logging
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import metrics, trace

from amfs_otel import guard
from amfs_otel.semconv import SCOPE

PROBE_S = 0.5
_OTLP = "opentelemetry.exporter.otlp"
_SHUT_DOWN_TWICE = "Exporter already shutdown"


def give_up_on_a_dead_collector(deadline: float) -> None:
    """Shuts down the OTLP exporters whose endpoint nobody listens at, before their providers flush them.

    Looks into the SDK's providers; where they are built otherwise than those of 1.39 to 1.45, nothing happens.

    Args:
        deadline: `time.monotonic()` at which the exit time is used up.
    """
    for exporter in [*_span_exporters(), *_metric_exporters()]:
        endpoint = str(getattr(exporter, "_endpoint", ""))
        if not type(exporter).__module__.startswith(_OTLP) or _is_listened_at(endpoint, deadline):
            continue
        for base in type(exporter).__mro__:
            logging.getLogger(base.__module__).addFilter(_is_news)
        exporter.shutdown()
        guard.once(
            "dead_collector",
            logging.WARNING,
            "amfs-otel: nobody listens at the OTLP endpoint; what OpenTelemetry had not sent is given up. "
            "Decision traces are not affected. `amfs-otel run` sets no exporter where none is configured.",
        )


def _span_exporters() -> Iterator[Any]:
    provider: Any = trace.get_tracer_provider()
    processors: Any = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ())
    if not any(getattr(processor, "saw_foreign_spans", False) for processor in processors):
        yield from (e for p in processors if (e := getattr(p, "span_exporter", None)) is not None)


def _metric_exporters() -> Iterator[Any]:
    provider: Any = metrics.get_meter_provider()
    scopes: set[str] = {scope.name for scope in getattr(provider, "_meters", ())}
    if scopes <= {SCOPE}:
        readers: Any = getattr(provider, "_metric_readers", ())
        yield from (e for reader in readers if (e := getattr(reader, "_exporter", None)) is not None)


def _is_listened_at(endpoint: str, deadline: float) -> bool:
    """Whether somebody takes a connection there; `True` where that cannot be told."""
    parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    if not parts.hostname or parts.port is None:
        return True
    timeout_s = min(PROBE_S, max(0.05, deadline - time.monotonic()))
    try:
        socket.create_connection((parts.hostname, parts.port), timeout_s).close()
    except OSError:
        return False
    return True


def _is_news(record: logging.LogRecord) -> bool:
    """What the exporter says when its provider shuts it down once more is none."""
    return not record.getMessage().startswith(_SHUT_DOWN_TWICE)
