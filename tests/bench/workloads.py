"""What is timed, one class a workload: `call` is the timed piece, `units` how many calls of a user's it stands for."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import wrapt

from tests.bench import messages, pipeline, traffic
from tests.bench.shortcut import Shortcut

SHORT_CHUNKS, LONG_CHUNKS = 20, 220


class Workload(Protocol):
    """A piece of work to be timed again and again."""

    units: int

    def call(self) -> None:
        """Does it once."""
        ...


class Floor:
    """The unit of every ratio: a span with 15 attributes, set one by one, through a BatchSpanProcessor."""

    units = 1

    def __init__(self, _shortcut: Shortcut | None) -> None:
        from opentelemetry.trace import SpanKind

        self._tracer = pipeline.provider().get_tracer("floor")
        self._kind = SpanKind.CLIENT
        self._attributes: list[tuple[str, Any]] = [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "openai"),
            ("gen_ai.request.model", traffic.MODEL),
            ("gen_ai.request.temperature", 0.3),
            ("gen_ai.request.max_tokens", 300),
            ("gen_ai.request.top_p", 0.95),
            ("gen_ai.request.seed", 11),
            ("server.address", "api.openai.com"),
            ("server.port", 443),
            ("gen_ai.response.id", "chatcmpl-Q2v8Rk4d"),
            ("gen_ai.response.model", f"{traffic.MODEL}-2024-07-18"),
            ("gen_ai.response.finish_reasons", ("tool_calls",)),
            ("gen_ai.usage.input_tokens", 161),
            ("gen_ai.usage.output_tokens", 74),
            ("openai.response.service_tier", "default"),
        ]

    def call(self) -> None:
        span = self._tracer.start_span(f"chat {traffic.MODEL}", kind=self._kind)
        for key, value in self._attributes:
            span.set_attribute(key, value)
        span.end()


def _plain() -> Callable[[], Any]:
    """A chat completion by a client of its own."""
    create = traffic.client().chat.completions.create
    return lambda: create(**traffic.chat_arguments())


def _streamed(pieces: int) -> Callable[[], Any]:
    """The same, streamed."""
    create = traffic.client(pieces=pieces).chat.completions.create
    return lambda: create(**traffic.chat_arguments(stream=True))


class Chat:
    """A chat completion; thin: the reply was parsed beforehand."""

    units = 1

    def __init__(self, shortcut: Shortcut, *, thin: bool = True) -> None:
        self._create = traffic.client().chat.completions.create
        self._arguments = traffic.chat_arguments()
        if thin:
            shortcut.take(_plain())
        else:
            shortcut.give_back()
        self.is_patched = isinstance(self._create, wrapt.BoundFunctionWrapper)
        self._bare: Any = self._create.__wrapped__ if self.is_patched else self._create

    def call(self) -> None:
        self._create(**self._arguments)

    def call_bare(self) -> None:
        """The same past the patch."""
        self._bare(**self._arguments)


class Stream:
    """A streamed completion, read to its end."""

    units = 1

    def __init__(self, shortcut: Shortcut, chunks: int) -> None:
        shortcut.take(_streamed(chunks), streamed=True)
        self._create = traffic.client().chat.completions.create
        self._arguments = traffic.chat_arguments(stream=True, stream_options={"include_usage": True})

    def call(self) -> None:
        for _ in self._create(**self._arguments):
            pass


class DroppedStream(Stream):
    """A streamed completion of which nobody reads a chunk."""

    def call(self) -> None:
        self._create(**self._arguments)


class AsyncStream:
    """`Stream` on a running loop."""

    units = 1

    def __init__(self, shortcut: Shortcut, chunks: int) -> None:
        shortcut.take(_streamed(chunks), streamed=True)
        self._loop = asyncio.new_event_loop()
        self._create = traffic.client(asynchronous=True).chat.completions.create
        self._arguments = traffic.chat_arguments(stream=True, stream_options={"include_usage": True})

    async def _read(self) -> None:
        stream: AsyncIterator[Any] = await self._create(**self._arguments)
        async for _ in stream:
            pass

    def call(self) -> None:
        self._loop.run_until_complete(self._read())


class FiftyInARow(Chat):
    """Fifty chat completions one after the other, timed as one piece: as `FiftyAtOnce` is."""

    units = 50

    def call(self) -> None:
        for _ in range(self.units):
            self._create(**self._arguments)


class FiftyAtOnce:
    """Fifty chat completions on one loop, each of which waits before its reply comes."""

    units = 50

    def __init__(self, shortcut: Shortcut) -> None:
        shortcut.take(_plain())
        self._loop = asyncio.new_event_loop()
        self._create = traffic.client(asynchronous=True).chat.completions.create
        self._arguments = traffic.chat_arguments()

    async def _one(self) -> None:
        await asyncio.sleep(0)
        await self._create(**self._arguments)

    async def _all(self) -> None:
        await asyncio.gather(*(self._one() for _ in range(self.units)))

    def call(self) -> None:
        self._loop.run_until_complete(self._all())


class Message:
    """A message of Anthropic's; thin: the reply was parsed beforehand."""

    units = 1

    def __init__(self, shortcut: Shortcut, *, thin: bool = True) -> None:
        create = messages.provider().client("anthropic").messages.create
        self._create, self._arguments = create, messages.message_arguments()
        if thin:
            shortcut.take(lambda: create(**self._arguments))
        else:
            shortcut.give_back()

    def call(self) -> None:
        self._create(**self._arguments)


class MessageStream:
    """A streamed message, read to its end."""

    units = 1

    def __init__(self, shortcut: Shortcut, pieces: int) -> None:
        create = messages.provider(pieces=pieces).client("anthropic").messages.create
        self._create, self._arguments = create, messages.message_arguments(stream=True)
        shortcut.take(lambda: create(**self._arguments), streamed=True)

    def call(self) -> None:
        for _ in self._create(**self._arguments):
            pass


class Agent:
    """A run of an agent over langgraph."""

    units = 1

    def __init__(self, _shortcut: Shortcut | None) -> None:
        from tests.bench import langchain_agent

        self._run, self._agent = langchain_agent.run_once, langchain_agent.made()

    def call(self) -> None:
        self._run(self._agent)


class Memory:
    """One call of an AMFS handle over the filesystem adapter."""

    units = 1

    def __init__(self, _shortcut: Shortcut | None, method: str) -> None:
        from amfs import AgentMemory, OutcomeType
        from amfs_filesystem import FilesystemAdapter

        memory: Any = AgentMemory("bench-agent", adapter=FilesystemAdapter(Path(tempfile.mkdtemp()), "default"))
        memory.write("checkout-service", "retry-pattern", {"max_retries": 3}, confidence=0.9)
        self._number = 0
        self._calls: dict[str, Callable[[], Any]] = {
            "read": lambda: memory.read("checkout-service", "retry-pattern"),
            "write": lambda: memory.write("checkout-service", "retry-pattern", {"max_retries": 3}, confidence=0.9),
            "commit": lambda: memory.commit_outcome(f"DEP-{self._number}", OutcomeType.SUCCESS),
        }
        self._call = self._calls[method]
        self._read_first = method == "commit"

    def call(self) -> None:
        self._number += 1
        if self._read_first:
            self._calls["read"]()
        self._call()


WORKLOADS: dict[str, Callable[[Any], Workload]] = {
    "floor": Floor,
    "chat": Chat,
    "chat_whole": lambda shortcut: Chat(shortcut, thin=False),
    "stream_short": lambda shortcut: Stream(shortcut, SHORT_CHUNKS),
    "stream_long": lambda shortcut: Stream(shortcut, LONG_CHUNKS),
    "stream_dropped": lambda shortcut: DroppedStream(shortcut, SHORT_CHUNKS),
    "async_stream_short": lambda shortcut: AsyncStream(shortcut, SHORT_CHUNKS),
    "async_stream_long": lambda shortcut: AsyncStream(shortcut, LONG_CHUNKS),
    "fifty_at_once": FiftyAtOnce,
    "fifty_in_a_row": FiftyInARow,
    "message": Message,
    "message_whole": lambda shortcut: Message(shortcut, thin=False),
    "message_stream_short": lambda shortcut: MessageStream(shortcut, SHORT_CHUNKS),
    "message_stream_long": lambda shortcut: MessageStream(shortcut, LONG_CHUNKS),
    "agent": Agent,
    "amfs_read": lambda shortcut: Memory(shortcut, "read"),
    "amfs_write": lambda shortcut: Memory(shortcut, "write"),
    "amfs_commit": lambda shortcut: Memory(shortcut, "commit"),
}
