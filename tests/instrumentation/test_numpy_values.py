"""Values of numpy's in the arguments and results of every library: the application sees what it would without us."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import langgraph.pregel
import numpy as np
import pytest
from amfs import AgentMemory
from amfs_filesystem import FilesystemAdapter
from anthropic import Anthropic
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore
from openai import OpenAI

from amfs_otel import guard, instrumentor
from amfs_otel.demo.model_server import ModelServer
from tests.instrumentation import anthropic_calls, openai_calls
from tests.instrumentation.mcp_sides import connected, made
from tests.instrumentation.recording import Captured

VALUES: dict[str, Callable[[], Any]] = {
    "array": lambda: np.arange(3),
    "not finite": lambda: np.array([np.nan, np.inf]),
    "scalar": lambda: np.float32(0.5),
    "float": lambda: np.float64(0.5),
    "truth": lambda: np.bool_(False),
    "no dimension": lambda: np.array(None, dtype=object),
    "structured": lambda: np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "large": lambda: np.zeros(20_001),
}

Place = Callable[[Any, ModelServer, Path], Awaitable[Any]]


def openai_with(**more: Callable[[Any], Any]) -> Place:
    async def ask(value: Any, server: ModelServer, _: Path) -> Any:
        with OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
            given = {key: made(value) for key, made in more.items()}
            return openai_calls.ask(client, **given).choices[0].message.content

    return ask


def anthropic_with(**more: Callable[[Any], Any]) -> Place:
    async def ask(value: Any, server: ModelServer, _: Path) -> Any:
        with Anthropic(base_url=server.origin, api_key="k", max_retries=0) as client:
            given = {key: made(value) for key, made in more.items()}
            return anthropic_calls.ask(client, **given).content[0].text

    return ask


def said(value: Any) -> Any:
    return [{"role": "user", "content": "hello", "more": value}]


def parts(value: Any) -> Any:
    return [{"role": "user", "content": [{"type": "text", "text": "hello", "more": value}]}]


def tools(value: Any) -> Any:
    return [{"type": "function", "function": {"name": "look", "parameters": {"enum": value}}}]


async def embedded(value: Any, server: ModelServer, _: Path) -> Any:
    with OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
        return client.embeddings.create(model="text-embedding-3-small", input=value).data[0].embedding[:3]


async def langchain_tool(value: Any, _server: ModelServer, _: Path) -> Any:
    @tool
    def same(given: Any) -> Any:
        """Gives what it was given."""
        return given

    return same.invoke({"given": value})


async def store(value: Any, _server: ModelServer, _: Path) -> Any:
    assert langgraph.pregel  # whose import has it patched
    kept = InMemoryStore()
    kept.put(("team",), "k", {"value": value})
    found = kept.get(("team",), "k")
    return found.value["value"] if found is not None else None


async def memory(value: Any, _server: ModelServer, tmp_path: Path) -> Any:
    mem: Any = AgentMemory("agent", adapter=FilesystemAdapter(tmp_path / "memory", "default"))
    mem.write("checkout", "k", {"value": value})
    return mem.read("checkout", "k").value


async def mcp_tool(value: Any, _server: ModelServer, _: Path) -> Any:
    async with connected(made(), "memory") as client:
        return (await client.call_tool("look", {"service": "a", "depth": value})).content[0].text


PLACES: dict[str, Place] = {
    "openai message": openai_with(messages=said),
    "openai part": openai_with(messages=parts),
    "openai tools": openai_with(tools=tools),
    "openai parameter": openai_with(temperature=lambda value: value),
    "openai stop": openai_with(stop=lambda value: value),
    "openai metadata": openai_with(metadata=lambda value: {"k": value}),
    "openai extra body": openai_with(extra_body=lambda value: {"k": value}),
    "openai stream": openai_with(stream=lambda value: value),
    "openai messages": openai_with(messages=lambda value: value),
    "openai embedding": embedded,
    "anthropic message": anthropic_with(messages=said),
    "anthropic part": anthropic_with(messages=parts),
    "anthropic system": anthropic_with(system=lambda value: value),
    "anthropic tools": anthropic_with(tools=lambda value: [{"name": "look", "input_schema": {"enum": value}}]),
    "anthropic extra body": anthropic_with(extra_body=lambda value: {"temperature": value}),
    "anthropic stop": anthropic_with(stop_sequences=lambda value: value),
    "anthropic metadata": anthropic_with(metadata=lambda value: {"user_id": value}),
    "langchain tool": langchain_tool,
    "langgraph store": store,
    "amfs memory": memory,
    "mcp tool": mcp_tool,
}


async def outcome(place: Place, value: Any, server: ModelServer, tmp_path: Path) -> Any:
    """What the application gets: the value itself where it is that, its text where it is another, or the error."""
    try:
        found = await place(value, server, tmp_path)
    except Exception as error:
        return type(error), str(error)
    return "the same object" if found is value else (type(found), str(found))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
async def test_the_application_sees_no_difference(
    captured: Captured, model_server: ModelServer, tmp_path: Path, place: Place
) -> None:
    alone = [await outcome(place, made(), model_server, tmp_path / name) for name, made in VALUES.items()]
    instrumentor.instrument(["openai", "anthropic", "langchain", "langgraph", "amfs", "mcp"])
    ours = [await outcome(place, made(), model_server, tmp_path / f"{name} again") for name, made in VALUES.items()]
    assert ours == alone
    assert sum(len(trace["events"]) for trace in captured.close()) >= len(VALUES)
    assert guard.counters() == {}
