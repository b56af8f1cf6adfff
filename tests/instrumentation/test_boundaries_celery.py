"""Celery: each task that calls a model is one trace, in every kind of worker; `tests/integration` has the real pool."""

from collections.abc import Iterator
from typing import Any

import pytest

from amfs_otel.capture.requests import open_request
from tests.instrumentation.recording import Captured
from tests.instrumentation.requests_served import Agent, check_one_trace_each, patched_agent, questions
from tests.instrumentation.serving import CLIENTS, at_once, serving_wsgi


@pytest.fixture
def agent(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with patched_agent(monkeypatch) as patched:
        yield patched


def celery_app(agent: Agent, **settings: Any) -> Any:
    from celery import Celery

    app = Celery("tasks", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(settings)

    @app.task(name="chat", shared=False)
    def chat(number: int) -> str:
        return agent.plan(number) + "".join(agent.answer(number))

    return app


def test_an_eager_task_is_a_trace(agent: Agent, captured: Captured) -> None:
    chat = celery_app(agent, task_always_eager=True).tasks["chat"]
    at_once(lambda number: chat.delay(number).result, 8)
    check_one_trace_each(captured, 8)


def test_a_task_that_calls_another_one_is_one_trace(agent: Agent, captured: Captured) -> None:
    app = celery_app(agent, task_always_eager=True)

    @app.task(name="inner", shared=False)
    def inner(number: int) -> None:
        list(agent.answer(number))

    @app.task(name="outer", shared=False)
    def outer(number: int) -> None:
        agent.plan(number)
        app.tasks["inner"].delay(number)
        assert open_request() is not None

    for number in range(2):
        assert app.tasks["outer"].delay(number).result is None
        assert open_request() is None
    check_one_trace_each(captured, 2)


def test_a_failing_task_ends_its_request_and_a_retry_is_another_run(agent: Agent, captured: Captured) -> None:
    app = celery_app(agent, task_always_eager=True)

    @app.task(name="again", shared=False, bind=True, default_retry_delay=0, max_retries=1)
    def again(self: Any, number: int) -> None:
        agent.plan(number)
        raise self.retry(exc=LookupError("of the task"))

    assert type(app.tasks["again"].delay(7).result) is LookupError
    assert open_request() is None
    assert [questions(trace) for trace in captured.traces()] == [["question-7-plan"]] * 2


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Keeps a worker from setting up the logging of the whole process."""
    from celery.signals import setup_logging

    def nothing(**_named: Any) -> None:
        pass

    setup_logging.connect(nothing, weak=False)
    yield
    setup_logging.disconnect(nothing)


def test_a_worker_with_a_pool_of_threads(agent: Agent, captured: Captured, own_logging: None) -> None:
    from celery.contrib.testing.worker import start_worker

    app = celery_app(agent)
    with start_worker(app, pool="threads", concurrency=CLIENTS, perform_ping_check=False, shutdown_timeout=30):
        waiting = [app.tasks["chat"].delay(number) for number in range(CLIENTS)]
        answers = [result.get(timeout=60, disable_sync_subtasks=False) for result in waiting]
    assert all(f"question-{number}-answer" in answer for number, answer in enumerate(answers))
    check_one_trace_each(captured)


def test_the_tracer_that_workers_run_is_covered(agent: Agent, captured: Captured) -> None:
    from celery.app.trace import build_tracer

    app = celery_app(agent)
    task = app.tasks["chat"]
    trace_task = build_tracer(task.name, task, app=app)
    done = at_once(lambda n: trace_task(f"id-{n}", (n,), {}, {"id": f"id-{n}", "is_eager": True}), 8)
    assert all(info is None for _, info, *_ in done)
    check_one_trace_each(captured, 8)


def test_a_task_inside_a_request_is_a_part_of_it(agent: Agent, captured: Captured) -> None:
    from flask import Flask

    chat, app = celery_app(agent, task_always_eager=True).tasks["chat"], Flask("outer")
    app.add_url_rule("/<int:number>", view_func=lambda number: chat.delay(number).result)
    with serving_wsgi(app) as get:
        at_once(lambda number: get(f"/{number}"), 4)
    check_one_trace_each(captured, 4)
