"""Skips that are seen: the one way for a test to say that it cannot run here.

A test that lacks a part of the machine (a server's binaries, Go) calls `not_run` with what is missing and how to get
it. The run then lists every such reason in its last lines. Any other skip, and any expected failure, fails the run: see
the `conftest.py` at the root of the repository.
"""

from typing import NoReturn

import pytest

PREFIX = "not run: "


def not_run(reason: str) -> NoReturn:
    """End the current test, or leave out the current module, as not run.

    Args:
        reason: What is missing, and what brings it, in one line; equal reasons are counted together.
    """
    pytest.skip(PREFIX + reason, allow_module_level=True)
