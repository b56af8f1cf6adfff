"""`doctor` against real things that are broken on purpose."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from amfs_otel import guard
from amfs_otel.chain.record import record_to_bytes
from amfs_otel.doctor import looking
from amfs_otel.doctor.facts import HookFacts
from amfs_otel.doctor.looking import gather
from amfs_otel.settings import Settings
from amfs_otel.spool import SpoolWriter, StateDirectory, StatusFile
from amfs_otel.store.destination import destination_of
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
    (folder / "RECORD").write_text("amfs_otel/pro.py,,\n", encoding="utf-8")
    # Beside ours, whose package it does not hide.
    (folder.parent / "amfs_otel").mkdir()
    (folder.parent / "amfs_otel" / "pro.py").write_text("", encoding="utf-8")
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


def told(state: Path, **facts: Any) -> None:
    """A status file of this process."""
    known: dict[str, Any] = {
        "program": "agent", "ended": True, "python": "3.11", "log": "default", "destination": "local", "events": 5,
        "records_signed": {"decision": 1}, "unsigned": 0, "ledger_content": "decision", "span_content": "NO_CONTENT",
        "patches": [
            {"name": name, "state": now, "version": None, "missing": [], "foreign": [], "detail": None}
            for name, now in (("openai", "patched"), ("anthropic", "waiting"))
        ],
    }  # fmt: skip
    StatusFile(StateDirectory(state), time.time_ns()).write({**known, **facts}, at_exit=True)


def test_the_headline_agrees_with_what_follows(cli: Cli, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("doctor").out.startswith("! no problems, 1 warning\n! NOTHING_RECORDED")
    told(state)
    assert cli("doctor").out.startswith("✓ nothing is wrong\n")
    monkeypatch.setenv("AMFS_OTEL_RECEIPTS", "perhaps")
    assert cli("doctor").out.startswith("✗ 1 problem\n✗ SETTING")


def test_a_process_is_shown_with_its_records_and_the_libraries_it_uses(cli: Cli, state: Path) -> None:
    told(state)
    (line,) = [line for line in cli("doctor").out.splitlines() if line.startswith("process ")]
    assert line.endswith("ended): records signed: 1 decision; openai patched")
    called = cli("doctor", "--json")
    check_schema(called.json, "doctor")
    assert [patch["state"] for patch in called.json["processes"][0]["patches"]] == ["patched", "waiting"]


def test_a_patch_that_switched_itself_off_is_named(cli: Cli, state: Path) -> None:
    guard.reset()
    try:
        for _ in range(guard.LIMIT):
            guard.failed("openai", KeyError("secret-word"))
        told(state, internal_errors=guard.counters())
    finally:
        guard.reset()
    code, found = causes(cli)
    assert (code, set(found)) == (4, {"PATCH_OFF"})
    assert f"the patch of openai has switched itself off: {guard.LIMIT} internal errors" in found["PATCH_OFF"]
    shown = cli("doctor").out
    assert shown.startswith("✗ 1 problem\n✗ PATCH_OFF")
    assert "secret-word" not in shown


def test_unsigned_traces_count_only_while_the_spool_holds_them(cli: Cli, state: Path) -> None:
    told(state, unsigned=2)
    assert "UNSIGNED" not in causes(cli)[1]
    writer = SpoolWriter(StateDirectory(state), "local")
    writer.append("journal", bytes(16), b"{}")
    writer.sync()
    assert "2 traces wait unsigned" in causes(cli)[1]["UNSIGNED"]
    writer.close()
    assert "2 traces wait unsigned" in causes(cli)[1]["UNSIGNED"]


def test_who_runs_ended_and_was_killed(cli: Cli, state: Path) -> None:
    def now() -> str:
        return cli("doctor", "--json").json["processes"][0]["state"]

    told(state, ended=False)
    writer = SpoolWriter(StateDirectory(state), "local")
    writer.append("journal", bytes(16), b"{}")
    writer.sync()
    assert now() == "running"
    writer.close()
    assert now() == "killed"
    told(state)
    assert now() == "ended"


def test_delivered_records_do_not_wait(cli: Cli, state: Path, one_ledger: Ledger) -> None:
    records = [one_ledger.record(b"x") for _ in range(3)]
    with SpoolWriter(StateDirectory(state), destination_of(one_ledger.dsn, one_ledger.log)) as writer:
        for record in records:
            writer.append("records", UUID(record.record_id).bytes, record_to_bytes(record))
        writer.sync()
    with one_ledger.store() as store:
        store.append(records[:1])
        assert "2 records waiting" in cli("doctor", "--dsn", one_ledger.dsn).out
        store.append(records[1:])
    assert "0 records waiting; delivered ones are kept ten minutes" in cli("doctor", "--dsn", one_ledger.dsn).out


def test_what_a_dead_process_left_in_its_journal_is_not_counted_as_nothing(
    cli: Cli, state: Path, one_ledger: Ledger
) -> None:
    with SpoolWriter(StateDirectory(state), destination_of(one_ledger.dsn, one_ledger.log)) as writer:
        writer.append("journal", bytes(16), b"{}")
        writer.sync()
    assert "1 files for this store" in cli("doctor", "--dsn", one_ledger.dsn).out


def test_patterns_that_mask_nothing(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "patterns").write_text("EMP-[0-9]{6}\n(\n", encoding="utf-8")
    monkeypatch.setenv("AMFS_OTEL_MASK_PATTERNS", str(tmp_path / "patterns"))
    code, found = causes(cli)
    assert code == 4
    assert "line 2" in found["MASK_PATTERNS"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_a_state_directory_that_only_looks_writable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", "/proc/state-of-amfs-otel")
    code, found = causes(cli)
    assert (code, "SPOOL_UNUSABLE" in found) == (4, True)


def test_a_state_directory_into_which_one_may_not_look(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes(cli)  # everything is imported: another user may not be able to read it
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(closed / "inner" / "state"))
    closed.chmod(0)
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        code, found = causes(cli)
    finally:
        os.seteuid(was)
        closed.chmod(0o700)
    assert (code, "SPOOL_UNUSABLE" in found) == (4, True)
