"""The CLI against a PostgreSQL server: who may write there, who only reads, and what goes wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from amfs_otel.chain.keys import key_from_file
from amfs_otel.cli.preparing import dsn_of
from amfs_otel.store.embedded import EmbeddedServer
from amfs_otel.store.schema import prepare
from tests.integration.cli_calls import AGENT, Cli, run_program
from tests.integration.ledgers import Ledger, new_key
from tests.integration.postgres_servers import Server
from tests.integration.test_projection import Projected
from tests.support.agents import REMEMBERING
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.seed_story import committed
from tests.support.stories import window

TABLES = (
    *("record", "part", "entry", "checkpoint", "projected", "decision", "step", "outcome", "amendment", "node", "edge"),
    *("edge_evidence", "schema_migration"),
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def cli(state: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("AMFS_OTEL_DSN", database)
    return Cli(capsys)


@pytest.fixture
def used(cli: Cli, tmp_path: Path) -> Cli:
    """A prepared server to which an agent has delivered."""
    assert cli("init").code == 0
    done = run_program(AGENT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert cli("drain").code == 0
    return cli


def test_init_makes_schema_log_and_keys_once(cli: Cli, state: Path) -> None:
    first = cli.answer("init")
    assert first["created"] is True
    assert [(key["role"], key["made"]) for key in first["keys"]] == [("writer", True), ("log", True)]
    kids = {key["kid"] for key in first["keys"]}
    assert kids == {key_from_file(state / "keys" / f"{role}.key").kid for role in ("writer", "log")}
    assert {key["kid"] for key in first["announced"]} == kids
    again = cli.answer("init")
    assert (again["created"], again["log_uid"]) == (False, first["log_uid"])
    assert not any(key["made"] for key in again["keys"])


def test_init_prints_lines_to_paste_without_a_password(cli: Cli, database: str) -> None:
    printed = cli("init", "--dsn", database).out
    place = printed.split(" on ")[1].split(":", 1)[0]
    assert "  CREATE ROLE agent LOGIN PASSWORD 'PASSWORD' IN ROLE amfs_otel_writer, amfs_otel_sealer;" in printed
    (export,) = [line for line in printed.splitlines() if "export AMFS_OTEL_DSN=" in line]
    assert place in export
    assert "PASSWORD" in export


@pytest.mark.parametrize(
    ("place", "dsn"),
    [
        ("db.example:5432/traces", "postgresql://USER:PASSWORD@db.example:5432/traces"),
        ("/run/pg:5433/traces", "host=/run/pg port=5433 dbname=traces user=USER password=PASSWORD"),
        ("the server", "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
    ],
)
def test_the_connection_string_for_another_user(place: str, dsn: str) -> None:
    assert dsn_of(place) == dsn


def test_init_on_a_prepared_log_makes_no_keys_and_names_the_announced(
    cli: Cli, state: Path, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    announced = {key["kid"] for key in cli.answer("init")["announced"]}
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "elsewhere"))
    called = cli("init")
    assert called.code == 0
    assert all(kid in called.out for kid in announced)
    assert not (tmp_path / "elsewhere" / "keys" / "writer.key").exists()


def test_init_needs_a_server(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called = Cli(capsys)("init")
    assert called.code == 2
    assert "AMFS_OTEL_DSN" in called.err


def test_what_an_agent_delivered_is_listed_explained_and_verified(used: Cli) -> None:
    assert {row["agent_id"] for row in used.answer("list")} == {"deployer", "reviewer"}
    assert used.answer("explain", "DEP-7")["decision_summary"] == "Healthy again"
    assert used.answer("outcome", "DEP-7", "failure")["sequence_number"] is not None
    assert used.answer("verify")["verdict"] == "INTACT"


def test_only_a_word_that_was_never_recorded_is_said_to_be_unknown(
    one_ledger: Ledger, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, cli = Projected(one_ledger), Cli(capsys)
    monkeypatch.setenv("AMFS_OTEL_DSN", one_ledger.dsn)
    log.seal(
        log.writer.record(window("deploy", [committed("R-1", "success")]), at=60),
        log.writer.record(window("deploy-2", [committed("R-10", "success")]), at=4000),
    )
    log.project()
    later = ("list", "--since", "2026-03-07T17:00:00Z")
    for words in (("--agent", "deploy"), ("--ref", "R-1")):
        assert "deploy" not in cli(*later, *words).out
        assert cli(*later, *words).err == "", "it was recorded before"
    assert "no agent is 'deplo'; did you mean deploy-2?" in cli(*later, "--agent", "deplo").err


@pytest.fixture
def remembered(used: Cli, tmp_path: Path) -> Cli:
    """The same server after an agent that reads and writes memory: a log with a tree."""
    done = run_program(REMEMBERING, tmp_path)
    assert done.returncode == 0, done.stderr
    assert used("drain").code == 0
    return used


def test_a_role_that_may_only_select_reads_everything_and_writes_nothing(
    remembered: Cli, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading command, for people and as JSON; after each the rows and the next transaction id are as before."""
    cli = remembered
    monkeypatch.setenv("AMFS_OTEL_DSN", Ledger(database).user("reader"))
    before = _counts(database), _next_transaction(database)
    for words, sign in (
        (("list",), "BUY-1"),
        (("list", "--csv", "--agent", "buyer"), "BUY-1"),
        (("list", "--session", "run-1"), "DEP-7"),
        (("explain", "BUY-1"), "shop/rule v1"),
        (("explain", "last"), "BUY-1"),
        (("show", "BUY-1"), "memory_read"),
        (("tree", "shop/rule"), "read by buyer"),
        (("verify",), "INTACT"),
        (("verify", "--level", "headers"), "INTACT"),
    ):
        called = cli(*words)
        assert (called.code, called.err) == (0, ""), (words, called.err)
        assert sign in called.out, words
        if "--csv" not in words:
            assert sign.split()[0].split("/")[0] in str(cli.answer(*words)), words
        assert (_counts(database), _next_transaction(database)) == before, words
    (reading,) = cli.answer("tree", "shop/rule")["branches"]
    assert (reading["agent_id"], reading["wrote"]) == ("buyer", ["bought"])
    assert cli("explain", "NO-SUCH").code == 2
    assert cli("tree", "no/entry").code == 2
    assert cli("doctor").code in (0, 3, 4)
    assert (_counts(database), _next_transaction(database)) == before
    assert cli("outcome", "DEP-7", "failure").code == 3
    assert _counts(database) == before[0]


def _counts(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [_number(connection, f"SELECT count(*) FROM amfs_otel.{name}") for name in TABLES]


def _next_transaction(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return _number(connection, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")


def _number(connection: psycopg.Connection[tuple[int]], query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_a_log_that_another_prepared_shows_records_without_an_entry(
    cli: Cli, state: Path, database: str, tmp_path: Path
) -> None:
    """Nobody here holds the log key: records are stored, listed, and not sealed."""
    writer, log_key = new_key(), new_key()
    prepare(database, log="default", writer_key=writer, log_key=log_key, now_ns=time.time_ns())
    (state / "keys").mkdir(parents=True, mode=0o700)
    (state / "keys" / "writer.key").write_text(f"hex:{writer.secret.hex()}", encoding="utf-8")
    assert run_program(AGENT, tmp_path).returncode == 0
    assert cli("drain").code == 0
    rows = cli.answer("list")
    assert len(rows) == 2
    assert {row["sequence_number"] for row in rows} == {None}
    assert cli("verify").code == 3, "the log key is not held here"
    assert cli("sealer", "--once").code == 3, "and without it nobody seals"
    (state / "keys" / "log.key").write_text(f"hex:{log_key.secret.hex()}", encoding="utf-8")
    assert cli("sealer", "--once").code == 0
    assert None not in {row["sequence_number"] for row in cli.answer("list")}
    assert cli("verify").code == 0


def test_a_sealer_seals_what_comes_until_it_is_told_to_end(
    one_ledger: Ledger, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMFS_OTEL_DSN", one_ledger.dsn)
    monkeypatch.setenv("AMFS_OTEL_LOG_KEY", f"hex:{one_ledger.log_key.secret.hex()}")
    with subprocess.Popen(
        [sys.executable, "-m", "amfs_otel", "sealer"], stderr=subprocess.PIPE, env={**os.environ}, text=True
    ) as sealer:
        assert sealer.stderr is not None
        assert one_ledger.log_key.kid in sealer.stderr.readline()
        with one_ledger.store() as store:
            record = one_ledger.record(b"x")
            store.append([record])
            deadline = time.monotonic() + 60
            while store.places([record.record_id])[record.record_id] is None and time.monotonic() < deadline:
                time.sleep(0.02)
            assert store.places([record.record_id])[record.record_id] == 1
        sealer.send_signal(signal.SIGTERM)
        assert sealer.wait(timeout=60) == 0
        assert "sealed 1 records" in sealer.stderr.read()


def test_the_command_that_reads_emits_the_receipts_of_what_it_sealed(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a DSN nobody else could: spans come from the agent, receipts from the command."""
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint("grpc"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
        assert run_program(AGENT, tmp_path).returncode == 0
        try:
            rows = Cli(capsys).answer("list")
        finally:
            EmbeddedServer(state).remove()
        receipts = [span for span in receiver.spans if span.name == "amfs.record"]
    assert {row["record_id"] for row in rows} <= {receipt.attributes["amfs.record.id"] for receipt in receipts}


def test_keygen_makes_a_key_and_announces_it(used: Cli, tmp_path: Path) -> None:
    plain = used("keygen")
    assert plain.code == 0
    assert plain.out.startswith("hex:")
    out = tmp_path / "new.key"
    told = used("keygen", "--for", "billing", "--announce", "--out", str(out))
    assert (told.code, told.out) == (0, "")
    kid = key_from_file(out).kid
    assert kid in told.err
    assert out.stat().st_mode & 0o777 == 0o600
    announced = {key["kid"]: key["name"] for key in used.answer("init")["announced"]}
    assert announced[kid] == "billing"
    assert used("verify").code == 0
    assert used("keygen", "--out", str(out)).code == 2
    assert used("keygen", "--role", "king").code == 2


def test_what_waits_in_the_spool_for_the_server_is_said_with_the_command_that_brings_it(
    used: Cli, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert used("list").err == ""
    monkeypatch.setenv("AMFS_OTEL_DSN", psycopg.conninfo.make_conninfo(database, user="nobody-there"))
    assert "they wait in the spool" in run_program(AGENT, tmp_path).stderr
    monkeypatch.setenv("AMFS_OTEL_DSN", database)
    for words in (["list", "--json"], ["explain", "DEP-7", "--json"]):
        called = used(*words)
        assert called.code == 0
        assert called.err == "amfs-otel: 2 records wait in the spool here; to bring them in: amfs-otel drain\n"
    monkeypatch.delenv("AMFS_OTEL_DSN")
    assert "drain, with this DSN in AMFS_OTEL_DSN" in used("list", "--dsn", database).err
    monkeypatch.setenv("AMFS_OTEL_DSN", database)
    assert used("drain").code == 0
    assert used("list").err == ""


@pytest.mark.parametrize("words", [["drain", "--to", ""], ["list", "--dsn", " "]])
def test_an_empty_dsn_is_wrong_usage(cli: Cli, words: list[str]) -> None:
    called = cli(*words)
    assert (called.code, called.out) == (2, "")
    assert "it is empty; expected postgresql://" in called.err


def test_what_waits_for_another_database_and_without_a_key_is_brought_by_the_command_that_doctor_names(
    cli: Cli, postgres: Server, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMFS_OTEL_DSN", postgres.database())
    assert run_program(AGENT, tmp_path).returncode == 0
    monkeypatch.setenv("AMFS_OTEL_DSN", database)
    assert cli("init").code == 0
    found = {one["code"]: one for one in cli("doctor", "--json").json["findings"]}
    assert "another database than this one (the log default), made by agent" in found["STRANDED"]["message"]
    assert "drain --to DSN" in found["UNSIGNED"]["hint"]
    assert cli("drain", "--to", database).code == 0
    assert not {"STRANDED", "UNSIGNED"} & {one["code"] for one in cli("doctor", "--json").json["findings"]}
    assert {row["agent_id"] for row in cli.answer("list")} == {"deployer", "reviewer"}


def test_drain_to_asks_before_it_sends_what_a_development_key_signed(
    state: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_program(AGENT, tmp_path).returncode == 0
    cli = Cli(capsys)
    assert cli("init", "--dsn", database).code == 0
    refused = cli("drain", "--to", database)
    assert refused.code == 2
    assert "nobody can be asked here: 2 spooled records were made for another store (log default)" in refused.err
    assert "Send them? With --yes" in refused.err
    assert _counts(database)[0] == 1, "the genesis alone"
    assert cli("drain", "--to", database, "--yes").code == 0
    assert _counts(database)[0] == 3


def test_the_sentence_for_each_way_a_server_can_be_wrong(
    cli: Cli, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("list").code == 2, "not prepared"
    assert "amfs-otel init" in cli("list").err
    unreachable = cli("list", "--dsn", "postgresql://me:hidden-word@127.0.0.1:1/none")
    assert unreachable.code == 3
    assert "hidden-word" not in unreachable.err
    nonsense = cli("list", "--dsn", "not a dsn")
    assert nonsense.code == 2
    cli("init")
    other = cli("list", "--log", "another")
    assert other.code == 2
    assert "default" in other.err
    assert cli("list", "--log", "not/a/name").code == 2


def test_verify_of_an_unprepared_database_cannot_judge(cli: Cli) -> None:
    called = cli("verify", "--json")
    assert called.code == 3
    assert "EMPTY_STORE" in {finding["code"] for finding in called.json["findings"]}


def test_a_fallback_dsn_counts_only_where_our_schema_is(
    state: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMFS_POSTGRES_DSN", database)
    cli = Cli(capsys)
    assert "nothing was recorded" in cli("list").err
    assert cli("init").code == 2, "AMFS's own database is prepared only when it is named"
    assert cli("init", "--dsn", database).code == 0
    assert cli("list").code == 0


def test_nothing_of_the_environment_changes(used: Cli) -> None:
    before = dict(os.environ)
    used("list")
    used("verify")
    assert dict(os.environ) == before
