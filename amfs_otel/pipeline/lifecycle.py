"""How a process ends: exit, SIGTERM, children of multiprocessing and of Celery's pool.

`atexit` does not run in forked children before Python 3.13, so `multiprocessing.util.Finalize` does there; both may
run, the second does nothing. Celery's children run neither, but say that they end. No thread is started (Python 3.12
refuses), nothing is imported, and `force_flush` is never called: it takes ten seconds against a hanging collector.
"""

import atexit
import os
import sys
import time
from typing import Any

from amfs_otel import capture, guard
from amfs_otel.capture import streams
from amfs_otel.capture.windows import Windows
from amfs_otel.model import ClosedBy, Kind
from amfs_otel.pipeline.dead_collector import OwnExporters
from amfs_otel.pipeline.late import LateWorker
from amfs_otel.pipeline.sigterm import Taker, give_back, take
from amfs_otel.settings import Settings

SIGTERM_LIMIT_S = 1.0
OUR_SHARE = 0.9
"""Of the exit time; what is left is for the steps around our waiting, so that the whole keeps the limit."""
DELIVERY_SHARE = 0.7
"""Of the exit time, for a database: what it does not take is on the disk."""
DELIVERY_SHARE_BESIDE_EXPORTERS = 0.3
"""The same where OTLP exporters come after us that only we use: what they do not send is nowhere."""
EXPORTERS_SHARE = 0.5
"""Of the exit time, in which those must have been answered; around it they import, encode and shut down."""
EXPORTERS_LEAST_SHARE = 0.1
"""Of the exit time, for those, however long we took."""


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
        self._taker = Taker(worker.postponed, self._terminated)
        self._finalizer: Any = None

    def register(self) -> None:
        """Registers for the end of this process; again at each provider attachment, so that we come before it."""
        atexit.unregister(self.run)
        atexit.register(self.run)
        self.register_finalizer()
        if self._settings.sigterm:
            take(self._taker)

    def register_finalizer(self) -> None:
        """Registers with the pools of processes alone, whose children run nothing of `atexit`."""
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None and (self._finalizer is None or not self._finalizer.still_active()):
            self._finalizer = util.Finalize(None, self.run, exitpriority=100)
        celery: Any = sys.modules.get("celery.signals")
        if celery is not None:
            # A child of its pool leaves by `os._exit`, without a finalizer.
            celery.worker_process_shutdown.connect(self._pool_child_ends, weak=False, dispatch_uid=id(self))

    def _pool_child_ends(self, **_named: Any) -> None:
        self.run()

    def unregister(self) -> None:
        """Takes the registrations back."""
        atexit.unregister(self.run)
        if self._finalizer is not None and self._finalizer.still_active():
            self._finalizer.cancel()
        celery: Any = sys.modules.get("celery.signals")
        if celery is not None:
            celery.worker_process_shutdown.disconnect(dispatch_uid=id(self))
        give_back(self._taker)

    def stop(self) -> None:
        """`run` in a process that goes on: nothing that belongs to its end."""
        self.unregister()
        if not self._done and os.getpid() == self._pid:
            self._done = True
            limit_s = self._settings.exit_timeout_s
            self._finish(ClosedBy.EXIT, OUR_SHARE * limit_s, OUR_SHARE * limit_s)

    def run(self) -> None:
        """Closes all windows and finishes the worker within the exit time. Idempotent."""
        if self._done or os.getpid() != self._pid:
            return
        self._done = True
        guard.run("exit", _record_crash)
        limit_s, started_s = self._settings.exit_timeout_s, time.monotonic()
        exporters = guard.run("exit", OwnExporters)
        if not exporters or not self._worker.at_end(exporters.probe):
            self._finish(ClosedBy.EXIT, OUR_SHARE * limit_s, DELIVERY_SHARE * limit_s)
            return
        self._finish(ClosedBy.EXIT, OUR_SHARE * limit_s, DELIVERY_SHARE_BESIDE_EXPORTERS * limit_s)
        least_s = time.monotonic() + EXPORTERS_LEAST_SHARE * limit_s
        guard.run("exit", exporters.hurry, max(started_s + EXPORTERS_SHARE * limit_s, least_s))

    def _finish(self, cause: ClosedBy, limit_s: float, delivery_s: float) -> None:
        began_s = time.monotonic()
        guard.run("exit", streams.end_all)
        guard.run("exit", self._windows.close_all, cause)
        guard.run("exit", self._worker.finish, began_s + limit_s, began_s + delivery_s)

    def _terminated(self) -> None:
        # In a forked child that captures nothing the handler is still its parent's.
        if not self._done and os.getpid() == self._pid:
            self._done = True
            limit_s = min(SIGTERM_LIMIT_S, self._settings.exit_timeout_s)
            self._finish(ClosedBy.SIGTERM, limit_s, limit_s)


def _record_crash() -> None:
    """An exception that nobody caught ends the program: the open decision says so, as its last step.

    The interpreter leaves it in `sys.last_value`; a plain `sys.exit` leaves nothing there. Where somebody types (a
    prompt, a notebook), it is the error of an earlier line, which ended nothing.
    """
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    running = capture.current()
    if isinstance(error, BaseException) and running is not None and running.existing(running.place()) is not None:
        capture.instant(Kind.ERROR, "amfs_otel", {"operation": "program"}, error=error)
