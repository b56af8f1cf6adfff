"""Throw-away PostgreSQL servers for the tests, run the way the local store runs its own."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from amfs_otel.store.account import own, run_as, server_account
from amfs_otel.store.binaries import Binaries, all_binaries
from amfs_otel.store.cluster import Cluster
from tests.integration.ledgers import Ledger

TEST_DSN = os.environ.get("AMFS_OTEL_TEST_DSN", "")
QUICK = """
fsync = off
full_page_writes = off
autovacuum = off
wal_level = minimal
max_wal_senders = 0
max_connections = 60
"""
_numbers = count(1)
_number_lock = threading.Lock()


@dataclass
class Server:
    """A server that tests may fill with databases; `cluster` is None where somebody else runs it."""

    dsn: str
    cluster: Cluster | None = None
    binaries: Binaries | None = None
    made: list[str] = field(default_factory=list)
    prepared: Ledger | None = None

    def database(self, template: str = "template0", *, options: str = "") -> str:
        """Make an empty database, or a copy of another one, and return its connection string."""
        with _number_lock:
            name = f"amfs_otel_test_{os.getpid()}_{next(_numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} " + options)
        self.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        self.made.append(name)
        return psycopg.conninfo.make_conninfo(self.dsn, dbname=name)

    def prepared_copy(self) -> Ledger:
        """A prepared log in a database of its own; the keys are the same for the whole session."""
        if self.prepared is None:
            self.prepared = Ledger(self.database())
            self.prepared.prepare()
        template = psycopg.conninfo.conninfo_to_dict(self.prepared.dsn)["dbname"]
        return replace(self.prepared, dsn=self.database(str(template)))

    def drop_databases(self, keep: int = 0) -> None:
        while len(self.made) > keep:
            self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self.made.pop())))

    def execute(self, statement) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)


def available_binaries() -> list[Binaries]:
    """Every major version on this machine once, the system's first."""
    found: dict[int, Binaries] = {}
    for binaries in sorted(all_binaries(), key=lambda one: one.source != "system"):
        found.setdefault(binaries.major, binaries)
    return list(found.values())


@contextmanager
def running_cluster(binaries: Binaries) -> Iterator[Cluster]:
    """A new server of its own, gone afterwards."""
    account = server_account()
    home = Path(tempfile.mkdtemp(prefix="amfs-otel-test-", dir="/tmp"))
    try:
        own(home, account)
        cluster = Cluster(binaries, home / "data", home, home / "server.log", account)
        cluster.initialise(sync=False)
        with (cluster.data / "postgresql.conf").open("a") as settings:
            settings.write(QUICK)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop("immediate")
    finally:
        shutil.rmtree(home)


@contextmanager
def running_server(binaries: Binaries | None) -> Iterator[Server]:
    """The server of AMFS_OTEL_TEST_DSN for None, else a new one."""
    if binaries is None:
        server = Server(TEST_DSN)
        try:
            yield server
        finally:
            server.drop_databases()
        return
    with running_cluster(binaries) as cluster:
        yield Server(cluster.dsn, cluster, binaries)


def copy_database(source: str, target: str, binaries: Binaries) -> None:
    """Dump one database and restore it into another, with the programs of the source's version."""
    dump = subprocess.run(
        [binaries.directory / "pg_dump", "--dbname", source], capture_output=True, check=True, cwd="/"
    )
    subprocess.run(
        [binaries.directory / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "--dbname", target],
        input=dump.stdout,
        capture_output=True,
        check=True,
        cwd="/",
    )


__all__ = ["Server", "available_binaries", "copy_database", "run_as", "running_cluster", "running_server"]
