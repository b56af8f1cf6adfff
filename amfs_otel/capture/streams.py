"""Streams that end their step exactly once.

`StreamWatch` holds what a stream has shown so far. Six exits are told apart: `complete`, `closed_early`, `abandoned`,
`cancelled`, `error`, `interpreter_exit`. The user keeps the library's own stream object; only the iterator inside it is
replaced, by `WatchedIterator` or `WatchedAsyncIterator`. Where that object is a plain generator, they get one of ours
(`watched_generator`). No context token is held across a yield and the application's generator stays in its own task;
the work per chunk is one call of `fold`, a tick of a counter, and a look at the clock where there are metrics.

A stream that nobody reads to its end is noticed when its watch is collected. That may happen anywhere, so the step is
ended there and then only where no lock can be held; else it waits for the next event or the worker's next tick.
"""

import inspect
import sys
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from itertools import compress, repeat
from operator import length_hint
from types import FrameType
from typing import Any, Generic, Literal, TypeVar

from amfs_otel import guard
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.steps import Step

_T = TypeVar("_T")

StreamExit = Literal["complete", "closed_early", "abandoned", "cancelled", "error", "interpreter_exit"]

_live: "weakref.WeakSet[StreamWatch]" = weakref.WeakSet()

_LOCKING = ("amfs_otel", "opentelemetry", "threading", "logging", "queue", "concurrent", "multiprocessing")
"""Packages whose code may hold a lock that the end of a step needs."""

_HOLDING_NONE = frozenset({"_bootstrap", "_bootstrap_inner", "run", "_worker", "__iter__", "__next__", "__anext__"})
"""Functions of theirs that call others holding none: starts of threads, iterators of ours."""


class StreamWatch:
    """The one end of a streamed step.

    Args:
        step: The step; ended by the first of the exits that comes.
        fold: Takes each chunk into the patch's state. It must be cheap and must not keep the chunk.
        result: Makes the event's result from that state, when the stream has ended.
        metrics: Where the time between chunks goes.

    Attributes:
        ticks: Iterator from which one `True` is taken per chunk: so the interpreter need not count.
    """

    __slots__ = ("__weakref__", "_metrics", "_result", "first_ns", "fold", "plain", "step", "ticks", "times_ns")

    def __init__(
        self,
        step: Step,
        fold: Callable[[Any], None],
        result: Callable[[], dict[str, Any]],
        metrics: ClientMetrics | None = None,
    ) -> None:
        self.step = step
        self.fold = fold
        self._result = result
        self._metrics = metrics
        self.plain = metrics is None or not metrics.enabled
        self.ticks = repeat(True, sys.maxsize)
        self.first_ns = 0
        self.times_ns: list[int] = []
        _live.add(self)

    @property
    def chunks(self) -> int:
        """How many chunks arrived."""
        return sys.maxsize - length_hint(self.ticks)

    def chunk(self, chunk: Any) -> None:
        """One chunk arrived and is about to be handed on."""
        if not self.first_ns:
            self.first_ns = self.step.elapsed_ns()
        next(self.ticks)
        if not self.plain:
            self.times_ns.append(time.perf_counter_ns())
        try:
            self.fold(chunk)
        except Exception as error:  # noqa: BLE001  the guard's rule, without a call per chunk
            guard.failed(self.step.event.source, error)

    def done(self, exit_: StreamExit, error: BaseException | None = None) -> None:
        """Ends the step; only the first call counts."""
        if self.step.done:
            return
        _live.discard(self)
        result = guard.run(self.step.event.source, self._result) or {}
        result["stream_exit"] = exit_
        if chunks := self.chunks:
            result["chunks"] = chunks
            result["time_to_first_chunk_ms"] = round(self.first_ns / 1e6, 3)
        if error is None:
            self.step.end(result)
        else:
            self.step.fail(error, result)
        if self._metrics is not None and len(self.times_ns) > 1 and not self.step.counted_elsewhere:
            gaps_ns = [later - earlier for earlier, later in zip(self.times_ns, self.times_ns[1:], strict=False)]
            guard.run(self.step.event.source, self._metrics.chunks, self.step.event, gaps_ns)

    def failed(self, error: BaseException) -> None:
        """Ends the step by what the iteration raised."""
        if isinstance(error, GeneratorExit):
            self.done("closed_early")
        elif type(error).__name__ == "CancelledError":  # asyncio's or anyio's, without importing either
            self.done("cancelled", error)
        else:
            self.done("error", error)

    def left(self, exit_: StreamExit, frame: FrameType | None) -> None:
        """Ends the step in `frame`, which the collector may be in: at once, or as soon as no lock can be held."""
        if _may_hold_a_lock(frame):
            self.step.later(lambda: self.done(exit_))
        else:
            self.done(exit_)

    def __del__(self) -> None:
        if self.step.done:
            return
        if sys.is_finalizing():
            self.done("interpreter_exit")
        else:
            self.left("abandoned", inspect.currentframe())


class WatchedIterator(Generic[_T]):
    """Hands on the chunks of `inner` and tells the watch. Takes the place of the iterator inside a stream object."""

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: Iterator[_T], watch: StreamWatch) -> None:
        self._inner = inner
        self._watch = watch

    def __iter__(self) -> Iterator[_T]:
        """A generator of its own for each loop: resuming one costs less than calling `__next__`.

        Leaving the loop closes that generator only, which ends nothing: the stream can be read on.
        """
        watch, inner, fold = self._watch, iter(self._inner), self._watch.fold
        try:
            for chunk in inner:
                watch.chunk(chunk)
                yield chunk
                if watch.plain:
                    break
            for chunk in compress(inner, watch.ticks):  # all of them, each with a tick
                # `StreamWatch.chunk` of what is neither the first nor timed, without the call.
                try:
                    fold(chunk)
                except Exception as error:  # noqa: BLE001  the guard's rule, see there
                    guard.failed(watch.step.event.source, error)
                yield chunk
        except GeneratorExit:
            raise
        except BaseException as error:
            watch.failed(error)
            raise
        watch.done("complete")

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


class WatchedAsyncIterator(Generic[_T]):
    """`WatchedIterator` for asynchronous iterators."""

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: AsyncIterator[_T], watch: StreamWatch) -> None:
        self._inner = inner
        self._watch = watch

    async def __aiter__(self) -> AsyncGenerator[_T, None]:
        """A generator of its own for each loop, as in `WatchedIterator`: a coroutine per chunk costs far more."""
        watch, fold = self._watch, self._watch.fold
        try:
            async for chunk in self._inner:
                if watch.plain and watch.first_ns:
                    # As in `WatchedIterator.__iter__`.
                    next(watch.ticks)
                    try:
                        fold(chunk)
                    except Exception as error:  # noqa: BLE001  the guard's rule, see there
                        guard.failed(watch.step.event.source, error)
                else:
                    watch.chunk(chunk)
                try:
                    yield chunk
                except GeneratorExit:  # the loop was left; one that comes while `inner` is awaited is a failure
                    return
        except BaseException as error:
            watch.failed(error)
            raise
        watch.done("complete")

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


def watched_generator(inner: Iterator[_T], watch: StreamWatch) -> Generator[_T, None, None]:
    """A generator in place of `inner`, for libraries whose streams are generators that are only iterated.

    One that is collected in the middle is closed by that, so it counts as `closed_early`; one that was never begun is
    `abandoned`.
    """
    watched = WatchedIterator(inner, watch)
    try:
        yield from watched
    except GeneratorExit:
        if isinstance(inner, Generator):
            inner.close()
        watch.left("closed_early", inspect.currentframe())
        raise


async def watched_async_generator(inner: AsyncIterator[_T], watch: StreamWatch) -> AsyncGenerator[_T, None]:
    """`watched_generator` for asynchronous ones."""
    try:
        async for chunk in WatchedAsyncIterator(inner, watch):
            yield chunk
    except GeneratorExit:
        if isinstance(inner, AsyncGenerator):
            await inner.aclose()
        watch.left("closed_early", inspect.currentframe())
        raise


def _may_hold_a_lock(collecting: FrameType | None) -> bool:
    """Whether code of `_LOCKING` is below the frame `collecting`, because the collector ran inside it."""
    frame = collecting.f_back if collecting is not None else None
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _LOCKING and frame.f_code.co_name not in _HOLDING_NONE:
            return True
        frame = frame.f_back
    return False


def end_all() -> None:
    """Ends the steps of all streams that are still open (interpreter exit)."""
    for watch in list(_live):
        watch.done("interpreter_exit")
