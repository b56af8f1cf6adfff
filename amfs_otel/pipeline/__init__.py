"""Wires one process: capture → intake → assembler → signer → spool → drain.

`start` is what the hook under `opentelemetry-instrument`, `amfs_otel.instrument()` and tests call. There is one
`Pipeline` per process; a forked child gets a new one. Nothing runs before the first event.
"""

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace

from amfs_otel import capture, guard
from amfs_otel.capture.content import masker_from_file
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.runtime import Capture
from amfs_otel.pipeline.intake import Intake
from amfs_otel.pipeline.late import LateWorker
from amfs_otel.pipeline.lifecycle import Exit
from amfs_otel.semconv import SCOPE
from amfs_otel.settings import Settings

if TYPE_CHECKING:
    from amfs_otel.pipeline.worker import Worker

__all__ = ["Pipeline", "current", "start", "stop"]

IMPORT_LIMIT_S = 5.0
"""A fork waits at most that long for the worker to be imported."""

_lock = threading.Lock()
_current: "Pipeline | None" = None


@dataclass(slots=True)
class Pipeline:
    """The parts of one process."""

    settings: Settings
    intake: Intake
    capture: Capture
    late: LateWorker
    exit: Exit
    tracer_provider: trace.TracerProvider | None

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Makes everything captured so far durable; with a DSN also delivers it.

        Returns:
            Whether that was done within `timeout_s` seconds.
        """
        return self.late.flush(timeout_s)

    def spool_now(self, timeout_s: float) -> bool:
        """Makes everything captured so far durable on this machine; whether that was done in time."""
        return self.late.spool_now(timeout_s)

    def trace_with(self, tracer_provider: trace.TracerProvider | None) -> None:
        """Gives the spans that start from now on to `tracer_provider`, if one is named."""
        if tracer_provider is not None and tracer_provider is not self.tracer_provider:
            self.tracer_provider = tracer_provider
            self.capture.tracer = trace.get_tracer(SCOPE, _version(), tracer_provider)

    @property
    def worker(self) -> "Worker":
        """The worker, imported and made here where nothing was captured yet."""
        return self.late.made()


def start(settings: Settings | None = None, *, tracer_provider: trace.TracerProvider | None = None) -> Pipeline | None:
    """Starts capturing in this process; idempotent. `None` where `AMFS_OTEL_DISABLED` is set.

    Args:
        settings: Default: from the environment.
        tracer_provider: Default: the global one, whenever it is set. Where capturing has begun, the one that is named
            gets the spans from now on.
    """
    global _current  # noqa: PLW0603  one process has one pipeline
    with _lock:
        if _current is not None:
            _current.trace_with(tracer_provider)
            return _current
        settings = settings if settings is not None else Settings.from_env()
        if settings.disabled:
            return None
        for problem in settings.problems:
            guard.once(f"setting:{problem}", 30, "amfs-otel: %s", problem)
        _current = _made(settings, tracer_provider)
        capture.install(_current.capture)
        _current.exit.register()
        return _current


def _made(settings: Settings, tracer_provider: trace.TracerProvider | None) -> Pipeline:
    version = _version()
    intake = Intake()
    masker = masker_from_file(settings.mask_patterns_file)
    tracer = trace.get_tracer(SCOPE, version, tracer_provider)
    meter = None if settings.sdk_disabled else metrics.get_meter(SCOPE, version)
    captured = Capture(settings, intake, masker, tracer, ClientMetrics(meter, dual=settings.semconv_dual))

    def make() -> "Worker":
        from amfs_otel.pipeline.worker import Worker

        return Worker(settings, intake, captured.windows, masker, meter)

    late = LateWorker(make)
    ending = Exit(settings, captured.windows, late)

    def first() -> None:
        # A child of multiprocessing forgets all finalizers after the fork: registered again once there is something.
        ending.register_finalizer()
        late.start()

    intake.on_first(first)
    return Pipeline(settings, intake, captured, late, ending, tracer_provider)


def current() -> Pipeline | None:
    """The pipeline of this process."""
    return _current


def stop() -> None:
    """Closes everything and stops capturing (tests and `uninstrument`)."""
    global _current
    with _lock:
        stopped, _current = _current, None
    if stopped is not None:
        capture.uninstall()
        stopped.exit.stop()


def _before_fork() -> None:
    """A child can never import what another thread was importing at the fork: the module's lock stays taken."""
    if _current is not None:
        _current.late.running(time.monotonic() + IMPORT_LIMIT_S)


def _in_child() -> None:
    """After a fork: the parent's windows, queue, threads and descriptors are its own; the child starts afresh."""
    global _current, _lock  # noqa: PLW0603  the lock may have been held by a thread that does not exist here
    _lock = threading.Lock()
    guard.reset()
    inherited, _current = _current, None
    if inherited is None:
        return
    guard.run("fork", inherited.capture.after_fork_in_child)
    guard.run("fork", inherited.late.after_fork_in_child)
    guard.run("fork", _restart, inherited)


def _restart(inherited: Pipeline) -> None:
    global _current  # noqa: PLW0603  see `start`
    _current = _made(inherited.settings, inherited.tracer_provider)
    capture.install(_current.capture)
    _current.exit.register()


def _version() -> str:
    from importlib.metadata import version

    return version("amfs-otel")


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
