"""The key of "the same context"."""

import asyncio
import sys
import threading
from types import ModuleType

import pytest
from opentelemetry.context import Context

from amfs_otel.capture.ambient import place_here


def test_a_task_is_one_context_and_never_that_of_another() -> None:
    async def keys() -> list[object]:
        return [place_here(Context()).context for _ in range(3)]

    async def one_after_another() -> list[list[object]]:
        found: list[list[object]] = []
        for _ in range(50):
            found.append(await asyncio.create_task(keys()))
        return found

    found = asyncio.run(one_after_another())
    assert all(len(set(same)) == 1 for same in found)
    assert len({same[0] for same in found}) == 50  # the tasks are gone, some of their ids were used again


def test_outside_a_task_the_thread_is_the_context() -> None:
    assert place_here(Context()).context == place_here(Context()).context


def test_while_another_thread_imports_asyncio_the_thread_is_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is there from the beginning, what it defines is not."""
    monkeypatch.setitem(sys.modules, "asyncio", ModuleType("asyncio"))
    assert place_here(Context()).context == ("thread", threading.get_ident())
