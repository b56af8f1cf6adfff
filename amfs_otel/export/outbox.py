"""A bounded queue of finished spans and the one thread that sends them.

The SDK's batch processor cannot be bounded from outside: its shutdown waits for an exporter that retries for ten
seconds. This one never makes anybody wait: `put` appends, `close` waits for at most the time given and then gives up.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from amfs_otel import guard

QUEUE_LIMIT = 2048
BATCH_LIMIT = 256


class Outbox:
    """Sends spans in the background.

    Thread-safe. The exporter is built on the sending thread, so that its import costs the caller nothing. In a forked
    child the queue is empty and a new thread and exporter are made at the first `put`: what stood in the queue is the
    parent's.

    Args:
        part: Name under which errors are counted and logged (`receipts`).
        connect: Makes the exporter. Called once per process, when the sending thread starts.
        linger_s: Seconds to wait for company before a batch is sent.
    """

    def __init__(self, part: str, connect: Callable[[], SpanExporter], *, linger_s: float = 0.2) -> None:
        self._part = part
        self._connect = connect
        self._linger_s = linger_s
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[ReadableSpan] = deque()
        self._in_flight = 0
        self._sent = 0
        self._lost = 0
        self._closing = False
        self._abandoned = False
        self._thread: threading.Thread | None = None
        self._exporter: SpanExporter | None = None

    @property
    def sent(self) -> int:
        """Spans that the receiver has acknowledged."""
        return self._sent

    @property
    def lost(self) -> int:
        """Spans given up: refused, queue full, or closed before they were sent."""
        return self._lost

    def start(self) -> bool:
        """Starts the thread, which connects at once. False where the interpreter no longer allows threads.

        Call it ahead of need where the last span comes at exit: then neither threads nor imports work any more.
        """
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if self._thread is None and not self._closing:
                thread = threading.Thread(target=self._run, name=f"amfs-otel-{self._part}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            return self._thread is not None

    def put(self, span: ReadableSpan) -> None:
        """Appends a span; one too many, or one after `close`, is lost and counted. Never blocks on the network."""
        running = self.start()
        with self._changed:
            if not running or self._closing or len(self._queue) >= QUEUE_LIMIT:
                self._lost += 1
                return
            self._queue.append(span)
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Sends what is queued, for at most `timeout_s` seconds, and stops. Idempotent.

        Starts no thread. What could not be sent in time is lost and counted.
        """
        if self._pid != os.getpid():
            self._reset()
        deadline = time.monotonic() + timeout_s
        with self._changed:
            if self._closing:
                return
            self._closing = True
            thread = self._thread
            self._changed.notify_all()
        if thread is None:
            return
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            with self._changed:
                self._lost += len(self._queue) + self._in_flight
                self._queue.clear()
                self._in_flight = 0
                self._abandoned = True
                exporter = self._exporter
            if exporter is not None:
                guard.run(self._part, exporter.shutdown)

    def _run(self) -> None:
        guard.run(self._part, self._send_until_closed)

    def _send_until_closed(self) -> None:
        with suppress_instrumentation():
            exporter = self._exporter = guard.run(self._part, self._connect)
            while batch := self._next_batch():
                self._send(exporter, batch)
            if exporter is not None and not self._abandoned:
                exporter.shutdown()

    def _next_batch(self) -> list[ReadableSpan]:
        """The next spans to send; empty = closed and nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            if not self._closing:
                self._changed.wait_for(lambda: self._closing or len(self._queue) >= BATCH_LIMIT, self._linger_s)
            batch = [self._queue.popleft() for _ in range(min(BATCH_LIMIT, len(self._queue)))]
            self._in_flight = len(batch)
            return batch

    def _send(self, exporter: SpanExporter | None, batch: list[ReadableSpan]) -> None:
        result = None if exporter is None else guard.run(self._part, exporter.export, batch)
        with self._changed:
            count, self._in_flight = self._in_flight, 0
            if result is SpanExportResult.SUCCESS:
                self._sent += count
            else:
                self._lost += count
