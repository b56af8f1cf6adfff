"""Calling the CLI in this process, and the schemas that its answers keep."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from amfs_otel.cli.app import app

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"

AGENT = """
import amfs_otel

with amfs_otel.session(agent="deployer", id="run-1"):
    amfs_otel.record_context("pagerduty-incidents", "3 SEV-1 incidents", source="PagerDuty API")
    amfs_otel.record_decision("Roll back", alternatives=["Wait"], confidence=0.9)
    amfs_otel.outcome("DEP-7", "success", "Healthy again")
with amfs_otel.session(agent="reviewer"):
    amfs_otel.record_context("sentry", "412 timeouts", source="Sentry")
print("the agent's own output")
"""


@dataclass(frozen=True)
class Called:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its answer."""
        return json.loads(self.out)


class Cli:
    """Calls commands in this process, in the environment of the test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Called:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app(args=list(words), prog_name="amfs-otel")
        printed = self._capsys.readouterr()
        code = ended.value.code
        return Called(code if isinstance(code, int) else 0, printed.out, printed.err)

    def answer(self, *words: str, schema: str | None = None) -> Any:
        """The JSON of a command that ends well, checked against its schema."""
        called = self(*words, "--json")
        assert called.code == 0, called.err
        check_schema(called.json, schema or words[0])
        return called.json


def check_schema(answer: Any, name: str) -> None:
    """Check an answer against `docs/schemas/<name>.schema.json`."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(answer)  # pyright: ignore[reportUnknownMemberType]


def run_program(text: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program under `amfs-otel run`, in a process of its own."""
    program = folder / "agent.py"
    program.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "amfs_otel", "run", *options, sys.executable, str(program)],
        env={**os.environ},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
