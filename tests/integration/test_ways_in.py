"""The ways in which a person's own agent comes to leave a trace, each as a program.

`amfs-otel run CMD`, `opentelemetry-instrument CMD`, and `amfs_otel.instrument()` as the program's first line.
"""

import subprocess
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from amfs_otel.demo.model_server import ModelServer
from tests.support.agents import BARE_LOOP, BARE_LOOP_REPLIES, REMEMBERING, steps_of
from tests.support.environments import python_of
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.programs import environment
from tests.support.spooled import Spooled, spooled

NEWEST = Path(sys.executable)
WAYS: dict[str, Callable[[Path, Path], list[str]]] = {
    "amfs-otel run": lambda python, program: [str(python), "-m", "amfs_otel", "run", str(python), str(program)],
    "opentelemetry-instrument": lambda python, program: [
        str(python.parent / "opentelemetry-instrument"),
        str(python),
        str(program),
    ],
    "instrument()": lambda python, program: [str(python), str(program)],
}
COMMANDS = [way for way in WAYS if way != "instrument()"]


class Agent:
    """Runs one program in a directory of its own, and reads what it left."""

    def __init__(self, folder: Path, model: ModelServer) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.model = model

    def run(self, text: str, way: str, python: Path = NEWEST, **settings: str) -> str:
        """Its standard output; the program must end well and say nothing on stderr."""
        process = self.start(text, way, python, **settings)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), err
        return out.strip()

    def start(self, text: str, way: str, python: Path = NEWEST, **settings: str) -> "subprocess.Popen[str]":
        program = self.folder / "agent.py"
        program.write_text("import amfs_otel\namfs_otel.instrument()\n" + text if way == "instrument()" else text)
        settings = {"OPENAI_BASE_URL": self.model.base_url, "OPENAI_API_KEY": "any", **settings}
        return subprocess.Popen(
            WAYS[way](python, program),
            env=environment(self.state, **settings),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def decisions(self) -> list[Spooled]:
        return [one for one in spooled(self.state) if one.kind == "decision"]


@pytest.fixture
def agent(tmp_path: Path, model_server: ModelServer) -> Agent:
    return Agent(tmp_path, model_server)


def sending_to(receiver: OtlpReceiver) -> dict[str, Any]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.http_endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp",
    }


def check_bare_loop(decisions: list[Spooled]) -> None:
    (one,) = decisions
    facts = one.facts
    assert (facts["opened_by"], facts["inferred"], facts["closed_by"]) == ("implicit", True, "exit")
    calls = [event for event in facts["events"] if event["kind"] == "llm_call"]
    tools = [event for event in facts["events"] if event["kind"] == "tool_call"]
    assert [call["finish_reasons"] for call in calls] == [["tool_calls"], ["tool_calls"], ["stop"]]
    assert [(tool["tool_name"], tool["call_id"], tool["observed"]) for tool in tools] == [
        ("look_up", "call_a", "messages"),
        ("weigh", "call_b", "messages"),
    ]
    assert len(facts["events"]) == 5


@pytest.mark.parametrize("way", COMMANDS)
def test_a_bare_loop_is_one_trace_with_one_root_span(agent: Agent, way: str) -> None:
    agent.model.queue(*BARE_LOOP_REPLIES)
    with OtlpReceiver() as receiver:
        assert agent.run(BARE_LOOP, way, **sending_to(receiver)) == "It can leave."
        spans = receiver.wait_for_spans(4)
    check_bare_loop(agent.decisions())
    (root,) = [span for span in spans if span.parent_id is None]
    assert root.name == "invoke_agent agent"
    assert [(span.name, span.parent_id) for span in spans if span is not root] == [
        ("chat gpt-4o-mini", root.span_id)
    ] * 3
    (one,) = agent.decisions()
    assert (one.record.trace, one.record.span) == (root.trace_id, root.span_id)


@pytest.mark.parametrize("way", WAYS)
def test_without_an_endpoint_the_trace_is_the_same(agent: Agent, way: str) -> None:
    agent.model.queue(*BARE_LOOP_REPLIES)
    assert agent.run(BARE_LOOP, way) == "It can leave."
    check_bare_loop(agent.decisions())


def test_instrument_beside_the_command_counts_nothing_twice(agent: Agent) -> None:
    agent.model.queue(*BARE_LOOP_REPLIES)
    twice = "import amfs_otel\nassert amfs_otel.instrument()\nassert amfs_otel.instrument()\n" + BARE_LOOP
    agent.run(twice, "opentelemetry-instrument")
    check_bare_loop(agent.decisions())


def test_instrument_sets_no_provider(agent: Agent) -> None:
    agent.model.queue(*BARE_LOOP_REPLIES)
    asked = "from opentelemetry import trace\nprint(type(trace.get_tracer_provider()).__name__)"
    assert agent.run(BARE_LOOP + asked, "instrument()").endswith("ProxyTracerProvider")
    (one,) = agent.decisions()
    assert (one.record.trace, one.record.span) == (None, None)


SERVING = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from amfs import AgentMemory, OutcomeType
from amfs_filesystem import FilesystemAdapter
from openai import OpenAI

client = OpenAI()
def ask(question):
    messages = [{"role": "user", "content": question}]
    return client.chat.completions.create(model="gpt-4o-mini", messages=messages).choices[0].message.content

def memory(agent):
    return AgentMemory(agent, adapter=FilesystemAdapter(Path("memory"), "default"))
"""
THREADS = """
mem = memory("buyer")
ask("before any memory")
mem.read("shop", "rule")
ask("in the same thread")
with ThreadPoolExecutor(2) as pool:
    list(pool.map(ask, ["in a pool", "in a pool, too"]))
mem.write("shop", "bought", "one lamp")
mem.commit_outcome("BUY-1", OutcomeType.SUCCESS)
ask("after the commit")
"""


@pytest.mark.parametrize("way", WAYS)
def test_model_calls_are_in_the_decision_that_they_served(agent: Agent, way: str) -> None:
    agent.run(SERVING + THREADS, way, AMFS_OTEL_LEDGER_CONTENT="all")
    first, after = agent.decisions()
    assert (first.facts["agent"], first.facts["closed_by"]) == ("buyer", "commit")
    kinds = [event["kind"] for event in first.facts["events"]]
    assert kinds == ["llm_call", "memory_read", *["llm_call"] * 3, "memory_write", "outcome"]
    said = [event["input_messages"] for event in first.facts["events"] if event["kind"] == "llm_call"]
    for text, question in zip(sorted(said), ("before any", "in a pool", "in a pool, too", "in the same"), strict=True):
        assert question in text
    assert first.facts["coverage"]["joined"] == 2, "the pool's threads know no memory; only one window was open"
    assert [event["kind"] for event in after.facts["events"]] == ["llm_call"]
    assert "after the commit" in after.facts["events"][0]["input_messages"]


INTERLEAVED = """
left, right = memory("left"), memory("right")
for name, mem in (("left", left), ("right", right)) * 2:
    mem.read("shop", name)
    ask(name)
right.commit_outcome("R", OutcomeType.SUCCESS)
left.commit_outcome("L", OutcomeType.FAILURE)
"""


def own_questions(one: Spooled) -> set[bool]:
    """Whether each model call asks about the agent whose decision it is in."""
    calls = [event for event in one.facts["events"] if event["kind"] == "llm_call"]
    return {f'"{one.facts["agent"]}"' in call["input_messages"] for call in calls}


def test_two_handles_in_one_thread_keep_their_calls(agent: Agent) -> None:
    agent.run(SERVING + INTERLEAVED, "opentelemetry-instrument", AMFS_OTEL_LEDGER_CONTENT="all")
    traces = agent.decisions()
    assert [one.facts["agent"] for one in traces] == ["right", "left"]
    for one in traces:
        assert [event["kind"] for event in one.facts["events"]] == ["memory_read", "llm_call"] * 2 + ["outcome"]
        assert own_questions(one) == {True}


APP = """
import asyncio, socket, threading
import uvicorn
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

together, threads = asyncio.Barrier(2), threading.Barrier(2)
aclient = AsyncOpenAI()

async def decide(request):
    name = request.path_params["name"]
    mem = memory(name)
    await together.wait()
    mem.read("shop", name)
    await together.wait()
    messages = [{"role": "user", "content": name}]
    await aclient.chat.completions.create(model="gpt-4o-mini", messages=messages)
    await together.wait()
    await asyncio.to_thread(ask, name)
    await together.wait()
    mem.commit_outcome(name, OutcomeType.SUCCESS)
    return PlainTextResponse(name)

def decide_in_a_thread(request):
    name = request.path_params["name"]
    mem = memory(name)
    for step in (lambda: mem.read("shop", name), lambda: ask(name), lambda: ask(name)):
        threads.wait()
        step()
    threads.wait()
    mem.commit_outcome(name, OutcomeType.SUCCESS)
    return PlainTextResponse(name)

async def stop(request):
    server.should_exit = True
    return PlainTextResponse("bye")

app = Starlette(routes=[
    Route("/tasks/{name}", decide), Route("/threads/{name}", decide_in_a_thread), Route("/stop", stop),
])
server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
server.run(sockets=[listening])
"""


def fetched(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as response:
        return response.read().decode()


@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_concurrent_requests_are_never_mixed(agent: Agent, kind: str) -> None:
    process = agent.start(SERVING + APP, "opentelemetry-instrument", AMFS_OTEL_LEDGER_CONTENT="all")
    with process, ThreadPoolExecutor(2) as pool:
        assert process.stdout is not None
        origin = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        names = ["ann", "bob"]
        assert list(pool.map(fetched, [f"{origin}/{kind}/{name}" for name in names])) == names
        fetched(f"{origin}/stop")
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    traces = agent.decisions()
    assert sorted(one.facts["agent"] for one in traces) == names
    for one in traces:
        kinds = [event["kind"] for event in one.facts["events"]]
        assert kinds == ["memory_read", "llm_call", "llm_call", "outcome"]
        assert one.facts["events"][0]["key"] == one.facts["agent"]
        assert own_questions(one) == {True}


def test_run_records_what_the_oldest_openai_does(tmp_path: Path, model_server: ModelServer) -> None:
    found = _on_both("oldest-openai", BARE_LOOP, tmp_path, model_server)
    for one in found.values():
        check_bare_loop([one])
    assert found["oldest"].facts["origin"]["libraries"]["openai"] == "1.1.0"
    assert steps_of(found["oldest"].facts) == steps_of(found["newest"].facts)


def test_run_records_what_the_oldest_amfs_does(tmp_path: Path, model_server: ModelServer) -> None:
    found = _on_both("oldest-amfs", REMEMBERING, tmp_path, model_server)
    assert found["oldest"].facts["origin"]["libraries"]["amfs"] == "0.5.27"
    newest = steps_of(found["newest"].facts)
    kinds = ["memory_read", "memory_query", "context", "memory_write", "outcome", "confidence_change"]
    assert [step["kind"] for step in newest] == kinds
    assert steps_of(found["oldest"].facts) == newest


def _on_both(name: str, program: str, folder: Path, model: ModelServer) -> dict[str, Spooled]:
    """The last decision of a program under `opentelemetry-instrument`, on the oldest releases and on the newest."""
    found: dict[str, Spooled] = {}
    for age, python in (("oldest", python_of(name)), ("newest", NEWEST)):
        (folder / age).mkdir()
        one = Agent(folder / age, model)
        model.queue(*BARE_LOOP_REPLIES)
        one.run(program, "opentelemetry-instrument", python)
        *_, found[age] = one.decisions()
    return found
