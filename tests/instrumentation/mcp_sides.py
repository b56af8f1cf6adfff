"""A server and clients of it, in either major version of the SDK, over each way between them; also as a program.

As a program it serves: `mcp_sides.py stdio`, or `mcp_sides.py http`, which says its port in its first line.
"""

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import mcp.client.session
import uvicorn
from opentelemetry import trace

FIRST = not hasattr(mcp.client.session.ClientSession, "server_info")
"""Whether it is 1.x."""

IN_PROCESS = ("memory", "http") if FIRST else ("direct", "memory", "http")
"""Ways between two sides in this process; `direct` is 2.x's without messages."""


def made(tools: tuple[Callable[..., Any], ...] = (), name: str = "memory") -> Any:
    """A server with the tools and resources below, and more tools."""
    server = new_server(name)
    for tool in (look, boom, meta, *tools):
        server.tool()(tool)
    server.resource("memo://teams/{team}")(memo)
    server.prompt()(greeting)
    return server


def new_server(name: str) -> Any:
    """A high-level server."""
    if FIRST:
        from mcp.server.fastmcp import FastMCP

        return FastMCP(name, log_level="CRITICAL", stateless_http=False)
    from mcp.server.mcpserver import MCPServer

    return MCPServer(name, version="7.1", log_level="CRITICAL")


def handlers_context() -> Any:
    """The annotation by which a tool asks for the request's context."""
    if FIRST:
        from mcp.server.fastmcp import Context
    else:
        from mcp.server.mcpserver import Context
    return Context


def lowlevel(server: Any) -> Any:
    """The server below a high-level one."""
    return server._mcp_server if FIRST else server._lowlevel_server


def look(service: str, depth: int = 1) -> str:
    """Looks at a service."""
    return f"3 SEV-1 in {service}, depth {depth}"


async def boom() -> str:
    """Fails."""
    raise ValueError("disk full")


async def meta() -> str:
    """What the tool's body sees: the current trace, and baggage."""
    from opentelemetry import baggage

    ids = trace.get_current_span().get_span_context()
    return f"{ids.trace_id:032x} {ids.span_id:016x} {sorted(baggage.get_all())}"


def memo(team: str) -> str:
    """A resource."""
    return f"memo of {team}"


def greeting() -> str:
    """A prompt."""
    return "hello"


# -- clients -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def connected(server: Any, way: str, **options: Any) -> AsyncIterator[Any]:
    """A client of `server` over one of `IN_PROCESS`."""
    if way == "http":
        with serving(server) as url:
            async with connected_to_url(url, **options) as client:
                yield client
    elif FIRST:
        from mcp.shared.memory import create_connected_server_and_client_session as session_of

        async with session_of(lowlevel(server), **options) as session:
            yield session
    else:
        async with mcp.Client(server, mode="legacy" if way == "memory" else "auto", **options) as client:
            yield client


@asynccontextmanager
async def connected_to_url(url: str, **options: Any) -> AsyncIterator[Any]:
    """A client over streamable HTTP."""
    if not FIRST:
        async with mcp.Client(url, **options) as client:
            yield client
        return
    from mcp.client.streamable_http import streamablehttp_client

    async with streamablehttp_client(url) as (read, write, _), mcp.ClientSession(read, write, **options) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def connected_to_process(command: list[str], env: dict[str, str]) -> AsyncIterator[Any]:
    """A client of a process over its standard streams."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env)
    if not FIRST:
        async with mcp.Client(stdio_client(parameters)) as client:
            yield client
        return
    async with stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def bare_request(client: Any, name: str, arguments: Any, meta: dict[str, Any] | None = None) -> Any:
    """A tool called below the clients' public methods, with any `_meta`: no patch sees it on this side."""
    from mcp import types

    params: Any = {"name": name, "arguments": arguments, "_meta": meta}
    request: Any = types.CallToolRequest(method="tools/call", params=types.CallToolRequestParams(**params))
    session = getattr(client, "session", client)
    return await session.send_request(types.ClientRequest(request) if FIRST else request, types.CallToolResult)


def uri(text: str) -> Any:
    """A resource's URI as the clients want it."""
    from pydantic import AnyUrl

    return AnyUrl(text) if FIRST else text


def said(result: Any) -> str:
    """The first text of a tool's result."""
    return result.content[0].text


def failed(result: Any) -> bool:
    """Whether the result is an error."""
    return result.isError if FIRST else result.is_error


# -- servers -------------------------------------------------------------------------------------------------------


@contextmanager
def serving(server: Any) -> Iterator[str]:
    """Serves it over streamable HTTP in a thread; its URL."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    running = uvicorn.Server(_config(server))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        running.should_exit = True
        thread.join()
        listening.close()


def _config(server: Any) -> uvicorn.Config:
    app = server.streamable_http_app()
    return uvicorn.Config(app, log_level="critical", lifespan="on", ws="none", timeout_graceful_shutdown=1)


async def until(reached: Callable[[], bool]) -> None:
    """Gives way until something has happened elsewhere."""
    while not reached():  # noqa: ASYNC110  it may happen in the thread of a server
        await asyncio.sleep(0.01)


async def stops(task: "asyncio.Future[Any] | Awaitable[Any]") -> BaseException | None:
    """What a task ends with."""
    try:
        await task
    except BaseException as error:
        return error
    return None


def program(way: str) -> list[str]:
    """The command that serves over `way` under `amfs-otel run`."""
    return [sys.executable, "-m", "amfs_otel", "run", sys.executable, str(Path(__file__)), way]


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        made().run("stdio")
    else:
        with socket.create_server(("127.0.0.1", 0)) as sockets:
            print(sockets.getsockname()[1], flush=True)
            uvicorn.Server(_config(made())).run(sockets=[sockets])
