"""Runs of langchain in flight, and the context that some of them run in.

An asynchronous run's callbacks for its end come in a task of their own, and a cancelled one has none. So tools and
retrievals become current, and what ends without a word is ended, only inside public methods that are wrapped for it.
"""

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


@dataclass(slots=True, eq=False)
class Run:
    """A run in flight.

    Attributes:
        agent_run: The run of an agent in which it lies.
        inside: The step that what happens in it is a part of.
        step: Its own step: a tool's or a retrieval's.
        run: Its own run, for an agent.
        call: Its own call of a model.
        chunks: Chunks that came of that.
        first_chunk_ns: When the first came, ns after the call's start.
        paused: Whether a node of it stopped for somebody's answer.
        within: What runs in it, for an agent.
    """

    agent_run: "Run | None"
    inside: Step | None
    step: Step | None = None
    run: "capture.run | None" = None
    call: AnnouncedCall | None = None
    chunks: int = 0
    first_chunk_ns: int = 0
    paused: bool = False
    within: "dict[str, Run]" = field(default_factory=dict[str, "Run"])


_runs: dict[str, Run] = {}
"""By their ids as texts: one bytecode on a dict of texts needs no lock."""


def begun(run_id: UUID, parent_run_id: UUID | None) -> Run:
    """The run `run_id`, known from now on; a part of what its parent is a part of."""
    instrumentor.settle(SOURCE)
    key, outer = str(run_id), _runs.get(str(parent_run_id))
    run = Run(None, None)
    if outer is not None:
        run = Run(outer if outer.run is not None else outer.agent_run, outer.inside)
    if len(_runs) >= REMEMBERED_RUNS:
        _runs.pop(next(iter(_runs)), None)
    _runs[key] = run
    started = _kept.get()
    if started is not None:
        started.append(key)
    if run.agent_run is not None:
        run.agent_run.within[key] = run
    return run


def known(run_id: UUID) -> Run | None:
    """The run `run_id`, if it is in flight."""
    return _runs.get(str(run_id))


def ended(run_id: UUID | str) -> Run | None:
    """The run `run_id`, which is over, if it was known."""
    run = _runs.pop(str(run_id), None)
    if run is not None and run.agent_run is not None:
        run.agent_run.within.pop(str(run_id), None)
    return run


_kept: ContextVar[list[str] | None] = ContextVar("amfs_otel_langchain_kept", default=None)
"""The runs that began inside the innermost call that puts the context back, by their ids."""


def attach(step: Step) -> None:
    """Makes `step` current, where somebody will undo it."""
    if _kept.get() is not None:
        step.attach()


def keep(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wrapper that puts the context back when the call is over, and ends what langchain leaves open when it fails."""
    before, started = context.get_current(), list[str]()
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
    before, started = context.get_current(), list[str]()
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


def _end_all(run_ids: list[str], error: BaseException) -> None:
    for run_id in run_ids:
        run = ended(run_id)
        if run is not None and run.step is not None:
            run.step.fail(error)
        if run is not None and run.call is not None:
            run.call.end({}, error)
