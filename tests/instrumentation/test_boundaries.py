"""A server that calls a model and has no spans of its own: one trace a request, never mixed, streamed bodies included.

Here Starlette and FastAPI, and the mark by which requests are kept apart; WSGI frameworks and Celery have files of their own.
"""

import asyncio
import contextvars
import importlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amfs_otel import capture, instrumentor
from amfs_otel.capture.requests import open_request
from tests.instrumentation.contract import Call, Contract
from tests.instrumentation.recording import Captured
from tests.instrumentation.requests_served import FRAMEWORKS, Agent, check_one_trace_each, patched_agent, questions
from tests.instrumentation.serving import at_once, serving_asgi


@pytest.fixture
def agent(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with patched_agent(monkeypatch) as patched:
        yield patched


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


def fastapi_app(agent: Agent) -> Any:
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    @app.get("/async/{number}")
    async def asynchronous(number: int) -> StreamingResponse:
        await agent.aplan(number)
        return StreamingResponse(agent.aanswer(number))

    @app.get("/threads/{number}")
    def threaded(number: int) -> StreamingResponse:
        agent.plan(number)
        return StreamingResponse(agent.answer(number))

    @app.get("/groups/{number}")
    async def grouped(number: int) -> str:
        async def whole_answer() -> str:
            return "".join([text async for text in agent.aanswer(number)])

        async with asyncio.TaskGroup() as group:
            group.create_task(agent.aplan(number))
            answer = group.create_task(whole_answer())
        return answer.result()

    return app


@pytest.mark.parametrize("path", ["async", "threads", "groups"])
def test_fastapi_gives_one_trace_a_request(path: str, agent: Agent, captured: Captured) -> None:
    with serving_asgi(fastapi_app(agent)) as get:
        bodies = at_once(lambda number: get(f"/{path}/{number}"))
    assert all(f"question-{number}-answer" in body for number, body in enumerate(bodies))
    check_one_trace_each(captured)


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

    def serve() -> None:
        for number in range(3):
            bodies.append(app(number, None))  # pyright: ignore[reportArgumentType]

    contextvars.copy_context().run(serve)
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


# -- the contract of all patches --------------------------------------------------------------------------------------


@asynccontextmanager
async def starlette_calls(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def answers(_request: Any) -> Any:
        return PlainTextResponse("roll back")

    async def fails(_request: Any) -> Any:
        raise LookupError("of the application")

    app = Starlette(routes=[Route("/answers", answers), Route("/fails", fails)])

    def get(path: str) -> Call:
        async def call() -> Any:
            scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
            sent: list[Any] = []

            async def receive() -> Any:
                return {"type": "http.request", "body": b""}

            async def send(message: Any) -> None:
                sent.append(message)

            await app(scope, receive, send)
            return sent

        return call

    yield get("/answers"), get("/fails")


def _wsgi(app: Any, path: str) -> Call:
    from werkzeug.test import Client

    async def call() -> Any:
        response = Client(app).get(path)
        return response.status_code, response.text

    return call


@asynccontextmanager
async def flask_calls(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from flask import Flask

    app = Flask("chat")
    app.testing = True  # so that an error of a view is raised

    def fails() -> str:
        raise LookupError("of the application")

    app.add_url_rule("/answers", "answers", lambda: iter(["roll ", "back"]))
    app.add_url_rule("/fails", "fails", fails)
    yield _wsgi(app, "/answers"), _wsgi(app, "/fails")


@asynccontextmanager
async def django_calls(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    views = request.getfixturevalue("django_views")
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse
    from django.test import override_settings

    def view(number: int) -> HttpResponse:
        if number:
            raise LookupError("of the application")
        return HttpResponse("roll back")

    views["sync"] = view
    app = WSGIHandler()
    with override_settings(DEBUG_PROPAGATE_EXCEPTIONS=True):
        yield _wsgi(app, "/sync/0"), _wsgi(app, "/sync/1")


@asynccontextmanager
async def celery_calls(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from celery import Celery

    app = Celery("tasks", broker="memory://", backend="cache+memory://", set_as_current=False)

    @app.task(name="chat", shared=False)
    def chat(number: int) -> str:
        if number:
            raise LookupError("of the application")
        return "roll back"

    def eager(number: int) -> Call:
        async def call() -> Any:
            return app.tasks["chat"].apply(args=(number,), throw=True).result

        return call

    yield eager(0), eager(1)


_MARKS = ("amfs_otel.capture.requests:enter_request", "_boundaries:_type_of", "_boundaries:_ends_with")

CONTRACTS = {
    "starlette": Contract(starlette_calls, _MARKS),
    "flask": Contract(flask_calls, _MARKS),
    "django": Contract(django_calls, _MARKS),
    "celery": Contract(celery_calls, _MARKS),
}
