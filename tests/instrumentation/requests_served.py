"""An agent behind a request, and what must come of each request; for the tests of request boundaries."""

import json
import re
import socketserver
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from amfs_otel import capture, instrumentor
from amfs_otel.demo.model_server import ModelServer
from tests.instrumentation.recording import Captured, kinds
from tests.instrumentation.serving import CLIENTS

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


@contextmanager
def patched_agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent whose client and whose frameworks are patched; a capture must be installed."""
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
