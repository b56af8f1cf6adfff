"""What a library's test file says for the contract of all patches (`test_contract.py`)."""

import importlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from amfs_otel.libraries import Library

Call = Callable[[], Awaitable[Any]]
"""Makes one call as the library's users make it; its answer as plain values, or what the library raises."""

Calls = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Sequence[Call]]]
"""Opens what a library's calls need, and gives a few that succeed and, as the last one, one that fails."""


@dataclass(frozen=True)
class Contract:
    """`CONTRACT` of `test_<library>.py`.

    Attributes:
        calls: Calls that must not notice when a mapping fails.
        mappings: Modules beside the patch whose public functions and methods are broken there, or `module:function`;
            none where the patch holds its mappings itself.
    """

    calls: Calls
    mappings: tuple[str, ...] = ()


def contract_of(library: Library) -> Contract:
    """That of the library's test file; those of boundaries stand together."""
    if library.reports:
        return importlib.import_module(f"tests.instrumentation.test_{library.name}").CONTRACT
    return importlib.import_module("tests.instrumentation.test_boundaries").CONTRACTS[library.name]
