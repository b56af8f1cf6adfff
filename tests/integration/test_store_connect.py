import re
import socket
import traceback

import psycopg
import pytest

from amfs_otel.errors import AmfsOtelError, ConfigurationError, StoreUnavailable
from amfs_otel.store.destination import destination_of, place_of
from amfs_otel.store.postgres import Store
from tests.integration.ledgers import Ledger

PASSWORD = "hunter2secret"
TRICKY = "hun@ter2:se/cr?et"


def failure(dsn):
    """The error of a connection, and everything a log could show of it."""
    with pytest.raises(AmfsOtelError) as caught:
        Store.connect(dsn, "default", timeout_s=2)
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(error) + repr(error.__context__)
    # The test's own source line and values are not ours to hide.
    return error, shown.replace(repr(dsn), "")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://user:{PASSWORD}@127.0.0.1:notaport/db",
        f"postgresql://user:{PASSWORD}@127.0.0.1/db?nosuchoption=1",
        f"postgresql://user:{PASSWORD}@127.0.0.1/db?sslmode=perhaps",
        f"postgresql://user:{PASSWORD}@[127.0.0.1/db",
        f"host=127.0.0.1 password={PASSWORD} nosuchoption=1",
        f"host=127.0.0.1 password {PASSWORD}",
        f"host=127.0.0.1 password='{PASSWORD}",
        PASSWORD,
        f"postgresql://user:{PASSWORD}",
        f"postgresql://user:%zz{PASSWORD}@127.0.0.1/db",
    ],
)
def test_a_malformed_dsn_is_refused_without_showing_any_of_it(dsn):
    error, shown = failure(dsn)
    assert isinstance(error, ConfigurationError | StoreUnavailable)
    assert PASSWORD not in shown


@pytest.mark.parametrize(
    "form", ["postgresql://user:{}@127.0.0.1:{}/db", "postgresql://user:{}@no.such.host.invalid:{}/db"]
)
@pytest.mark.parametrize(
    "password", [PASSWORD, TRICKY, f"a@{PASSWORD}", f"a/{PASSWORD}", f"a#{PASSWORD}", f"a:{PASSWORD}"]
)
def test_a_password_never_shows_wherever_libpq_puts_its_pieces(form, password):
    error, shown = failure(form.format(password, free_port()))
    assert isinstance(error, ConfigurationError | StoreUnavailable)
    for piece in re.split(r"[@/?#:]", password):
        assert len(piece) < 3 or piece not in shown


def test_nothing_listening_is_unavailable_and_names_the_place():
    port = free_port()
    error, _ = failure(f"postgresql://user:{PASSWORD}@127.0.0.1:{port}/mydb")
    assert isinstance(error, StoreUnavailable)
    assert (
        str(error)
        == f"database server 127.0.0.1, port {port}, database mydb: nothing listens there. Is the server running?"
    )


@pytest.mark.parametrize(
    ("dsn", "what"),
    [
        (f"postgresql://user:{PASSWORD}@127.0.0.1:18x33/db", "the port is no number"),
        (f"postgresql://user:{PASSWORD}@localhost:18x33/db", "the port is no number"),
        (f"postgresql://user:{PASSWORD}@127.0.0.1:99999/db", "the port is no number from 1 to 65535"),
        (f"postgresql://user:hun@{PASSWORD}@127.0.0.1:5432/db", "the host name is not known here"),
    ],
)
def test_what_an_unescaped_password_looks_like_says_how_to_write_it(dsn, what):
    error, shown = failure(dsn)
    assert error.what == what
    assert "%40" in error.hint
    assert PASSWORD not in shown


def test_an_unknown_host_is_unavailable():
    error, _ = failure("postgresql://user@no.such.host.invalid/db")
    assert isinstance(error, StoreUnavailable)
    assert "host name is not known" in str(error)


def test_a_server_that_accepts_and_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        error, _ = failure(f"postgresql://user:{PASSWORD}@127.0.0.1:{listener.getsockname()[1]}/db")
    assert isinstance(error, StoreUnavailable)
    assert "does not answer in time" in str(error)


def test_a_wrong_password_database_and_user_are_told_apart(own_server):
    ledger = Ledger(own_server.dsn)
    ledger.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    access = own_server.cluster.data / "pg_hba.conf"
    access.write_text("local all guarded scram-sha-256\nlocal all forbidden reject\n" + access.read_text())
    ledger.sql("SELECT pg_reload_conf()")

    def enter(**changes):
        return failure(psycopg.conninfo.make_conninfo(own_server.dsn, **changes))

    error, shown = enter(user="guarded", password=PASSWORD)
    assert isinstance(error, ConfigurationError)
    assert "does not accept the password" in str(error)
    assert PASSWORD not in shown
    assert "DSN holds none" in str(enter(user="guarded")[0])
    assert "database does not exist" in str(enter(dbname="nowhere")[0])
    assert "knows no such user" in str(enter(user="nobody_at_all")[0])
    with Store.connect(
        psycopg.conninfo.make_conninfo(own_server.dsn, user="guarded", password="right"), "default"
    ) as store:
        assert "right" not in repr(store)


def test_a_stopped_server_is_unavailable(own_server):
    own_server.cluster.stop()
    error, _ = failure(own_server.dsn)
    assert isinstance(error, StoreUnavailable)


def test_a_destination_is_the_place_and_the_log_and_nothing_else():
    same = {
        destination_of(dsn, "default")
        for dsn in (
            "postgresql://a:b@db.example/app",
            "postgres://other:pw@DB.example:5432/app?sslmode=require",
            r"host=db.example dbname=app user=x password='it\'s'",
            "host=db.example port=5432 dbname=app",
            "postgresql:///app?host=db.example",
        )
    }
    assert len(same) == 1
    (destination,) = same
    assert re.fullmatch(r"[0-9a-f]{64}", destination)
    others = [
        destination_of("postgresql://db.example/app", "other"),
        destination_of("postgresql://db.example/app2", "default"),
        destination_of("postgresql://db.example:5433/app", "default"),
        destination_of("postgresql://db2.example/app", "default"),
        destination_of("what is this", "default"),
        destination_of("what is that", "default"),
    ]
    assert len({destination, *others}) == 7
    assert destination_of(None, "default") == destination_of("", "other") == "local"


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://", ("localhost", "5432", "")),
        ("postgresql://me@h", ("h", "5432", "me")),
        ("postgresql://[::1]:5433/db", ("::1", "5433", "db")),
        ("postgresql://h1:1,h2:2/db", ("h1,h2", "1,2", "db")),
        ("postgresql://%2Frun%2Fpg/db", ("/run/pg", "5432", "db")),
        (r"host='/run/my pg' dbname=d\'b", ("/run/my pg", "5432", "d'b")),
        ("host=h hostaddr=10.0.0.1 user=u", ("10.0.0.1", "5432", "u")),
        ("postgresql://u:p@ss@h/db", None),
        ("postgresql://u:p/ss@h/db", None),
        ("postgresql://u:p?ss@h/db", None),
        ("postgresql://u:p#ss@h/db", None),
        ("postgresql://h:port/db", None),
        ("mysql://h/db", None),
        ("password", None),
    ],
)
def test_the_place_of_a_dsn(dsn, place):
    assert place_of(dsn) == place
