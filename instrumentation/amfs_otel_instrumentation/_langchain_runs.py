"""Runs of langchain in flight, and the context that some of them run in.

An asynchronous run's callbacks for its end come in a task of their own, and a cancelled one has none. So tools and
retrievals become current, and what ends without a word is ended, only inside public methods that are wrapped for it.
"""

import weakref
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from opentelemetry import context

from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture import AnnouncedCall, Step

SOURCE = "langchain"

REMEMBERED_RUNS = 20_000
"""Runs in flight that are known; one that never ends, as in a process that loses them, makes way for newer ones."""

Key = int | str
"""What a run is known by: hashing a `UUID` runs Python code, hashing its number or a text does not."""


@dataclass(slots=True, eq=False)
class Agent:
    """The run of an agent.

    Attributes:
        run: Its window, or its step in another one.
        generator: The generator that it lives in, where one is known.
        paused: Whether a node of it stopped for somebody's answer.
        within: What runs in it, by what it is known by.
    """

    run: capture.run
    generator: "weakref.ref[Any] | None" = None
    paused: bool = False
    within: "dict[Key, Run]" = field(default_factory=dict[Key, "Run"])


@dataclass(slots=True, eq=False)
class Run:
    """A run in flight.

    Attributes:
        key: What it is known by.
        outer: The run of an agent in which it lies.
        inside: The step that what happens in it is a part of.
        agent: What it is, for an agent.
        step: Its own step: a tool's or a retrieval's.
        call: Its own call of a model.
        chunks: Chunks that came of that.
        first_chunk_ns: When the first came, ns after the call's start.
    """

    key: Key
    outer: Agent | None
    inside: Step | None
    agent: Agent | None = None
    step: Step | None = None
    call: AnnouncedCall | None = None
    chunks: int = 0
    first_chunk_ns: int = 0


_runs: dict[Key, Run] = {}
"""Runs in flight; a run that is transparent has the one that it lies in. One bytecode on it needs no lock."""


def key_of(run_id: Any) -> Key:
    """What `run_id` is known by."""
    return run_id.int if type(run_id) is UUID else str(run_id)


def begun(run_id: UUID, parent_run_id: UUID | None) -> Run:
    """The run `run_id`, known from now on; a part of what its parent is a part of."""
    instrumentor.settle(SOURCE)
    key, parent = key_of(run_id), None if parent_run_id is None else _runs.get(key_of(parent_run_id))
    run = Run(key, None, None) if parent is None else Run(key, parent.agent or parent.outer, parent.inside)
    _known_as(key, run, run.outer)
    return run


def passed(run_id: UUID, parent_run_id: UUID | None) -> None:
    """The run `run_id` is transparent: what happens in it is a part of what it is a part of itself."""
    instrumentor.settle(SOURCE)
    parent = None if parent_run_id is None else _runs.get(key_of(parent_run_id))
    if parent is not None:
        _known_as(key_of(run_id), parent, parent.agent or parent.outer)


def _known_as(key: Key, run: Run, agent: Agent | None) -> None:
    if len(_runs) >= REMEMBERED_RUNS:
        _runs.pop(next(iter(_runs)), None)
    _runs[key] = run
    started = _kept.get()
    if started is not None:
        started.append(key)
    if agent is not None:
        agent.within[key] = run


def known(run_id: UUID) -> Run | None:
    """The run `run_id`, if it is in flight."""
    return _runs.get(key_of(run_id))


def ended(run_id: UUID) -> Run | None:
    """The run `run_id`, which is over, if it was known; of a transparent one, what it lay in."""
    key = key_of(run_id)
    run = _runs.pop(key, None)
    if run is not None:
        agent = run.outer if run.key == key else run.agent or run.outer
        if agent is not None:
            agent.within.pop(key, None)
    return run


def taken_out(key: Key) -> Run | None:
    """The run that is known by `key`, and is no more; `None` for one that is transparent."""
    run = _runs.pop(key, None)
    if run is None or run.key != key:
        return None
    if run.outer is not None:
        run.outer.within.pop(key, None)
    return run


_kept: ContextVar[list[Key] | None] = ContextVar("amfs_otel_langchain_kept", default=None)
"""The runs that began inside the innermost call that puts the context back, by their ids."""


def attach(step: Step) -> None:
    """Makes `step` current, where somebody will undo it."""
    if _kept.get() is not None:
        step.attach()


def keep(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wrapper that puts the context back when the call is over, and ends what langchain leaves open when it fails."""
    before, started = context.get_current(), list[Key]()
    token = _kept.set(started)
    try:
        return wrapped(*args, **kwargs)
    except BaseException as error:
        guard.run(SOURCE, _end_all, started, error)
        raise
    finally:
        _kept.reset(token)
        _put_back(before)


async def akeep(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`keep` for a coroutine function; a cancelled one tells langchain's handlers nothing."""
    before, started = context.get_current(), list[Key]()
    token = _kept.set(started)
    try:
        return await wrapped(*args, **kwargs)
    except BaseException as error:
        guard.run(SOURCE, _end_all, started, error)
        raise
    finally:
        _kept.reset(token)
        _put_back(before)


def _put_back(before: Any) -> None:
    if context.get_current() is not before:
        context.attach(before)


def _end_all(keys: list[Key], error: BaseException) -> None:
    for key in keys:
        run = taken_out(key)
        if run is not None and run.step is not None:
            run.step.fail(error)
        if run is not None and run.call is not None:
            run.call.end({}, error)
