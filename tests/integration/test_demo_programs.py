"""The story's programs as processes of their own, without instrumentation: what the real SDKs make of them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from amfs import AgentMemory

from amfs_otel.demo import stage, story
from amfs_otel.demo.model_server import Exchange, ModelServer

WATCH = """
import os, sys

def reached(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        address = args[0] if event in ("socket.getaddrinfo", "socket.gethostbyname") else args[1]
        host = address[0] if isinstance(address, tuple) else address
        with open(os.environ["REACHED"], "a") as file:
            file.write(f"{host}\\t{os.path.basename(sys.argv[0])}\\n")

sys.addaudithook(reached)
"""
"""A `sitecustomize` that notes every host that a program looks up or connects to."""


@dataclass(frozen=True)
class Told:
    """The finished story: the memory it left, what each program printed and reached for, what the model was asked."""

    memory: AgentMemory
    printed: dict[str, str]
    exchanges: list[Exchange]
    reached: list[tuple[str, str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("the story")
    stage.prepare_memory(folder / "memory")
    printed: dict[str, str] = {}
    (folder / "watch").mkdir()
    (folder / "watch" / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    theirs = {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "theirs", "LANGCHAIN_TRACING_V2": "true"}
    with ModelServer() as server:
        for step in stage.steps(
            python=Path(sys.executable),
            state_dir=folder / "state",
            memory_dir=folder / "memory",
            model_origin=server.origin,
            environ={**os.environ, **theirs},
            extra={"PYTHONPATH": str(folder / "watch"), "REACHED": str(folder / "reached")},
        ):
            done = subprocess.run(
                step.plain_argv, env=step.env, cwd=step.cwd, capture_output=True, text=True, check=False, timeout=120
            )
            assert (done.returncode, done.stderr) == (0, ""), step.program
            printed[step.program] = done.stdout.strip()
    assert not (folder / "state").exists(), "nobody captured anything"
    memory = AgentMemory(agent_id="reader", config_path=folder / "memory" / "amfs.yaml")
    reached = [line.split("\t") for line in (folder / "reached").read_text(encoding="utf-8").splitlines()]
    return Told(memory, printed, server.exchanges, [(host, program) for host, program in reached])


def test_the_decision_is_the_models(told: Told) -> None:
    entry = told.memory.read(story.ENTITY, "decision-rollback-retry")
    assert entry is not None
    assert entry.value == told.printed["deploy_agent.py"] == story.DECISION
    assert entry.provenance.agent_id == "deploy-agent"
    assert entry.provenance.pattern_refs == [story.ROOT_ENTRY]
    assert entry.memory_type.value == "experience"


def test_the_pattern_was_v3_at_092_then_raised_then_discredited(told: Told) -> None:
    versions = told.memory.history(story.ENTITY, "retry-pattern")
    assert [(entry.version, round(entry.confidence, 4)) for entry in versions] == [
        (1, 0.92),
        (2, 0.92),
        (3, 0.92),
        (4, 0.937),
        (5, 0.2756),
    ]
    assert [entry.discredited_at is not None for entry in versions] == [False, False, False, False, True]


def test_the_risk_was_v1_at_078_then_raised(told: Told) -> None:
    versions = told.memory.history(story.ENTITY, "risk-race-condition")
    assert [(entry.version, round(entry.confidence, 4)) for entry in versions] == [(1, 0.78), (2, 0.8314)]


def test_the_late_outcome_raised_the_decision_itself(told: Told) -> None:
    versions = told.memory.history(story.ENTITY, "decision-rollback-retry")
    assert [(entry.version, round(entry.confidence, 4)) for entry in versions] == [(1, 0.9), (2, 0.9355)]
    assert told.printed["late_outcome.py"].startswith("DEP-500 held")


def test_review_and_onboarding_left_their_entries(told: Told) -> None:
    risk = told.memory.read(story.ENTITY, "risk-timeout-regression")
    summary = told.memory.read(story.ENTITY, "task-summary-retry-review")
    assert risk is not None
    assert summary is not None
    assert (risk.value, risk.provenance.agent_id) == (story.RISK, "review-agent")
    assert (summary.value, summary.provenance.agent_id) == (story.SUMMARY, "onboard-agent")


def test_the_model_was_asked_as_the_story_says(told: Told) -> None:
    asked = [(exchange.request["model"], bool(exchange.request.get("stream"))) for exchange in told.exchanges]
    assert asked == [(branch.model, branch.streamed) for branch in story.BRANCHES for _ in range(branch.model_calls)]
    deploy, review = told.exchanges[1], told.exchanges[4]
    assert [m["content"] for m in deploy.request["messages"] if m["role"] == "tool"] == [story.INCIDENTS, story.COMMITS]
    answers = [
        (block["tool_use_id"], block["content"])
        for message in review.request["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else ())
        if block["type"] == "tool_result"
    ]
    assert answers == [
        ("toolu_risks", f"risk-race-condition: {story.RACE}"),
        ("toolu_sentry", story.ERRORS),
        ("toolu_note", "noted as checkout-service/risk-timeout-regression"),
    ]


def test_the_model_counted_as_its_provider_does(told: Told) -> None:
    assert told.exchanges[0].json["usage"]["prompt_tokens_details"]["cached_tokens"] == 1024
    began, ended = told.exchanges[2].events[0]["message"]["usage"], told.exchanges[2].events[-2]["usage"]
    assert (began["input_tokens"], began["cache_creation_input_tokens"], began["cache_read_input_tokens"]) == (
        172,
        1024,
        0,
    )
    assert ended["output_tokens"] == 88


def test_the_clients_talked_to_loopback_alone_and_showed_no_key_but_ours(told: Told) -> None:
    assert {exchange.headers["host"].partition(":")[0] for exchange in told.exchanges} == {"127.0.0.1"}
    for exchange in told.exchanges:
        keys = {exchange.headers[name] for name in ("authorization", "x-api-key") if name in exchange.headers}
        assert keys
        assert keys <= {"Bearer demo", "demo"}


def test_no_program_reaches_for_any_other_host(told: Told) -> None:
    assert {host for host, _ in told.reached} == {"127.0.0.1"}
    assert len({program for _, program in told.reached}) == len(story.BRANCHES), "the watch works"


def test_the_memorys_configuration_is_json_that_yaml_reads(tmp_path: Path) -> None:
    stage.prepare_memory(tmp_path / "a: memory # here")
    config = json.loads((tmp_path / "a: memory # here" / "amfs.yaml").read_text(encoding="utf-8"))
    mem: Any = AgentMemory(agent_id="x", config_path=tmp_path / "a: memory # here" / "amfs.yaml")
    mem.write("e", "k", 1)
    assert list(Path(config["layers"]["primary"]["options"]["root"]).rglob("*.json"))
    assert mem.namespace == "demo"
