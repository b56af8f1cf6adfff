"""Keys and roles by the CLI: the statements that `init` prints, a server's keys beside a local log, keys that are lost."""

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from amfs_otel.store.embedded import EmbeddedServer
from tests.integration.cli_calls import AGENT, Cli, run_program


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    yield tmp_path / "state"
    EmbeddedServer(tmp_path / "state").remove()


@pytest.fixture
def cli(state: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def users(cli: Cli, database: str) -> Iterator[dict[str, str]]:
    """The users whose statements `init` prints, made as printed under names of their own; a DSN for each."""
    printed = cli("init", "--dsn", database).out
    found: dict[str, str] = {}
    with psycopg.connect(database, autocommit=True) as connection:
        for line in printed.splitlines():
            if line.startswith("  CREATE ROLE "):
                name = line.split()[2]
                own = f"{name}_{secrets.token_hex(4)}"
                connection.execute(line.replace(f"ROLE {name} ", f"ROLE {own} ", 1).encode())
                found[name] = make_conninfo(database, user=own, password="PASSWORD")
        yield found
        for dsn in found.values():
            connection.execute(f"DROP ROLE {psycopg.conninfo.conninfo_to_dict(dsn)['user']}".encode())


def test_the_users_that_init_prints_can_do_what_they_are_for(
    cli: Cli, users: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMFS_OTEL_DSN", users["agent"])
    done = run_program(AGENT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert None not in {row["sequence_number"] for row in cli.answer("list")}, "it sealed its own records"
    assert cli("outcome", "DEP-7", "failure").code == 0
    monkeypatch.setenv("AMFS_OTEL_DSN", users["person"])
    assert cli("verify").code == 0
    assert cli("explain", "DEP-7").code == 0


def test_a_writer_where_the_log_key_is_gets_the_grant_that_lacks(
    cli: Cli, users: dict[str, str], database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMFS_OTEL_DSN", users["agent_elsewhere"])
    done = run_program(AGENT, tmp_path)
    assert "GRANT amfs_otel_sealer TO" in done.stderr
    assert "GRANT amfs_otel_reader TO" in cli("list").err
    causes = {one["code"]: one for one in cli("doctor", "--json").json["findings"]}
    assert "STORE_UNUSABLE" not in causes
    assert "KEY_UNKNOWN" not in causes
    grant = str(causes["MAY_NOT_SEAL"]["hint"]).partition(": ")[2]
    assert grant.startswith("GRANT amfs_otel_sealer TO ")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(grant.encode())
    assert cli("drain").code == 0
    assert None not in {row["sequence_number"] for row in cli.answer("list")}
    assert cli("verify").code == 0


def test_the_keys_of_a_server_leave_the_local_log_alone(cli: Cli, database: str, tmp_path: Path, state: Path) -> None:
    assert run_program(AGENT, tmp_path).returncode == 0
    assert len(cli.answer("list")) == 2
    assert cli("init", "--dsn", database).code == 0
    assert (state / "keys" / "log.key").exists()
    assert run_program(AGENT, tmp_path).returncode == 0
    listed = cli("list")
    assert (listed.code, listed.err) == (0, "")
    assert cli("verify").code == 0
    assert cli("outcome", "DEP-7", "failure").err.count("not sealed") == 0


def test_a_key_that_the_log_does_not_know_signs_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_program(AGENT, tmp_path).returncode == 0
    before = cli.answer("explain", "DEP-7")["outcomes"]
    monkeypatch.setenv("AMFS_OTEL_SIGNING_KEY", f"hex:{secrets.token_hex(32)}")
    refused = cli("outcome", "DEP-7", "failure")
    assert refused.code == 2
    assert "unset AMFS_OTEL_SIGNING_KEY" in refused.err
    assert cli.answer("explain", "DEP-7")["outcomes"] == before
    monkeypatch.delenv("AMFS_OTEL_SIGNING_KEY")
    assert cli("outcome", "DEP-7", "failure").code == 0


def test_an_outcome_that_could_not_be_sealed_says_that_it_is_stored(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_program(AGENT, tmp_path).returncode == 0
    assert cli("list").code == 0
    monkeypatch.setenv("AMFS_OTEL_LOG_KEY", f"hex:{secrets.token_hex(32)}")
    told = cli("outcome", "DEP-7", "failure", "--json")
    assert told.code == 0, "nobody is to try again"
    assert f"stored as record {told.json['record_id']} and not sealed: " in told.err
    assert told.json["sequence_number"] is None
    monkeypatch.delenv("AMFS_OTEL_LOG_KEY")
    assert cli("list").code == 0
    assert cli("verify").code == 0


def test_a_local_database_that_outlived_its_keys_says_so_and_is_begun_anew_by_what_it_names(
    cli: Cli, tmp_path: Path, state: Path
) -> None:
    assert run_program(AGENT, tmp_path).returncode == 0
    assert cli("list").code == 0
    for one in state.iterdir():
        if one.name != "postgres":
            shutil.rmtree(one)
    told = run_program(AGENT, tmp_path).stderr
    assert "amfs-otel reset --local" in told
    assert "Restore the key files" in told
    listed = cli("list")
    assert listed.code == 0, "what is there can be read"
    causes = {one["code"]: one["hint"] for one in cli("doctor", "--json").json["findings"]}
    assert "amfs-otel reset --local" in causes["NO_KEY"]
    assert cli("outcome", "DEP-7", "failure").code == 3
    assert cli("reset", "--local", "--yes").code == 0
    assert run_program(AGENT, tmp_path).stderr == ""
    assert (cli("list").err, cli("verify").code) == ("", 0)


def test_init_begins_no_log_over_records_whose_entries_are_gone(
    cli: Cli, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMFS_OTEL_DSN", database)
    assert cli("init").code == 0
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER TABLE amfs_otel.entry DISABLE TRIGGER ALL")
        connection.execute("ALTER TABLE amfs_otel.entry DISABLE RULE entry_no_delete")
        connection.execute("DELETE FROM amfs_otel.entry")
    refused = cli("init")
    assert refused.code == 2
    assert "amfs-otel verify" in refused.err
    assert cli("verify").code == 1
    assert cli("init", "--log", "another").code == 0
