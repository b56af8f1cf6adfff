"""`amfs_otel.instrument()` before and after what else a program sets up, twice, beside the command, and taken back."""

import subprocess
import sys
from pathlib import Path

import pytest

from amfs_otel.demo.model_server import ModelServer
from tests.support.programs import environment
from tests.support.spooled import Spooled, spooled

PRELUDE = """
def ask(text):
    from openai import OpenAI
    OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
def provider(name):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda s: f"{name}: {s.name}\\n")))
    return made
def provide(name):
    from opentelemetry import trace
    trace.set_tracer_provider(provider(name))
import amfs_otel
"""
COMMAND = "opentelemetry-instrument"
BOTH = ["a: chat m", "a: invoke_agent agent"]


class Program:
    """Runs programs with one state directory."""

    def __init__(self, folder: Path, model: ModelServer) -> None:
        self._folder, self._state = folder, folder / "state"
        told = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "any"}
        self._environment = environment(self._state, **told)

    def ran(self, text: str, under: str | None = None) -> list[str]:
        """Its lines; it must end well and say nothing on stderr."""
        file = self._folder / "agent.py"
        file.write_text(PRELUDE + text)
        command = [] if under is None else [str(Path(sys.executable).parent / under)]
        done = subprocess.run(
            [*command, sys.executable, str(file)], env=self._environment, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def decisions(self) -> list[Spooled]:
        return [one for one in spooled(self._state) if one.kind == "decision"]

    def calls(self) -> list[list[str]]:
        """The kinds of the events of each decision."""
        return [[event["kind"] for event in one.facts["events"]] for one in self.decisions()]


@pytest.fixture
def program(tmp_path: Path, model_server: ModelServer) -> Program:
    return Program(tmp_path, model_server)


@pytest.mark.parametrize(
    "text",
    [
        "amfs_otel.instrument(); provide('a'); ask('x')",
        "provide('a'); amfs_otel.instrument(); ask('x')",
        "import openai; provide('a'); amfs_otel.instrument(); amfs_otel.instrument('openai'); ask('x')",
        "provide('b'); amfs_otel.instrument(tracer_provider=provider('a')); ask('x'); amfs_otel.instrument()",
        "provide('b'); amfs_otel.instrument(); amfs_otel.instrument(tracer_provider=provider('a')); ask('x')",
    ],
)
def test_one_call_is_one_event_and_two_spans_of_the_right_provider(program: Program, text: str) -> None:
    assert program.ran(text) == BOTH
    assert program.calls() == [["llm_call"]]


def test_a_provider_that_comes_in_the_middle_gets_what_starts_after_it(program: Program) -> None:
    assert program.ran("amfs_otel.instrument(); ask('x'); provide('a'); ask('y')") == ["a: chat m"]
    assert program.calls() == [["llm_call", "llm_call"]]


@pytest.mark.parametrize("first", ["ask('x')", ""])
def test_a_provider_that_is_named_beside_the_command_gets_the_spans(program: Program, first: str) -> None:
    named = "amfs_otel.instrument(tracer_provider=provider('a')); amfs_otel.checkpoint(); ask('y')"
    assert program.ran(f"{first}\namfs_otel.checkpoint()\n{named}", COMMAND) == BOTH
    assert program.calls() == [["llm_call"]] * (2 if first else 1)


INSTRUMENTOR = "from amfs_otel.launcher import AmfsInstrumentor as I\n"


@pytest.mark.parametrize(
    ("text", "under"),
    [
        ("I().instrument(); import openai; ask('in'); I().uninstrument()", None),
        ("I().instrument(); I().uninstrument(); ask('out'); I().instrument(); ask('in'); I().uninstrument()", None),
        ("ask('in'); I().uninstrument()", COMMAND),
    ],
)
def test_what_is_taken_back_captures_nothing(program: Program, text: str, under: str | None) -> None:
    after = "; ask('out'); amfs_otel.record_context('out', 'out')"
    assert program.ran(INSTRUMENTOR + text + after, under) == []
    assert program.calls() == [["llm_call"]]
    assert program.decisions()[0].facts["closed_by"] == "exit"


def test_originals_are_back_and_can_be_patched_again(program: Program) -> None:
    text = """
import openai, signal, sys
created = openai.resources.chat.Completions.__dict__["create"]
terminated = signal.getsignal(signal.SIGTERM)
for _ in range(2):
    I().instrument()
    assert openai.resources.chat.Completions.__dict__["create"] is not created
    assert signal.getsignal(signal.SIGTERM) is not terminated
    ask("in")
    I().uninstrument()
    assert openai.resources.chat.Completions.__dict__["create"] is created
    assert signal.getsignal(signal.SIGTERM) is terminated
    ask("out")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert signal.getsignal(signal.SIGTERM) is terminated
"""
    assert program.ran(INSTRUMENTOR + text) == []
    assert program.calls() == [["llm_call"]] * 2
