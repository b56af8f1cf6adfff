"""How the story is put on: what each process gets and what it must not get; and that its programs are ordinary."""

import ast
from pathlib import Path

import pytest

from amfs_otel.demo import stage, story


def steps(tmp_path: Path, **environ: str) -> tuple[stage.Step, ...]:
    return stage.steps(
        python=Path("/somewhere else/bin/python"),
        state_dir=tmp_path / "state",
        memory_dir=tmp_path / "memory",
        model_origin="http://127.0.0.1:1",
        environ=environ,
        extra={"OTEL_TRACES_EXPORTER": "none"},
    )


def test_the_order_and_who_is_watched(tmp_path: Path) -> None:
    assert [(step.program, step.instrumented) for step in steps(tmp_path)] == [
        ("seed_memory.py", False),
        ("deploy_agent.py", True),
        ("review_agent.py", True),
        ("onboard_agent.py", True),
        ("late_outcome.py", True),
    ]


def test_a_command_starts_the_launcher_of_the_same_interpreter(tmp_path: Path) -> None:
    prior, deploy, *_ = steps(tmp_path)
    assert prior.argv == prior.plain_argv == ("/somewhere else/bin/python", str(stage.PROGRAMS / "seed_memory.py"))
    assert deploy.argv == ("/somewhere else/bin/python", "-c", stage.LAUNCHER, *deploy.plain_argv)


def test_nothing_of_the_callers_own_agents_reaches_the_demo(tmp_path: Path) -> None:
    env = steps(
        tmp_path,
        HOME="/home/me",
        AMFS_OTEL_DSN="postgresql://theirs",
        AMFS_POSTGRES_DSN="postgresql://theirs",
        OPENAI_API_KEY="theirs",
        OPENAI_ORG_ID="theirs",
        ANTHROPIC_API_KEY="theirs",
        ANTHROPIC_AUTH_TOKEN="theirs",
        LANGSMITH_API_KEY="theirs",
        LANGSMITH_TRACING="true",
        LANGCHAIN_TRACING_V2="true",
        HTTPS_PROXY="http://proxy",
        http_proxy="http://proxy",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318",
    )[1].env
    assert env == {
        "HOME": "/home/me",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "OPENAI_API_KEY": "demo",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "ANTHROPIC_API_KEY": "demo",
        "LANGSMITH_TRACING": "false",
        "NO_PROXY": "127.0.0.1",
        "AMFS_OTEL_STATE_DIR": str(tmp_path / "state"),
        "OTEL_SERVICE_NAME": "deploy-agent",
        "OTEL_TRACES_EXPORTER": "none",
    }


@pytest.mark.parametrize("program", sorted(stage.PROGRAMS.glob("*.py")), ids=lambda path: path.name)
def test_a_program_imports_nothing_of_ours_and_no_opentelemetry(program: Path) -> None:
    tree = ast.parse(program.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ordinary = {"amfs", "json", "langchain_anthropic", "langchain_core", "langgraph", "openai", "typing"}
    assert {name.partition(".")[0] for name in imported} <= ordinary


def test_every_program_is_in_the_story() -> None:
    told = {story.SEED_PROGRAM, story.LATE_PROGRAM, *(branch.program for branch in story.BRANCHES)}
    assert told == {path.name for path in stage.PROGRAMS.glob("*.py")}


def test_the_tree_of_the_seed_with_true_directions() -> None:
    lines = [line for branch in story.BRANCHES for line in story.tree_lines(branch, "sess-a1b2")]
    assert lines == [
        "read by deploy-agent (sess-a1b2)",
        "also consulted: PagerDuty API, git log",
        "wrote: decision-rollback-retry",
        "outcome: DEP-500 (success) → confidence raised",
        "read by review-agent (sess-a1b2)",
        "also consulted: Sentry errors",
        "wrote: risk-timeout-regression",
        "outcome: INC-1042 (critical_failure) → confidence discredited",
        "read by onboard-agent (sess-a1b2)",
        "wrote: task-summary-retry-review",
    ]
