"""Calls of every library as its users make them, for the contract: a few that succeed and one that fails.

Each makes one answer of plain values, or raises what the library raises. A library with no calls here has no contract.
"""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest

Call = Callable[[], Awaitable[Any]]
"""Makes one call; its answer as plain values."""

Calls = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Sequence[Call]]]
"""Opens what a library's calls need, and gives them; the last one fails."""


@asynccontextmanager
async def _amfs(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from amfs import AgentMemory, OutcomeType
    from amfs_filesystem import FilesystemAdapter

    root = tempfile.mkdtemp(dir=request.getfixturevalue("tmp_path"))  # a memory of its own, each time
    mem: Any = AgentMemory("deploy-agent", adapter=FilesystemAdapter(Path(root), "default"))

    async def write() -> Any:
        return mem.write("checkout", "retry-pattern", {"max_retries": 3}).value

    async def read() -> Any:
        return mem.read("checkout", "retry-pattern").value

    async def search() -> Any:
        return [entry.key for entry in mem.search(query="retry")]

    async def note() -> Any:
        return mem.record_context("deploy", "asked to")

    async def refused() -> Any:
        return mem.record_attempt(outcome_type=OutcomeType.SUCCESS)

    yield write, read, search, note, refused


@asynccontextmanager
async def _openai(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from openai import AsyncOpenAI, OpenAI

    from tests.instrumentation.openai_calls import HAS_RESPONSES, aask, ask, respond

    way: Any = {"base_url": request.getfixturevalue("model_server").base_url, "api_key": "k", "max_retries": 0}
    with OpenAI(**way) as client:
        async with AsyncOpenAI(**way) as asynchronous:

            async def plain() -> Any:
                return ask(client).choices[0].message.content

            async def awaited() -> Any:
                return (await aask(asynchronous)).choices[0].message.content

            async def streamed() -> Any:
                return [chunk.choices[0].delta.content for chunk in ask(client, stream=True) if chunk.choices]

            async def responded() -> Any:
                return respond(client).output[0].content[0].text

            async def refused() -> Any:
                return ask(client, "rate-limited")

            yield plain, awaited, streamed, *((responded,) if HAS_RESPONSES else ()), refused


@asynccontextmanager
async def _anthropic(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from anthropic import Anthropic, AsyncAnthropic

    from tests.instrumentation.anthropic_calls import aask, ask

    way: Any = {"base_url": request.getfixturevalue("model_server").origin, "api_key": "k", "max_retries": 0}
    with Anthropic(**way) as client:
        async with AsyncAnthropic(**way) as asynchronous:

            async def plain() -> Any:
                return ask(client).content[0].text

            async def awaited() -> Any:
                return (await aask(asynchronous)).content[0].text

            async def streamed() -> Any:
                return [event.type for event in ask(client, stream=True)]

            async def refused() -> Any:
                return ask(client, "rate-limited")

            yield plain, awaited, streamed, refused


@asynccontextmanager
async def _langchain(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import tool

    class Shelf(BaseRetriever):
        broken: bool = False

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            if self.broken:
                raise LookupError("no shelf")
            return [Document("retry pattern v3", metadata={"key": "checkout/retry-pattern"})]

    @tool
    def look(service: str) -> str:
        """Looks at a service."""
        return f"3 SEV-1 in {service}"

    model = FakeMessagesListChatModel(responses=[AIMessage("roll back")])
    asked: Any = {"name": "look", "args": {"service": "checkout"}, "id": "call_1", "type": "tool_call"}

    async def plain() -> Any:
        return model.invoke("deploy?").content

    async def awaited() -> Any:
        return (await model.ainvoke("deploy?")).content

    async def tool_call() -> Any:
        return look.invoke(asked).content

    async def retrieval() -> Any:
        return [found.page_content for found in Shelf().invoke("retry")]

    async def refused() -> Any:
        return Shelf(broken=True).invoke("retry")

    yield plain, awaited, tool_call, retrieval, refused


@asynccontextmanager
async def _langgraph(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.store.base import GetOp
    from langgraph.store.memory import InMemoryStore

    class State(TypedDict):
        count: int

    class Broken(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            raise LookupError("no store")

    def count(state: State) -> State:
        return {"count": state["count"] + 1}

    graph: Any = StateGraph(State)
    graph.add_node("counts", count)
    graph.add_edge(START, "counts")
    graph.add_edge("counts", END)
    made, store, place = graph.compile(checkpointer=InMemorySaver()), InMemoryStore(), ("team", "checkout")

    async def put() -> Any:
        return store.put(place, "retry-pattern", {"max_retries": 3})

    async def get() -> Any:
        found: Any = await store.aget(place, "retry-pattern")
        return found.value

    async def search() -> Any:
        return [found.key for found in store.search(("team",))]

    async def batch() -> Any:
        return [found.value for found in store.batch([GetOp(place, "retry-pattern")])]

    async def run() -> Any:
        return made.invoke({"count": 1}, {"configurable": {"thread_id": "thread-7"}})

    async def refused() -> Any:
        return Broken().get(place, "retry-pattern")

    yield put, get, search, batch, run, refused


@asynccontextmanager
async def _mcp(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from tests.instrumentation.mcp_sides import connected, made, said, uri

    async with connected(made(), "memory") as client:

        async def tool_call() -> Any:
            return said(await client.call_tool("look", {"service": "checkout"}))

        async def resource() -> Any:
            return (await client.read_resource(uri("memo://teams/checkout"))).contents[0].text

        async def refused() -> Any:
            return await client.read_resource(uri("memo://nobody/x"))

        yield tool_call, resource, refused


# -- libraries whose patch only marks requests ---------------------------------------------------------------------


@asynccontextmanager
async def _starlette(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
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
async def _flask(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
    from flask import Flask

    app = Flask("chat")
    app.testing = True  # so that an error of a view is raised

    def fails() -> str:
        raise LookupError("of the application")

    app.add_url_rule("/answers", "answers", lambda: iter(["roll ", "back"]))
    app.add_url_rule("/fails", "fails", fails)
    yield _wsgi(app, "/answers"), _wsgi(app, "/fails")


@asynccontextmanager
async def _django(request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
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
async def _celery(_request: pytest.FixtureRequest) -> AsyncIterator[Sequence[Call]]:
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


CALLS: dict[str, Calls] = {
    "amfs": _amfs,
    "openai": _openai,
    "anthropic": _anthropic,
    "langchain": _langchain,
    "langgraph": _langgraph,
    "mcp": _mcp,
    "starlette": _starlette,
    "flask": _flask,
    "django": _django,
    "celery": _celery,
}
