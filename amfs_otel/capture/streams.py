"""Streams that end their step exactly once.

`StreamWatch` holds what a stream has shown so far. Six exits are told apart: `complete`, `closed_early`, `abandoned`,
`cancelled`, `error`, `interpreter_exit`. The user keeps the library's own stream object; only the iterator inside it is
replaced, by `WatchedIterator` or `WatchedAsyncIterator`. No context token is held across a yield and the application's
generator stays in its own task; the work per chunk is one clock reading and one call of `fold`.
"""

import sys
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, Literal, TypeVar

from amfs_otel import guard
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.steps import Step

_T = TypeVar("_T")

StreamExit = Literal["complete", "closed_early", "abandoned", "cancelled", "error", "interpreter_exit"]

_live: "weakref.WeakSet[StreamWatch]" = weakref.WeakSet()


class StreamWatch:
    """The one end of a streamed step.

    Args:
        step: The step; ended by the first of the exits that comes.
        fold: Takes each chunk into the patch's state. It must be cheap and must not keep the chunk.
        result: Makes the event's result from that state, when the stream has ended.
        metrics: Where the time between chunks goes.
    """

    __slots__ = ("__weakref__", "_fold", "_last_ns", "_metrics", "_result", "chunks", "first_ns", "gaps_ns", "step")

    def __init__(
        self,
        step: Step,
        fold: Callable[[Any], None],
        result: Callable[[], dict[str, Any]],
        metrics: ClientMetrics | None = None,
    ) -> None:
        self.step = step
        self._fold = fold
        self._result = result
        self._metrics = metrics
        self.chunks = 0
        self.first_ns = 0
        self._last_ns = 0
        self.gaps_ns: list[int] = []
        _live.add(self)

    def chunk(self, chunk: Any) -> None:
        """One chunk arrived and is about to be handed on."""
        self.chunks += 1
        now_ns = time.perf_counter_ns()
        if self.chunks == 1:
            self.first_ns = self.step.elapsed_ns()
        elif self._metrics is not None and self._metrics.enabled:
            self.gaps_ns.append(now_ns - self._last_ns)
        self._last_ns = now_ns
        try:
            self._fold(chunk)
        except Exception as error:  # noqa: BLE001  the guard's rule, without a call per chunk
            guard.failed(self.step.event.source, error)

    def done(self, exit_: StreamExit, error: BaseException | None = None) -> None:
        """Ends the step; only the first call counts."""
        if self.step.done:
            return
        _live.discard(self)
        result = guard.run(self.step.event.source, self._result) or {}
        result["stream_exit"] = exit_
        result["chunks"] = self.chunks
        if self.chunks:
            result["time_to_first_chunk_ms"] = round(self.first_ns / 1e6, 3)
        if error is None:
            self.step.end(result)
        else:
            self.step.fail(error, result)
        if self._metrics is not None and self.gaps_ns:
            guard.run(self.step.event.source, self._metrics.chunks, self.step.event, self.gaps_ns)

    def failed(self, error: BaseException) -> None:
        """Ends the step by what the iteration raised."""
        if isinstance(error, GeneratorExit):
            self.done("closed_early")
        elif type(error).__name__ == "CancelledError":  # asyncio's or anyio's, without importing either
            self.done("cancelled", error)
        else:
            self.done("error", error)


class WatchedIterator(Generic[_T]):
    """Hands on the chunks of `inner` and tells the watch. Takes the place of the iterator inside a stream object."""

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: Iterator[_T], watch: StreamWatch) -> None:
        self._inner = inner
        self._watch = watch

    def __iter__(self) -> "WatchedIterator[_T]":
        return self

    def __next__(self) -> _T:
        try:
            chunk = next(self._inner)
        except StopIteration:
            self._watch.done("complete")
            raise
        except BaseException as error:
            self._watch.failed(error)
            raise
        self._watch.chunk(chunk)
        return chunk

    def close(self) -> None:
        """Closes the inner iterator, as a generator's `close` does."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()
        self._watch.done("closed_early")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __del__(self) -> None:
        _finalised(self._watch)


class WatchedAsyncIterator(Generic[_T]):
    """`WatchedIterator` for asynchronous iterators."""

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: AsyncIterator[_T], watch: StreamWatch) -> None:
        self._inner = inner
        self._watch = watch

    def __aiter__(self) -> "WatchedAsyncIterator[_T]":
        return self

    async def __anext__(self) -> _T:
        try:
            chunk = await self._inner.__anext__()
        except StopAsyncIteration:
            self._watch.done("complete")
            raise
        except BaseException as error:
            self._watch.failed(error)
            raise
        self._watch.chunk(chunk)
        return chunk

    async def aclose(self) -> None:
        """Closes the inner iterator, as an asynchronous generator's `aclose` does."""
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()
        self._watch.done("closed_early")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __del__(self) -> None:
        _finalised(self._watch)


def _finalised(watch: StreamWatch) -> None:
    if not watch.step.done:
        watch.done("interpreter_exit" if sys.is_finalizing() else "abandoned")


def end_all() -> None:
    """Ends the steps of all streams that are still open (interpreter exit)."""
    for watch in list(_live):
        watch.done("interpreter_exit")
