"""Baggage that a client sends: what it says joins no session, unless the settings trust it; over real HTTP.

The applications have server spans as server instrumentations make them: the headers are read by the global propagator
and stand in the context of the span.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import context, propagate
from opentelemetry.trace import SpanKind, Tracer

from amfs_otel import attach, capture
from amfs_otel.attach import RequestBoundaries
from amfs_otel.capture.sessions import Session
from amfs_otel.model import ClosedBy, Kind
from tests.instrumentation.recording import Captured, kinds
from tests.instrumentation.requests_served import Agent, patched_agent, questions
from tests.instrumentation.serving import Get, serving_asgi, serving_wsgi

ASKED = ["question-7-plan", "question-7-answer"]


@contextmanager
def server_span(tracer: Tracer, headers: dict[str, str]) -> Iterator[None]:
    """What a server instrumentation does around a request."""
    token = context.attach(propagate.extract(headers))
    try:
        with tracer.start_as_current_span("GET", kind=SpanKind.SERVER):
            yield
    finally:
        context.detach(token)


@contextmanager
def starlette(agent: Agent, tracer: Tracer) -> Iterator[Get]:
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    async def chat(request: Any) -> StreamingResponse:
        number = request.path_params["number"]
        await agent.aplan(number)
        return StreamingResponse(agent.aanswer(number))

    app = Starlette(routes=[Route("/{number}", chat)])

    async def spanned(scope: Any, receive: Any, send: Any) -> None:
        with server_span(tracer, {name.decode(): value.decode() for name, value in scope["headers"]}):
            await app(scope, receive, send)

    with serving_asgi(spanned) as get:
        yield get


@contextmanager
def flask(agent: Agent, tracer: Tracer) -> Iterator[Get]:
    from flask import Flask

    app = Flask("chat")
    app.add_url_rule("/<number>", view_func=lambda number: agent.plan(number) + "".join(agent.answer(number)))

    def spanned(environ: Any, start_response: Any) -> Any:
        headers = {name[5:].lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
        with server_span(tracer, headers):
            return app(environ, start_response)

    with serving_wsgi(spanned) as get:
        yield get


SERVED = pytest.mark.parametrize("served", [starlette, flask], ids=lambda served: served.__name__)
Served = Callable[[Agent, Tracer], Any]


def planning(tracer: Tracer) -> tuple[Session, str]:
    """A session of this process that is open while the requests come, and the `traceparent` of a span around it."""
    session = capture.handle_session("session", "planner", None)
    with tracer.start_as_current_span("work") as span:
        token = capture.explicit_session.set(session)
        capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "plan", "summary": "of the planner"})
        capture.explicit_session.reset(token)
        ids = span.get_span_context()
    return session, f"00-{ids.trace_id:032x}-{ids.span_id:016x}-01"


def ask(captured: Captured, served: Served, monkeypatch: pytest.MonkeyPatch, claim: str | None = None) -> Session:
    """Asks once, by headers that claim to be a part of the planner's session (or `claim`) and of its trace."""
    monkeypatch.setattr(attach, "_pipeline", object)
    captured.provider.add_span_processor(RequestBoundaries())
    tracer = captured.provider.get_tracer("server")
    session, traceparent = planning(tracer)
    claimed = session.id if claim is None else claim
    with patched_agent(monkeypatch) as agent, served(agent, tracer) as get:
        body = get("/7", {"traceparent": traceparent, "baggage": f"other=1,amfs.session.id={claimed}"})
    assert "question-7-answer" in body
    return session


@SERVED
def test_a_forged_header_joins_nothing(served: Served, captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ask(captured, served, monkeypatch)
    (asked,) = captured.traces()
    assert (asked["opened_by"], asked["inferred"], asked["closed_by"]) == ("implicit", True, "session_end")
    assert questions(asked) == ASKED
    assert asked.pop("claimed_session") == session.id
    assert session.id not in json.dumps(asked)
    (record,) = captured.records()
    assert record.window.session != session.id

    capture.close_session(session, ClosedBy.SESSION_END)
    _, planned = captured.traces()
    assert (planned["agent"], kinds(planned)) == ("planner", ["context"])
    assert captured.capture.windows.open_count() == 0
    named = [span.name for span in captured.spans() if session.id in (span.attributes or {}).values()]
    assert named == ["invoke_agent planner"]


@SERVED
def test_a_header_that_is_trusted_joins_its_session(
    served: Served, captured_with: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = captured_with(trust_baggage=True)
    session = ask(captured, served, monkeypatch)
    captured.close()
    records = {record.window.opened_by: record.window for record in captured.records()}
    assert {opened_by: window.session for opened_by, window in records.items()} == {
        "session": session.id,
        "remote": session.id,
    }
    (asked,) = [trace for trace in captured.traces() if trace["opened_by"] == "remote"]
    assert questions(asked) == ASKED
    assert "claimed_session" not in asked


@pytest.mark.parametrize("claim", ["x" * 32, "AB" * 16, "ab" * 17, "ab", "%22" * 8])
def test_what_is_no_session_id_joins_nothing_even_trusted(
    claim: str, captured_with: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = captured_with(trust_baggage=True)
    ask(captured, starlette, monkeypatch, claim)
    (asked,) = captured.traces()
    assert (asked["opened_by"], questions(asked)) == ("implicit", ASKED)
    assert asked["claimed_session"] == claim.replace("%22", '"')
