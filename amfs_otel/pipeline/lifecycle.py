"""How a process ends: exit, SIGTERM, multiprocessing children.

`atexit` does not run in forked children before Python 3.13, so `multiprocessing.util.Finalize` does there; both may
run, the second does nothing. No thread is started (Python 3.12 refuses), nothing is imported, and `force_flush` is
never called: it takes ten seconds against a hanging collector.
"""

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from amfs_otel import capture, guard
from amfs_otel.capture import streams
from amfs_otel.capture.windows import Windows
from amfs_otel.model import ClosedBy, Kind
from amfs_otel.pipeline.dead_collector import hurry_otlp_exporters
from amfs_otel.pipeline.late import LateWorker
from amfs_otel.settings import Settings

SIGTERM_LIMIT_S = 1.0
OUR_SHARE = 0.9
"""Of the exit time; what is left is for the steps around our waiting, so that the whole keeps the limit."""

_handlers: "weakref.WeakSet[Callable[[int, FrameType | None], Any]]" = weakref.WeakSet()
"""Handlers of ours, of this process and of those that it was forked from."""


class Exit:
    """Ends the pipeline of one process, once.

    Args:
        settings: How long it may take, and whether SIGTERM is handled.
        windows: Closed at the end.
        worker: Made to finish.
    """

    def __init__(self, settings: Settings, windows: Windows, worker: LateWorker) -> None:
        self._settings = settings
        self._windows = windows
        self._worker = worker
        self._done = False
        self._pid = os.getpid()
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self.after: list[Callable[[], None]] = []

    def register(self) -> None:
        """Registers for the end of this process; again at each provider attachment, so that we come before it."""
        atexit.unregister(self.run)
        atexit.register(self.run)
        self.register_finalizer()
        if self._settings.sigterm and self._handler is None:
            self._take_sigterm()

    def register_finalizer(self) -> None:
        """Registers with multiprocessing alone, whose children run nothing of `atexit`."""
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.run, exitpriority=100)

    def unregister(self) -> None:
        """Takes the registrations back."""
        atexit.unregister(self.run)
        if self._handler is not None and signal.getsignal(signal.SIGTERM) is self._handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def run(self) -> None:
        """Closes all windows and finishes the worker within the exit time. Idempotent."""
        if self._done or os.getpid() != self._pid:
            return
        self._done = True
        guard.run("exit", _record_crash)
        limit_s = OUR_SHARE * self._settings.exit_timeout_s
        deadline = time.monotonic() + limit_s
        self._finish(ClosedBy.EXIT, limit_s)
        guard.run("exit", hurry_otlp_exporters, deadline)
        for function in self.after:
            guard.run("exit", function)

    def _finish(self, cause: ClosedBy, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        guard.run("exit", streams.end_all)
        guard.run("exit", self._windows.close_all, cause)
        guard.run("exit", self._worker.finish, deadline)

    def _take_sigterm(self) -> None:
        """A handler over SIG_DFL, in the main thread only: a server's own handler is never displaced.

        The handler that a forked child inherited is its parent's, which does nothing in the child.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        there = signal.getsignal(signal.SIGTERM)
        if there is not signal.SIG_DFL and there not in _handlers:
            return

        def on_sigterm(number: int, frame: FrameType | None) -> None:
            if self._worker.postponed(lambda: on_sigterm(number, frame)):
                return
            if not self._done and os.getpid() == self._pid:
                self._done = True
                self._finish(ClosedBy.SIGTERM, min(SIGTERM_LIMIT_S, self._settings.exit_timeout_s))
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        self._handler = on_sigterm
        _handlers.add(on_sigterm)
        signal.signal(signal.SIGTERM, on_sigterm)


def _record_crash() -> None:
    """An exception that nobody caught ends the program: the open decision says so, as its last step.

    The interpreter leaves it in `sys.last_value`; a plain `sys.exit` leaves nothing there.
    """
    error = getattr(sys, "last_value", None)
    running = capture.current()
    if isinstance(error, BaseException) and running is not None and running.existing(running.place()) is not None:
        capture.instant(Kind.ERROR, "amfs_otel", {"operation": "program"}, error=error)
