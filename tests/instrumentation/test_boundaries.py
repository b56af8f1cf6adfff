"""A server that calls a model and has no spans of its own: one trace a request, never mixed, streamed bodies included."""

import asyncio
import contextvars
import importlib
import json
import re
import socketserver
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from opentelemetry.trace import SpanKind, Tracer

from amfs_otel import attach, capture, instrumentor
from amfs_otel.attach import RequestBoundaries
from amfs_otel.capture.requests import open_request
from amfs_otel.demo.model_server import ModelServer
from tests.instrumentation.recording import Captured, kinds
from tests.instrumentation.serving import CLIENTS, at_once, serving_asgi, serving_wsgi

FRAMEWORKS = ("starlette", "flask", "django", "celery")


class Agent:
    """What an endpoint does: one plain call, then one whose answer is streamed to the client."""

    def __init__(self, server: ModelServer) -> None:
        # A loop that has ended can close no connection: none is kept.
        way: Any = {"base_url": server.base_url, "api_key": "any", "default_headers": {"Connection": "close"}}
        self.sync = OpenAI(**way, max_retries=0, timeout=60)
        self.asynchronous = AsyncOpenAI(**way, max_retries=0, timeout=60)

    @staticmethod
    def _asked(number: Any, part: str, **more: Any) -> dict[str, Any]:
        return {"model": "m", "messages": [{"role": "user", "content": f"question-{number}-{part}"}], **more}

    def plan(self, number: Any) -> str:
        create: Any = self.sync.chat.completions.create
        return create(**self._asked(number, "plan")).choices[0].message.content

    def answer(self, number: Any) -> Iterator[str]:
        create: Any = self.sync.chat.completions.create
        for chunk in create(**self._asked(number, "answer", stream=True)):
            yield (chunk.choices[0].delta.content or "") if chunk.choices else ""

    async def aplan(self, number: Any) -> str:
        create: Any = self.asynchronous.chat.completions.create
        return (await create(**self._asked(number, "plan"))).choices[0].message.content

    async def aanswer(self, number: Any) -> AsyncIterator[str]:
        create: Any = self.asynchronous.chat.completions.create
        async for chunk in await create(**self._asked(number, "answer", stream=True)):
            yield (chunk.choices[0].delta.content or "") if chunk.choices else ""


@pytest.fixture
def agent(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    capture.current_request.set(None)
    instrumentor.instrument(["openai", *FRAMEWORKS])
    # The default, 5, is too few for clients that all connect at once.
    monkeypatch.setattr(socketserver.TCPServer, "request_queue_size", 2 * CLIENTS)
    with ModelServer() as server:
        yield Agent(server)


def questions(trace: dict[str, Any]) -> list[str]:
    """What a trace's model calls were asked; the model repeats it in its answer."""
    found = [set(re.findall(r"question-\d+-[a-z]+", json.dumps(event))) for event in trace["events"]]
    assert all(len(asked) == 1 for asked in found)
    return [question for asked in found for question in asked]


def check_one_trace_each(captured: Captured, requests: int = CLIENTS) -> None:
    """Every request closed a trace of its own with its two calls, before anything else could close it."""
    traces = captured.traces()
    expected = sorted([f"question-{n}-plan", f"question-{n}-answer"] for n in range(requests))
    assert sorted(questions(trace) for trace in traces) == expected
    assert {(trace["closed_by"], trace["status"]) for trace in traces} == {("session_end", "complete")}
    assert {tuple(kinds(trace)) for trace in traces} == {("llm_call", "llm_call")}
    assert captured.capture.windows.open_count() == 0


# -- Starlette -----------------------------------------------------------------------------------------------------


def starlette_app(agent: Agent) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Mount, Route

    async def asynchronous(request: Any) -> StreamingResponse:
        number = request.path_params["number"]
        await agent.aplan(number)
        return StreamingResponse(agent.aanswer(number))

    def threaded(request: Any) -> StreamingResponse:
        number = request.path_params["number"]
        agent.plan(number)
        return StreamingResponse(agent.answer(number))

    routes = [Route("/async/{number}", asynchronous), Route("/threads/{number}", threaded)]
    return Starlette(routes=[*routes, Mount("/mounted", Starlette(routes=routes))])


@pytest.mark.parametrize("path", ["async", "threads", "mounted/async"])
def test_starlette_gives_one_trace_a_request(path: str, agent: Agent, captured: Captured) -> None:
    with serving_asgi(starlette_app(agent)) as get:
        bodies = at_once(lambda number: get(f"/{path}/{number}"))
    assert all(bodies)
    check_one_trace_each(captured)


def test_fastapi_is_a_starlette(agent: Agent, captured: Captured) -> None:
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/{number}")
    def chat(number: int) -> str:
        return agent.plan(number) + "".join(agent.answer(number))

    with serving_asgi(app) as get:
        at_once(lambda number: get(f"/{number}"), 8)
    check_one_trace_each(captured, 8)


async def test_a_websocket_connection_is_one_request(agent: Agent, captured: Captured) -> None:
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute

    async def chat(websocket: Any) -> None:
        await websocket.accept()
        number = await websocket.receive_text()
        await agent.aplan(number)
        async for text in agent.aanswer(number):
            await websocket.send_text(text)
        await websocket.close()

    app = Starlette(routes=[WebSocketRoute("/", chat)])

    async def connection(number: int) -> None:
        inbound = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": str(number)}]

        async def receive() -> Any:
            return inbound.pop(0)

        async def send(_message: Any) -> None:
            await asyncio.sleep(0)

        await app({"type": "websocket", "path": "/", "headers": [], "query_string": b""}, receive, send)

    await asyncio.gather(*(connection(number) for number in range(4)))
    check_one_trace_each(captured, 4)


async def test_lifespan_is_no_request_and_an_error_is_the_applications(agent: Agent) -> None:
    from starlette.applications import Starlette

    seen: list[Any] = []
    error = LookupError("of the application")

    async def broken(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append((scope["type"], open_request()))
        raise error

    app = Starlette()
    app.middleware_stack = broken
    for kind in ("lifespan", "http"):
        with pytest.raises(LookupError) as caught:
            await app({"type": kind}, None, None)  # pyright: ignore[reportArgumentType]
        assert caught.value is error
    assert [(kind, mark is None) for kind, mark in seen] == [("lifespan", True), ("http", False)]
    assert open_request() is None


# -- Flask ---------------------------------------------------------------------------------------------------------


def flask_app(agent: Agent) -> Any:
    from flask import Flask, Response

    app = Flask("chat")

    @app.get("/<int:number>")
    def chat(number: int) -> Response:
        agent.plan(number)
        return Response(agent.answer(number))

    return app


def test_flask_gives_one_trace_a_request(agent: Agent, captured: Captured) -> None:
    with serving_wsgi(flask_app(agent)) as get:
        bodies = at_once(lambda number: get(f"/{number}"))
    assert all(bodies)
    check_one_trace_each(captured)


def test_flask_behind_middleware_that_streams(agent: Agent, captured: Captured) -> None:
    app = flask_app(agent)
    inner = app.wsgi_app

    def streaming(environ: Any, start_response: Any) -> Iterator[bytes]:
        yield from inner(environ, start_response)

    app.wsgi_app = streaming
    with serving_wsgi(app) as get:
        at_once(lambda number: get(f"/{number}"), 8)
    captured.capture.windows.close_due()
    check_one_trace_each(captured, 8)


def test_a_server_span_that_ends_before_the_body_is_the_same_request(
    agent: Agent, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "_pipeline", object)
    captured.provider.add_span_processor(RequestBoundaries())
    tracer: Tracer = captured.provider.get_tracer("server")
    app = flask_app(agent)
    inner = app.wsgi_app

    def spanned(environ: Any, start_response: Any) -> Any:
        with tracer.start_as_current_span("GET", kind=SpanKind.SERVER):
            return inner(environ, start_response)

    app.wsgi_app = spanned
    with serving_wsgi(app) as get:
        at_once(lambda number: get(f"/{number}"), 8)
    check_one_trace_each(captured, 8)


def test_a_server_span_outside_marks_the_request_alone(
    agent: Agent, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "_pipeline", object)
    captured.provider.add_span_processor(RequestBoundaries())
    tracer: Tracer = captured.provider.get_tracer("server")
    app = flask_app(agent)
    for number in range(2):
        with tracer.start_as_current_span("GET", kind=SpanKind.SERVER):
            mark = open_request()
            response = app.test_client().get(f"/{number}")
            assert response.text
            assert mark is not None
            assert open_request() is mark
    check_one_trace_each(captured, 2)


# -- Django --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def django_views() -> dict[str, Callable[..., Any]]:
    """Views by name, filled in by each test; Django can be configured only once in a process."""
    import django
    from django.conf import settings
    from django.urls import path

    views: dict[str, Callable[..., Any]] = {}

    def sync(request: Any, number: int) -> Any:
        return views["sync"](number)

    async def asynchronous(request: Any, number: int) -> Any:
        return await views["async"](number)

    urls = (path("sync/<int:number>", sync), path("async/<int:number>", asynchronous))
    settings.configure(
        ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"], SECRET_KEY="of-tests", MIDDLEWARE=[], LOGGING_CONFIG=None
    )
    django.setup()
    return views


@pytest.fixture
def django_agent(agent: Agent, django_views: dict[str, Callable[..., Any]]) -> Agent:
    from django.http import StreamingHttpResponse

    def sync(number: int) -> StreamingHttpResponse:
        agent.plan(number)
        return StreamingHttpResponse(agent.answer(number))

    async def asynchronous(number: int) -> StreamingHttpResponse:
        await agent.aplan(number)
        return StreamingHttpResponse(agent.aanswer(number))

    django_views.update({"sync": sync, "async": asynchronous})
    return agent


def test_django_under_wsgi_gives_one_trace_a_request(django_agent: Agent, captured: Captured) -> None:
    from django.core.handlers.wsgi import WSGIHandler

    with serving_wsgi(WSGIHandler()) as get:
        bodies = at_once(lambda number: get(f"/sync/{number}"))
    assert all(bodies)
    check_one_trace_each(captured)


def test_django_under_asgi_gives_one_trace_a_request(django_agent: Agent, captured: Captured) -> None:
    from django.core.handlers.asgi import ASGIHandler

    with serving_asgi(ASGIHandler()) as get:
        bodies = at_once(lambda number: get(f"/async/{number}"))
    assert all(bodies)
    check_one_trace_each(captured)


# -- Celery --------------------------------------------------------------------------------------------------------


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
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=30):
        waiting = [app.tasks["chat"].delay(number) for number in range(12)]
        assert all(result.get(timeout=30, disable_sync_subtasks=False) for result in waiting)
    check_one_trace_each(captured, 12)


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


# -- the mark itself -----------------------------------------------------------------------------------------------


class _Body(list[bytes]):
    """A body with a `close`, as a WSGI server gets it."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    "body", [_Body(), [], (), iter(()), (part for part in ())], ids=lambda body: type(body).__name__
)
def test_the_body_is_handed_on_as_it_is(body: Any, agent: Agent) -> None:
    from flask import Flask

    app = Flask("plain")
    app.wsgi_app = lambda environ, start_response: body  # pyright: ignore[reportAttributeAccessIssue]
    given = contextvars.copy_context().run(app, {}, lambda *_: None)
    assert given is body
    if isinstance(body, _Body):
        given.close()
        assert body.closed == 1
        assert "close" not in vars(body)


def test_a_request_whose_body_is_never_closed_takes_in_no_other(agent: Agent, captured: Captured) -> None:
    from flask import Flask

    app, bodies = Flask("forgetful"), list[Any]()

    def forgetful(number: int, start_response: Any) -> _Body:
        agent.plan(number)
        return _Body()

    app.wsgi_app = forgetful  # pyright: ignore[reportAttributeAccessIssue]
    for number in range(3):
        bodies.append(app(number, None))  # pyright: ignore[reportArgumentType]
    assert [questions(trace) for trace in captured.close()] == [[f"question-{n}-plan"] for n in range(3)]


def test_a_failing_application_ends_its_request(agent: Agent) -> None:
    from flask import Flask

    app, error = Flask("broken"), RuntimeError("of the application")

    def broken(environ: Any, start_response: Any) -> Any:
        raise error

    app.wsgi_app = broken  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RuntimeError) as caught:
        app({}, None)  # pyright: ignore[reportArgumentType]
    assert caught.value is error
    assert open_request() is None


def test_a_decision_takes_nothing_from_another_request_of_its_thread(captured: Captured) -> None:
    """A pool's thread begins a request, serves another while the first one's body is read elsewhere."""

    def serve(name: str, *, decides: bool) -> capture.Request | None:
        request = capture.enter_request()
        capture.instant(capture.Kind.CONTEXT, "amfs_otel", {"label": name})
        if decides:
            memory = capture.handle_session("amfs", "a", None)
            capture.instant(capture.Kind.CONTEXT, "amfs_otel", {"label": f"{name}-memory"}, memory=memory)
        return request

    contextvars.copy_context().run(serve, "first", decides=False)
    contextvars.copy_context().run(serve, "second", decides=True)
    found = [[event["label"] for event in trace["events"]] for trace in captured.close()]
    assert sorted(found) == [["first"], ["second", "second-memory"]]


def test_a_request_may_begin_before_anything_is_captured(captured_with: Callable[..., Captured]) -> None:
    """An endpoint that imports its SDK itself: the pipeline starts within the first request."""
    capture.current_request.set(None)
    earlier = capture.enter_request()
    assert earlier is not None
    capture.end_request(earlier)
    request = capture.enter_request()
    assert request is not None
    captured = captured_with()
    capture.instant(capture.Kind.CONTEXT, "amfs_otel", {"label": "inside"})
    capture.end_request(request)
    assert [trace["closed_by"] for trace in captured.traces()] == ["session_end"]
    assert open_request() is None


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_boundary_starts_no_pipeline(name: str) -> None:
    for target in ("celery.signals", "django.core.handlers.base", "flask.app", "starlette.applications"):
        importlib.import_module(target)
    started: list[str] = []
    instrumentor.instrument([name], before_patch=lambda: started.append(name))
    assert started == []
    assert next(state for state in instrumentor.states() if state.name == name).state == "patched"
    instrumentor.uninstrument([name])
