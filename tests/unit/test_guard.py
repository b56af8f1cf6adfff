"""What is swallowed is counted under a name; only a patch switches itself off."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import amfs_otel
import amfs_otel_instrumentation
from amfs_otel import guard, libraries


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    guard.reset()
    yield
    guard.reset()


def failing() -> None:
    raise ValueError


def test_a_part_goes_on_and_a_patch_switches_itself_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "amfs_otel"):
        for _ in range(guard.LIMIT):
            guard.run("assemble", failing)
            guard.run("openai", failing)
    assert [guard.is_off(name) for name in ("assemble", "openai")] == [False, True]
    counted = guard.counters()
    assert [(counted[name]["errors"], counted[name]["off"]) for name in ("assemble", "openai")] == [
        (guard.LIMIT, False),
        (guard.LIMIT, True),
    ]
    assert [line for line in caplog.messages if "switched itself off" in line] == [
        "amfs-otel: patch openai switched itself off after 20 internal errors; see `amfs-otel doctor`"
    ]


def test_every_name_in_the_code_is_a_part_or_a_library() -> None:
    named: set[str] = set()
    for package in (amfs_otel, amfs_otel_instrumentation):
        assert package.__file__ is not None
        for file in Path(package.__file__).parent.rglob("*.py"):
            named |= set(re.findall(r'guard\.(?:run|failed)\(\s*"(\w+)"', file.read_text("utf-8")))
    assert named >= guard.PARTS
    assert named - guard.PARTS <= {library.name for library in libraries.LIBRARIES}
