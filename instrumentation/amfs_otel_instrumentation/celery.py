"""Celery: where a task begins and ends. No events, no spans.

Read: celery 5.3.0, 5.7.0. The signals `task_prerun` and `task_postrun` are sent around every task in its own thread or
greenlet, by workers of every pool and by eager calls; a worker does not pass through `Task.__call__`. A retry is
another run. A task that is called eagerly inside a request or another task is a part of that.
"""

from collections.abc import Callable
from typing import Any

from celery import signals

from amfs_otel import capture, guard

requires = "celery >= 5.3, < 6"

SOURCE = "celery"

_begun: dict[int, capture.Request] = {}
"""Requests by `id` of the context that Celery keeps for one run of a task; a task id may come twice."""


def _before(task: Any = None, **_more: Any) -> None:
    guard.run(SOURCE, _begin, task)


def _begin(task: Any) -> None:
    request = None if guard.is_off(SOURCE) else capture.enter_request()
    if request is not None:
        _begun[id(task.request)] = request


def _after(task: Any = None, **_more: Any) -> None:
    guard.run(SOURCE, _end, task)


def _end(task: Any) -> None:
    request = _begun.pop(id(task.request), None)
    if request is not None:
        capture.end_request(request)


def listen() -> Callable[[], None]:
    """Registers with the signals; what it returns takes that back."""
    before: Any = signals.task_prerun
    after: Any = signals.task_postrun
    before.connect(_before, weak=False)
    after.connect(_after, weak=False)

    def silence() -> None:
        before.disconnect(_before)
        after.disconnect(_after)

    return silence


hooks: dict[str, Callable[..., Any]] = {}
