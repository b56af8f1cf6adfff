"""langgraph: what its stores are asked, the checkpoints it writes, and that a graph was interrupted.

Read: langgraph 0.2.57 and 1.2.24, langgraph-checkpoint 2.1.2 and 4.3.2. The runs of graphs themselves come through
langchain's hook (`langchain`). Stores and checkpointers are classes of anybody's, met when a graph is built with one:
their own methods are wrapped then. `get`, `put`, … of the base class call `batch`, so the outermost call is the event;
each operation of a bare `batch` is one.
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture import Kind, Step
from amfs_otel_instrumentation._langgraph_memory import (
    arguments_from_call,
    arguments_from_op,
    fields_from_arguments,
    fields_from_checkpoint,
    fields_from_writes,
    kind_from_operation,
    result_from_return,
)
from amfs_otel_instrumentation._langgraph_streams import note

requires = "langgraph >= 0.2.57, < 2"

SOURCE = "langgraph"

REMEMBERED_CHECKPOINTS = 1024

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]

_gathering: ContextVar[bool] = ContextVar("amfs_otel_langgraph_gathering", default=False)
"""Set for good in the context of a store's task that asks for what its asynchronous methods were asked."""

_MEMORY = frozenset({Kind.MEMORY_READ, Kind.MEMORY_QUERY, Kind.MEMORY_WRITE})
_METHODS = ("get", "search", "put", "delete", "list_namespaces")


# -- stores --------------------------------------------------------------------------------------------------------


def _begin(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step | None:
    if capture.active() is None or capture.inside(SOURCE, _MEMORY):
        return None
    fields = fields_from_arguments(operation, arguments_from_call(operation, args, kwargs))
    return capture.begin(kind_from_operation(operation), SOURCE, fields)


def _method(operation: str) -> Wrapper:
    def wrapper(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        step = guard.run(SOURCE, _begin, operation, args, kwargs)
        return capture.call(step, wrapped, args, kwargs, finish)

    def finish(step: Step, returned: Any) -> None:
        step.end(result_from_return(operation, returned))

    return wrapper


def _async_method(operation: str) -> Wrapper:
    async def wrapper(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        step = guard.run(SOURCE, _begin, operation, args, kwargs)
        return await capture.acall(step, wrapped, args, kwargs, finish)

    def finish(step: Step, returned: Any) -> None:
        step.end(result_from_return(operation, returned))

    return wrapper


class _Batch:
    """The operations of one bare `batch`, each a step of its own; what is no list or tuple is not looked into."""

    def __init__(self, store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.steps: list[tuple[str, Step] | None] = []
        ops: Any = args[0] if args else kwargs.get("ops")
        if type(ops) in (list, tuple) and capture.active() is not None and not _is_within(store):
            self.steps = [guard.run(SOURCE, self._begun, op) for op in ops]

    @staticmethod
    def _begun(op: Any) -> tuple[str, Step] | None:
        asked = arguments_from_op(op)
        if asked is None:
            return None
        step = capture.begin(kind_from_operation(asked[0]), SOURCE, fields_from_arguments(*asked))
        return None if step is None else (asked[0], step)

    def end(self, results: Any) -> None:
        """Each with what the store says to it; one that it says nothing to has ended all the same."""
        said = iter(cast("list[Any]", results) if isinstance(results, list | tuple) else ())
        for begun in self.steps:
            found = [*itertools.islice(said, 1)]
            if begun is not None:
                begun[1].end(guard.run(SOURCE, result_from_return, begun[0], found[0]) if found else None)

    def fail(self, error: BaseException) -> None:
        for begun in self.steps:
            if begun is not None:
                begun[1].fail(error)


def _is_within(store: Any) -> bool:
    """Whether a public method of a store is running, in this context or through the task that gathers such calls."""
    if capture.inside(SOURCE, _MEMORY) or _gathering.get():
        return True
    gatherer = getattr(store, "_task", None)
    if not isinstance(gatherer, asyncio.Task) or _current_task() is not gatherer:
        return False
    _gathering.set(True)
    return True


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _batch(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    batch = guard.run(SOURCE, _Batch, instance, args, kwargs)
    first = next((begun[1] for begun in batch.steps if begun is not None), None) if batch is not None else None
    if batch is None or first is None:
        return wrapped(*args, **kwargs)
    token = first.attach()
    try:
        results = wrapped(*args, **kwargs)
    except BaseException as error:
        guard.run(SOURCE, batch.fail, error)
        raise
    finally:
        first.detach(token)
    guard.run(SOURCE, batch.end, results)
    return results


async def _abatch(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    batch = guard.run(SOURCE, _Batch, instance, args, kwargs)
    first = next((begun[1] for begun in batch.steps if begun is not None), None) if batch is not None else None
    if batch is None or first is None:
        return await wrapped(*args, **kwargs)
    token = first.attach()
    try:
        results = await wrapped(*args, **kwargs)
    except BaseException as error:
        guard.run(SOURCE, batch.fail, error)
        raise
    finally:
        first.detach(token)
    guard.run(SOURCE, batch.end, results)
    return results


# -- checkpoints and interrupts ------------------------------------------------------------------------------------

_written: "OrderedDict[tuple[str, str], None]" = OrderedDict()
"""Checkpoints seen lately: many savers' `aput` calls `put`, or the reverse."""


def _checkpoint_written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = {**dict(zip(("config", "checkpoint", "metadata"), args, strict=False)), **kwargs}
    fields = fields_from_checkpoint(given["config"], given["checkpoint"], given["metadata"])
    key = (str(fields.get("thread_id")), str(fields.get("label")))
    if capture.active() is None or key in _written:
        return
    _written[key] = None
    while len(_written) > REMEMBERED_CHECKPOINTS:
        _written.popitem(last=False)
    capture.instant(Kind.CHECKPOINT, SOURCE, fields)


def _put(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    guard.run(SOURCE, _checkpoint_written, args, kwargs)
    return result


async def _aput(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = await wrapped(*args, **kwargs)
    guard.run(SOURCE, _checkpoint_written, args, kwargs)
    return result


_writing: set[tuple[Any, ...]] = set()
"""Writes on their way: many savers' `aput_writes` calls `put_writes`, in whatever thread, or the reverse."""


class _Writes:
    """One call of `put_writes`: a task's writes, kept beside a checkpoint until the next one holds them."""

    __slots__ = ("_fields", "_key")

    def __init__(self, fields: dict[str, Any]) -> None:
        channels = (write["key"] for write in fields.get("writes", ()))
        self._fields = fields
        self._key = (*map(fields.get, ("thread_id", "namespace", "label", "task_id")), *channels)

    @classmethod
    def begun(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "_Writes | None":
        """`None` inside the call that tells of the same writes."""
        if capture.active() is None:
            return None
        given = {**dict(zip(("config", "writes", "task_id"), args, strict=False)), **kwargs}
        writes = cls(fields_from_writes(given["config"], given["writes"], given["task_id"]))
        if writes._key in _writing:
            return None
        _writing.add(writes._key)
        return writes

    def told(self) -> None:
        capture.instant(Kind.CHECKPOINT, SOURCE, self._fields)

    def over(self) -> None:
        _writing.discard(self._key)


def _put_writes(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    writes = guard.run(SOURCE, _Writes.begun, args, kwargs)
    if writes is None:
        return wrapped(*args, **kwargs)
    try:
        result = wrapped(*args, **kwargs)
    finally:
        writes.over()
    guard.run(SOURCE, writes.told)
    return result


async def _aput_writes(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    writes = guard.run(SOURCE, _Writes.begun, args, kwargs)
    if writes is None:
        return await wrapped(*args, **kwargs)
    try:
        result = await wrapped(*args, **kwargs)
    finally:
        writes.over()
    guard.run(SOURCE, writes.told)
    return result


def _note_interrupt(loop: Any, error: Any) -> None:
    if error is not None and not loop.is_nested and type(error).__name__ in ("GraphInterrupt", "NodeInterrupt"):
        capture.pause()


def _left(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    guard.run(SOURCE, _note_interrupt, instance, args[1] if len(args) > 1 else None)
    return wrapped(*args, **kwargs)


async def _aleft(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    guard.run(SOURCE, _note_interrupt, instance, args[1] if len(args) > 1 else None)
    return await wrapped(*args, **kwargs)


# -- whoever a graph is built with ---------------------------------------------------------------------------------

_STORE: dict[str, Wrapper] = {
    **{name: _method(name) for name in _METHODS},
    **{f"a{name}": _async_method(name) for name in _METHODS},
    "batch": _batch,
    "abatch": _abatch,
}
_SAVER: dict[str, Wrapper] = {"put": _put, "aput": _aput, "put_writes": _put_writes, "aput_writes": _aput_writes}


def _built(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    guard.run(SOURCE, _wrap_own, kwargs.get("store"), "BaseStore", _STORE)
    guard.run(SOURCE, _wrap_own, kwargs.get("checkpointer"), "BaseCheckpointSaver", _SAVER)
    return wrapped(*args, **kwargs)


def _wrap_own(instance: Any, base: str, wrappers: dict[str, Wrapper]) -> None:
    """Wraps what the classes of `instance` define themselves, below langgraph's `base`."""
    classes = type(instance).__mro__
    names = [kind.__name__ for kind in classes]
    for kind in classes[: names.index(base)] if base in names else ():
        for name in wrappers.keys() & vars(kind).keys():
            instrumentor.wrap(SOURCE, kind, name, wrappers[name])


hooks: dict[str, Wrapper] = {
    **{f"langgraph.store.base:BaseStore.{name}": wrapper for name, wrapper in _STORE.items() if "batch" not in name},
    "langgraph.store.memory:InMemoryStore.batch": _batch,
    "langgraph.store.memory:InMemoryStore.abatch": _abatch,
    **{f"langgraph.checkpoint.memory:InMemorySaver.{name}": wrapper for name, wrapper in _SAVER.items()},
    "langgraph.pregel._loop:SyncPregelLoop.__exit__?": _left,
    "langgraph.pregel._loop:AsyncPregelLoop.__aexit__?": _aleft,
    "langgraph.pregel.loop:SyncPregelLoop.__exit__?": _left,
    "langgraph.pregel.loop:AsyncPregelLoop.__aexit__?": _aleft,
    "langgraph.pregel:Pregel.__init__": _built,
    "langgraph.pregel:Pregel.stream": note,
    "langgraph.pregel:Pregel.astream": note,
}
