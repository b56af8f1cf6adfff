"""`doctor` against real things that are broken on purpose."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from amfs_otel.doctor import looking
from amfs_otel.doctor.facts import HookFacts
from amfs_otel.doctor.looking import gather
from amfs_otel.settings import Settings
from amfs_otel.store.seal import LOCK_CLASS
from tests.integration.cli_calls import Cli, check_schema
from tests.integration.ledgers import Ledger


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory, no telemetry, and no program started to try the hook: that has its own test."""
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setattr(looking, "hook_facts", lambda: HookFacts(True))
    return tmp_path / "state"


@pytest.fixture
def cli(state: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def causes(cli: Cli, *words: str) -> tuple[int, dict[str, str]]:
    """Exit code, and the message of each problem or warning."""
    called = cli("doctor", "--json", *words)
    check_schema(called.json, "doctor")
    return called.code, {one["code"]: one["message"] for one in called.json["findings"] if one["level"] != "note"}


def test_a_fresh_machine(cli: Cli) -> None:
    code, found = causes(cli)
    assert (code, set(found)) == (0, {"NOTHING_RECORDED"})


def test_a_server_that_is_not_there_and_a_password_that_stays_hidden(cli: Cli) -> None:
    code, found = causes(cli, "--dsn", "postgresql://me:hidden-word@127.0.0.1:1/none")
    assert code == 3
    assert {"STORE_UNREACHABLE", "NO_KEY"} <= set(found)
    assert "hidden-word" not in str(found)


def test_a_database_that_nobody_prepared(cli: Cli, database: str) -> None:
    code, found = causes(cli, "--dsn", database)
    assert (code, "STORE_UNPREPARED" in found) == (4, True)


def test_rules_that_somebody_dropped(cli: Cli, one_ledger: Ledger) -> None:
    one_ledger.sql("DROP RULE entry_no_update ON amfs_otel.entry")
    _, found = causes(cli, "--dsn", one_ledger.dsn)
    assert "entry_no_update" in found["NO_RULES"]


def test_a_writers_key_that_the_log_does_not_know(cli: Cli, state: Path, one_ledger: Ledger) -> None:
    (state / "keys").mkdir(parents=True)
    (state / "keys" / "writer.key").write_text("hex:" + "ab" * 32, encoding="utf-8")
    _, found = causes(cli, "--dsn", one_ledger.dsn)
    assert one_ledger.writer_key.kid in found["KEY_UNKNOWN"]


def test_a_key_of_eight_bytes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_SIGNING_KEY", "12345678")
    code, found = causes(cli)
    assert code == 4
    assert "12345678" not in str(found)
    assert "KEY_UNUSABLE" in found


def test_records_that_nobody_seals(cli: Cli, one_ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with one_ledger.store() as store:
        store.append([one_ledger.record(b"x")])
    monkeypatch.setattr("amfs_otel.doctor.causes.SEAL_DEADLINE_S", 0.0)
    _, found = causes(cli, "--dsn", one_ledger.dsn)
    assert "amfs-otel" not in found["NO_SEALER"]
    assert "1 records have no entry" in found["NO_SEALER"]


def test_a_session_that_holds_sealing_back(cli: Cli, one_ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs_otel.doctor.causes.SEAL_DEADLINE_S", 0.0)
    with one_ledger.store() as store:
        store.append([one_ledger.record(b"x")])
    with psycopg.connect(one_ledger.dsn) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK_CLASS, one_ledger.log))
        _, found = causes(cli, "--dsn", one_ledger.dsn)
        assert str(connection.info.backend_pid) in found["SEAL_HELD"]


def test_another_distribution_that_owns_our_name(cli: Cli, tmp_path: Path) -> None:
    """In a process of its own: what is installed is looked up once."""
    folder = tmp_path / "site" / "amfs_pro-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: amfs-pro\nVersion: 1.0\n", encoding="utf-8")
    (folder / "RECORD").write_text("amfs_otel/__init__.py,,\namfs_otel/pro.py,,\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "amfs_otel", "doctor", "--json"],
        env={**os.environ, "PYTHONPATH": str(folder.parent)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "amfs-pro" in done.stdout
    assert "TWO_PACKAGES" in done.stdout


def test_a_state_directory_that_cannot_be_made(cli: Cli, state: Path) -> None:
    state.write_text("a file in its place", encoding="utf-8")
    code, found = causes(cli)
    assert (code, "SPOOL_UNUSABLE" in found) == (4, True)


def test_looking_changes_nothing(state: Path) -> None:
    gather(Settings.from_env())
    assert not state.exists()
