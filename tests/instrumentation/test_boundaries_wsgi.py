"""Flask and Django that call a model and have no spans of their own, and those that have: one trace a request."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, Tracer

from amfs_otel import attach
from amfs_otel.attach import RequestBoundaries
from amfs_otel.capture.requests import open_request
from tests.instrumentation.recording import Captured
from tests.instrumentation.requests_served import Agent, check_one_trace_each, patched_agent
from tests.instrumentation.serving import at_once, serving_asgi, serving_wsgi


@pytest.fixture
def agent(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with patched_agent(monkeypatch) as patched:
        yield patched


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


@pytest.mark.parametrize("told", [1, 2], ids=["told-once", "told-by-a-proxy-too"])
def test_a_server_span_that_ends_before_the_body_is_the_same_request(
    told: int, agent: Agent, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider of another vendor hands our processor on to the SDK's, which has one: each span is told twice."""
    monkeypatch.setattr(attach, "_pipeline", object)
    for _ in range(told):
        captured.provider.add_span_processor(RequestBoundaries())
    tracer: Tracer = captured.provider.get_tracer("server")
    app = flask_app(agent)
    inner = app.wsgi_app

    def spanned(environ: Any, start_response: Any) -> Any:
        with tracer.start_as_current_span("GET", kind=SpanKind.SERVER):
            return inner(environ, start_response)

    app.wsgi_app = spanned
    with serving_wsgi(app) as get:
        bodies = at_once(lambda number: get(f"/{number}"), 8)
    assert all(f"question-{number}-answer" in body for number, body in enumerate(bodies))
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
