"""The worker's beginning: made at the first message, on the thread that then runs it.

What the worker needs (assembling, signing, the spool) takes longer to import than all of capturing; a program that
imports a library of ours and asks nobody pays nothing for it, and the one that asks does not wait for it.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from opentelemetry import context

from amfs_otel import guard
from amfs_otel.capture.ambient import SUPPRESS

if TYPE_CHECKING:
    from amfs_otel.pipeline.worker import Worker

LOOK_S = 0.005


class LateWorker:
    """Starts the worker of one process, and waits for it where something must be finished.

    Args:
        make: Imports and makes it.
    """

    def __init__(self, make: Callable[[], "Worker"]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._worker: Worker | None = None
        self._running: Worker | None = None
        self._thread: threading.Thread | None = None
        self._last: Callable[[], None] | None = None

    def start(self) -> None:
        """Starts its thread; called at the first message."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amfs-otel", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        context.attach(context.set_value(SUPPRESS, True))
        worker = guard.run("worker", self.made)
        if worker is not None:
            worker.delivery.start()
            self._running = worker
            worker.run()
        if self._last is not None:
            guard.run("exit", self._last)

    def made(self) -> "Worker":
        """The worker, made here where it is not yet."""
        with self._lock:
            if self._worker is None:
                self._worker = self._make()
            return self._worker

    def running(self, deadline: float) -> "Worker | None":
        """The worker as soon as it runs, at most until `deadline`; `None` where nothing was captured. Imports nothing.

        It looks again and again: a signal's handler may call it in the middle of any wait for a lock or an event.
        """
        while self._running is None and self._being_made() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return self._running

    def _being_made(self) -> bool:
        thread = self._thread
        return thread is not None and thread is not threading.current_thread() and thread.is_alive()

    def flush(self, timeout_s: float) -> bool:
        """`Worker.flush`; nothing captured is nothing to do."""
        deadline = time.monotonic() + timeout_s
        worker = self.running(deadline)
        return self._thread is None if worker is None else worker.flush(deadline - time.monotonic())

    def spool_now(self, timeout_s: float) -> bool:
        """`Worker.spool_now`; nothing captured is nothing to do."""
        deadline = time.monotonic() + timeout_s
        worker = self.running(deadline)
        return self._thread is None if worker is None else worker.spool_now(deadline - time.monotonic())

    def finish(self, deadline: float, delivered_by: float) -> None:
        """`Worker.finish`, where something was captured."""
        worker = self.running(deadline)
        if worker is not None:
            worker.finish(deadline, delivered_by)

    def at_end(self, function: Callable[[], None]) -> bool:
        """Has its thread call `function` when `finish` has ended its work; `False` where nothing was captured.

        A thread that failed is past that: then it is called here.
        """
        if self._thread is None:
            return False
        self._last = function
        if not self._thread.is_alive():
            guard.run("exit", function)
        return True

    def postponed(self, function: Callable[[], None]) -> bool:
        """`Worker.postponed`."""
        return self._running is not None and self._running.postponed(function)

    def after_fork_in_child(self) -> None:
        """`Worker.after_fork_in_child`."""
        if self._worker is not None:
            self._worker.after_fork_in_child()
