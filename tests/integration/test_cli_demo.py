"""`amfs-otel demo`: the whole story, as a person sees it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from amfs_otel.demo import story
from amfs_otel.settings import Settings
from amfs_otel.store.embedded import EmbeddedServer
from tests.integration.cli_calls import Cli
from tests.integration.ledgers import Ledger

ROWS = "SELECT (SELECT count(*) FROM amfs_otel.record), pg_snapshot_xmax(pg_current_snapshot())::text"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a home")


def test_the_demo_ends_as_it_should_and_ignores_every_dsn(
    one_ledger: Ledger, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = one_ledger.sql(ROWS)
    state = home / "amfs-otel-demo" / "state"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "amfs_otel", "demo"],
            env={**os.environ, "XDG_STATE_HOME": str(home), "AMFS_OTEL_DSN": one_ledger.dsn, "AMFS_POSTGRES_DSN": one_ledger.dsn,
                 "AMFS_OTEL_STATE_DIR": str(home / "mine"), "AMFS_OTEL_LOG": "mine"},
            cwd="/", capture_output=True, text=True, check=False, timeout=170,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        _check_story(done.stdout)
        _check_forgeries(done.stdout)
        _check_farewell(done.stdout, home)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AMFS_OTEL_STATE_DIR", str(state))
            patch.setenv("AMFS_OTEL_LOG", "demo")
            _check_store(Cli(capsys))
    finally:
        EmbeddedServer(state).remove()
    assert one_ledger.sql(ROWS) == before
    assert not (home / "mine").exists()


def _check_story(out: str) -> None:
    assert "\x1b" not in out, "plain in a pipe"
    for line in (
        "checkout-service/retry-pattern",
        "also consulted: PagerDuty API, git log",
        "wrote: decision-rollback-retry",
        "outcome: DEP-500 (success) → confidence raised",
        "also consulted: Sentry errors",
        "outcome: INC-1042 (critical_failure) → confidence discredited",
        "wrote: task-summary-retry-review",
        "INTACT  log demo: 5 entries",
    ):
        assert line in out, line


def _check_forgeries(out: str) -> None:
    assert out.count("verify: TAMPERED") == 3
    assert "#1 CONTENT_ALTERED" in out
    assert "#2 MISSING" in out
    assert "#3 BAD_MAC" in out
    assert "append-only" in out


def _check_farewell(out: str, home: Path) -> None:
    """What it says to do next can be typed as it stands."""
    farewell = out.partition("Look around:")[2]
    state = home / "amfs-otel-demo" / "state"
    assert f"export AMFS_OTEL_STATE_DIR={shlex.quote(str(state))} AMFS_OTEL_LOG=demo" in farewell
    commands = [
        line.split("  ")[0] for line in farewell.replace("\n  ", "\n").splitlines() if re.search(r"amfs-otel'? ", line)
    ]
    assert [shlex.split(one)[1:] for one in commands] == [
        ["explain", "INC-1042"],
        ["show", "INC-1042"],
        ["explain", "DEP-500", "--json"],
        ["run", "python", "agent.py"],
        ["run", "--keep-content", "python", "agent.py"],
    ]
    assert {Path("/", shlex.split(one)[0]) for one in commands} <= {
        Path(sys.executable).with_name("amfs-otel"),
        Path("/amfs-otel"),
    }


def _check_store(cli: Cli) -> None:
    rows = cli.answer("list")
    assert [row["agent_id"] for row in rows] == ["onboard-agent", "review-agent", "deploy-agent"]
    explained = cli.answer("explain", "DEP-500")
    assert explained["causal_chain_length"] == 2
    assert [one["confidence"] for one in explained["causal_entries"]] == [0.92, 0.78]
    assert [one["source"] for one in explained["external_contexts"]] == ["PagerDuty API", "git"]
    assert [one["cached_tokens"] for one in explained["llm_calls"]] == [1024, 1280]
    assert [one["outcome_type"] for one in explained["outcomes"]] == ["success", "success"]
    _check_review(cli)
    tree = cli.answer("tree", "checkout-service/retry-pattern")
    assert [branch["agent_id"] for branch in tree["branches"]] == ["deploy-agent", "review-agent", "onboard-agent"]
    databases = _databases(Settings.from_env().state_dir)
    assert not [name for name in databases if "demo" in name], "the forged copies are gone"


def _check_review(cli: Cli) -> None:
    """The agent on langgraph and anthropic: one event a call, and tools with ids, arguments and results."""
    explained = cli.answer("explain", "INC-1042")
    calls = explained["llm_calls"]
    assert [(one["provider"], one["input_tokens"], one["output_tokens"]) for one in calls] == [
        ("anthropic", 1196, 88),
        ("anthropic", 1342, 71),
        ("anthropic", 1431, 14),
    ]
    assert [one["cached_tokens"] for one in calls] == [0, 1024, 1024]
    assert all(one["cost_usd"] > 0 for one in calls)
    tools = {
        one["call_id"]: (one["tool_name"], one["arguments"], one["result_summary"]) for one in explained["tool_calls"]
    }
    service = {"service": story.ENTITY}
    note = {**service, "key": "risk-timeout-regression", "risk": story.RISK}
    assert tools == {
        "toolu_risks": ("known_risks", service, f"risk-race-condition: {story.RACE}"),
        "toolu_sentry": ("sentry_errors", {**service, "hours": 6}, story.ERRORS),
        "toolu_note": ("note_risk", note, f"noted as {story.ENTITY}/risk-timeout-regression"),
    }
    assert explained["withheld"] == []
    kinds = [event["kind"] for event in cli.answer("show", "INC-1042")["events"]]
    assert sorted(kinds) == sorted(
        ["memory_read", "agent_run", *["llm_call"] * 3, *["tool_call"] * 3, "memory_query", "context", "memory_write",
         "outcome", "confidence_change"]
    )  # fmt: skip


def _databases(state: Path) -> list[str]:
    dsn = EmbeddedServer(state).ensure(create=False)
    assert dsn is not None
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("SELECT datname FROM pg_database").fetchall()]


def test_without_the_agents_libraries_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from amfs_otel.demo import playing

    monkeypatch.setattr(playing, "_NEEDED", ("no_such_library_here",))
    called = Cli(capsys)("demo")
    assert called.code == 2
    assert "amfs-otel[demo]" in called.err
