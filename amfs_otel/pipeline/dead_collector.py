"""At exit, where the OTLP endpoint is dead and only our telemetry waits for it.

OpenTelemetry's exporters then retry or wait for ten seconds a signal while the program ends. The same program without
us would have nothing to send and would not wait, so with us it waits no longer than the exit time: an endpoint that
refuses is given up at once, one that has not answered a running export when the time is up is given up then, and what
is sent at the very end gets what is left of the time. Where the application has telemetry of its own, nothing is
touched: that wait is its own.
"""

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import metrics, trace

from amfs_otel import guard
from amfs_otel.semconv import SCOPE

PROBE_S = 0.5
LEAST_S = 0.1
"""For each signal, however little of the exit time is left."""
_OTLP = "opentelemetry.exporter.otlp"
_NO_NEWS = (
    "Exporter already shutdown",
    "Can't shutdown multiple times",
    "Failed to export metrics",
    "Failed to export spans",
    "Failed to export traces",
    "Shutdown in progress",
    "Transient error",
)


@dataclass(frozen=True, slots=True)
class _Way:
    """From a provider to an OTLP endpoint.

    Attributes:
        exporter: The SDK's exporter.
        lock: Held while an export runs.
        give_up: Ends it without waiting: what it still holds is dropped, a running export is left to its daemon thread.
    """

    exporter: Any
    lock: Any
    give_up: Callable[[], object]

    @property
    def endpoint(self) -> str:
        """Where it leads to: a URL, or host and port."""
        return str(getattr(self.exporter, "_endpoint", ""))


class OwnExporters:
    """The OTLP exporters that only we use, as a program has them when it ends.

    Looks into the SDK's providers; where they are built otherwise than those of 1.39 to 1.45, none is found.
    """

    def __init__(self) -> None:
        ways = (*_span_ways(), *_metric_ways())
        self._ways = [way for way in ways if type(way.exporter).__module__.startswith(_OTLP)]
        self._listened: dict[str, bool] = {}
        self._probed = threading.Event()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._ways)

    def probe(self) -> None:
        """Tries whether somebody listens, for `hurry`; on another thread, as resolving a name knows no time limit."""
        for endpoint in {way.endpoint for way in self._ways}:
            self._listened[endpoint] = _is_listened_at(endpoint)
        self._probed.set()

    def hurry(self, deadline: float) -> None:
        """Keeps them within the exit time, before their providers flush them.

        Args:
            deadline: `time.monotonic()` at which the time for all of them is used up.
        """
        # First of all, so that an export whose lock is free from here on is no longer one with a limit of its own.
        self._limit(self._ways, deadline, 1)
        self._probed.wait(max(0.0, deadline - time.monotonic()))
        alive: list[_Way] = []
        for way in self._ways:
            why = self._given_up_because(way, deadline)
            if why is None:
                alive.append(way)
            else:
                _give_up(way, why)
        self._limit(alive, deadline, len(alive))  # they flush one after the other

    @staticmethod
    def _limit(ways: list[_Way], deadline: float, parts: int) -> None:
        for way in ways:
            _limit(way.exporter, max(LEAST_S, (deadline - time.monotonic()) / parts))

    def _given_up_because(self, way: _Way, deadline: float) -> str | None:
        listened = self._listened.get(way.endpoint)
        if listened is None:
            return "the OTLP endpoint was not reached in time"
        if not listened:
            return "nobody listens at the OTLP endpoint"
        if not _is_idle(way.lock, deadline):
            return "the OTLP endpoint takes connections and does not answer"
        return None


def _span_ways() -> Iterator[_Way]:
    provider: Any = trace.get_tracer_provider()
    processors: Any = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ())
    if any(getattr(processor, "saw_foreign_spans", False) for processor in processors):
        return
    for processor in processors:
        batch: Any = getattr(processor, "_batch_processor", None)
        if batch is not None and hasattr(processor, "span_exporter"):
            yield _Way(processor.span_exporter, batch._export_lock, lambda batch=batch: batch.shutdown(0))  # noqa: SLF001


def _metric_ways() -> Iterator[_Way]:
    provider: Any = metrics.get_meter_provider()
    scopes: set[str] = {scope.name for scope in getattr(provider, "_meters", ())}
    if not scopes <= {SCOPE}:
        return
    for reader in getattr(provider, "_metric_readers", ()):
        if hasattr(reader, "_exporter") and hasattr(reader, "_export_lock"):
            yield _Way(reader._exporter, reader._export_lock, lambda reader=reader: reader.shutdown(0))  # noqa: SLF001


def _is_listened_at(endpoint: str) -> bool:
    """Whether somebody takes a connection there; `True` where that cannot be told."""
    parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    if not parts.hostname or parts.port is None or _is_behind_a_proxy(parts.hostname):
        return True
    try:
        socket.create_connection((parts.hostname, parts.port), PROBE_S).close()
    except OSError:
        return False
    return True


def _is_behind_a_proxy(host: str) -> bool:
    """Whether an exporter goes to `host` by way of a proxy, as far as the modules that would do it are loaded."""
    request: Any = sys.modules.get("urllib.request")
    return request is not None and bool(request.getproxies()) and not request.proxy_bypass(host)


def _is_idle(lock: Any, deadline: float) -> bool:
    """Whether no export runs, now or by the deadline."""
    if not lock.acquire(timeout=max(LEAST_S, deadline - time.monotonic())):
        return False
    lock.release()
    return True


def _limit(exporter: Any, timeout_s: float) -> None:
    """Whatever the exporter still sends is sent within this time; a shorter limit of the user stays."""
    for owner in (exporter, getattr(exporter, "_client", None)):
        own: object = getattr(owner, "_timeout", None)
        if isinstance(own, int | float) and own > timeout_s:
            owner._timeout = timeout_s  # type: ignore[union-attr]  # noqa: SLF001


def _give_up(way: _Way, why: str) -> None:
    for base in type(way.exporter).__mro__:
        logging.getLogger(base.__module__).addFilter(_is_news)
    logging.getLogger("opentelemetry.sdk.metrics._internal.export").addFilter(_is_news)
    way.give_up()
    guard.once(
        "dead_collector",
        logging.WARNING,
        f"amfs-otel: {why}; what OpenTelemetry had not sent is given up. "
        "Decision traces are not affected. `amfs-otel run` sets no exporter where none is configured.",
    )


def _is_news(record: logging.LogRecord) -> bool:
    """What an exporter or a reader that was given up says of that, or when it is shut down once more, is none."""
    return not record.getMessage().startswith(_NO_NEWS)
