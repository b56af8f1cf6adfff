"""What a check is given, and how checks are registered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.bench import messages, traffic
from tests.bench.transport import Provider

PIECES = 12
"""Of text in every stream."""


@dataclass(frozen=True, slots=True)
class Check:
    """One fact that must hold.

    Attributes:
        name: The function's, as words.
        run: It; raises when the fact does not hold. It may be a coroutine function.
        spans: How many calls of a model it makes that reach the SDK: as many spans must end.
    """

    name: str
    run: Callable[[Kit], Any]
    spans: int


class Checks(list[Check]):
    """The checks of one SDK, in the order of telling."""

    def __call__(self, *, spans: int = 1) -> Callable[[Callable[[Kit], Any]], Callable[[Kit], Any]]:
        """A decorator that adds a check."""

        def add(run: Callable[[Kit], Any]) -> Callable[[Kit], Any]:
            self.append(Check(run.__name__.replace("_", " "), run, spans))
            return run

        return add


class Kit:
    """Fresh clients of a provider in memory.

    Args:
        sdk: `openai` or `anthropic`.
        coroutine: Whether `create` of the asynchronous client was a coroutine function before anything was instrumented.
    """

    def __init__(self, sdk: str, *, coroutine: bool = True) -> None:
        self.sdk, self.coroutine = sdk, coroutine
        self.provider: Provider = (traffic if sdk == "openai" else messages).provider(pieces=PIECES)

    @cached_property
    def client(self) -> Any:
        """A synchronous client."""
        return self.provider.client(self.sdk)

    @cached_property
    def aclient(self) -> Any:
        """An asynchronous client."""
        return self.provider.client(self.sdk, asynchronous=True)

    @property
    def create(self) -> Any:
        """The call that most checks are about."""
        return self.client.chat.completions.create if self.sdk == "openai" else self.client.messages.create

    @property
    def acreate(self) -> Any:
        """The same, asynchronous."""
        return self.aclient.chat.completions.create if self.sdk == "openai" else self.aclient.messages.create

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Fresh arguments of that call."""
        return traffic.chat_arguments(**more) if self.sdk == "openai" else messages.message_arguments(**more)


@contextlib.contextmanager
def raises(*kinds: type[BaseException]) -> Iterator[list[BaseException]]:
    """Asserts that one of `kinds` comes out of the block; gives it in a list."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
    else:
        raise AssertionError(f"no {' or '.join(kind.__name__ for kind in kinds)} came through")


async def cancelled(coroutine: Any, after_s: float) -> None:
    """Runs a coroutine in a task of its own, cancels it, and asserts that the cancellation comes through."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(after_s)
    task.cancel()
    with raises(asyncio.CancelledError):
        await task


async def read(stream: Any) -> list[Any]:
    """All that an asynchronous stream gives."""
    return [item async for item in stream]
