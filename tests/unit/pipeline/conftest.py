"""A pipeline in this process, with a state directory of its own; stopped at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amfs_otel import guard, pipeline
from amfs_otel.capture.ambient import current_run, explicit_session, last_memory
from amfs_otel.pipeline import Pipeline
from amfs_otel.settings import Settings


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def running(state: Path) -> Iterator[Callable[..., Pipeline]]:
    """Starts it with the given settings. SIGTERM keeps pytest's own handling."""
    tokens: list[tuple[Any, Any]] = [
        (variable, variable.set(None)) for variable in (explicit_session, current_run, last_memory)
    ]
    guard.reset()

    def started(**settings: Any) -> Pipeline:
        chosen: dict[str, Any] = {"state_dir": state, "program": "program", "sigterm": False, **settings}
        made = pipeline.start(Settings(**chosen))
        assert made is not None
        return made

    yield started
    pipeline.stop()
    guard.reset()
    for variable, token in tokens:
        variable.reset(token)
