"""Opening a connection, and turning psycopg's errors into ours without a secret in them.

psycopg and libpq quote what they were given: a connection string that cannot be parsed comes back with pieces of it, a
password with an unescaped ``@`` becomes half of a "host name". So no text of theirs about a connection is ever shown;
causes are recognised and named in our words.
"""

import contextlib
import math
from collections.abc import Generator
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg import IsolationLevel

from amfs_otel.errors import AmfsOtelError, ConfigurationError, StoreError, StoreUnavailable
from amfs_otel.store.destination import place_of

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

OLDEST_SERVER = 150000
NOT_PREPARED_HINT = "Prepare it with: amfs-otel init."
_ESCAPING_HINT = "Characters such as @ / ? # in a password are written as %40 %2F %3F %23."

_REFUSALS: tuple[tuple[str, type[AmfsOtelError], str, str], ...] = (
    ("password authentication failed", ConfigurationError, "the server does not accept the password", ""),
    ("no password supplied", ConfigurationError, "the server wants a password and the DSN holds none", ""),
    ("authentication failed", ConfigurationError, "the server does not let this user in", ""),
    ("no pg_hba.conf entry", ConfigurationError, "the server lets nobody in from here as this user", ""),
    ("database", ConfigurationError, "the database does not exist", "Create it, then run: amfs-otel init."),
    ("role", ConfigurationError, "the server knows no such user", ""),
    ("certificate", ConfigurationError, "the server's certificate is not accepted", ""),
    ("SSL", ConfigurationError, "the server and the DSN do not agree about TLS", ""),
    ("starting up", StoreUnavailable, "the server is starting", "Try again in a moment."),
    ("shutting down", StoreUnavailable, "the server is shutting down", ""),
    ("too many clients", StoreUnavailable, "the server takes no more connections", ""),
    ("remaining connection slots", StoreUnavailable, "the server takes no more connections", ""),
    ('option "port"', ConfigurationError, "the port is no number", _ESCAPING_HINT),
    ("Servname not supported", ConfigurationError, "the port is no number", _ESCAPING_HINT),
    ("invalid port", ConfigurationError, "the port is no number from 1 to 65535", _ESCAPING_HINT),
    ("translate host name", StoreUnavailable, "the host name is not known here", _ESCAPING_HINT),
    ("resolve", StoreUnavailable, "the host name is not known here", _ESCAPING_HINT),
    ("refused", StoreUnavailable, "nothing listens there", "Is the server running?"),
    ("No such file", StoreUnavailable, "nothing listens there", "Is the server running?"),
    ("timeout", StoreUnavailable, "the server does not answer in time", ""),
)

_UNPREPARED = frozenset({"42P01", "3F000", "42703", "42883"})
_ROLES_FOR = {
    "sealing": "amfs_otel_sealer",
    "projecting": "amfs_otel_sealer",
    "emptying the projection": "amfs_otel_sealer",
    "storing records": "amfs_otel_writer",
    "looking for records": "amfs_otel_writer",
}
"""The role that lets a user do what was refused; reading where nothing is said."""
_TRY_AGAIN = frozenset({"55P03", "57014", "40001", "40P01", "25006", "25P03", "57P01", "57P02", "57P03"})


def connect(dsn: str, *, timeout_s: float = 5.0) -> Connection:
    """Open a connection in autocommit mode that works through transaction-mode poolers.

    Nothing is kept in the session: no prepared statements, no ``SET``; transactions say READ COMMITTED themselves.

    Args:
        dsn: A connection string.
        timeout_s: Seconds per host (whole seconds, at least 2, as libpq counts).

    Raises:
        ConfigurationError: The string is no connection string, user, password, database or TLS do not fit, or the
            server is older than any that can hold the schema.
        StoreUnavailable: The server cannot be reached or does not take connections now.
    """
    failure: AmfsOtelError | None = None
    connection: Connection | None = None
    try:
        connection = psycopg.connect(
            dsn,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=max(2, math.ceil(timeout_s)),
            tcp_user_timeout=int(max(2.0, timeout_s) * 4000),
            client_encoding="UTF8",
            fallback_application_name="amfs-otel",
        )
    except psycopg.Error as error:
        failure = _refusal(error, dsn)
    if connection is None:
        # Raised here, outside the handler, so that not even the exception's context holds psycopg's text.
        raise failure or StoreUnavailable("no connection")
    _refuse_old(connection)
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    return connection


def _refuse_old(connection: Connection) -> None:
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        connection.close()
        raise ConfigurationError(
            "the server is too old",
            where="PostgreSQL",
            expected=f"version {OLDEST_SERVER // 10000} or newer",
            got=f"{version // 10000}.{version % 10000}",
        )


def _refusal(error: psycopg.Error, dsn: str) -> AmfsOtelError:
    place = place_of(dsn)
    where = f"database server {place[0]}, port {place[1]}, database {place[2] or '(default)'}" if place else "the DSN"
    if isinstance(error, psycopg.ProgrammingError):
        return ConfigurationError(
            "is not a PostgreSQL connection string",
            where="the DSN",
            expected="postgresql://user:password@host:port/database",
            hint=_ESCAPING_HINT,
        )
    text = str(error)
    for sign, kind, what, hint in _REFUSALS:
        if sign in text and (sign not in ("database", "role") or "does not exist" in text):
            return kind(what, where=where, hint=hint)
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return StoreUnavailable("the server does not answer in time", where=where)
    return StoreUnavailable("cannot be reached", where=where)


@contextlib.contextmanager
def translated(doing: str) -> Generator[None]:
    """Turn psycopg's errors inside the block into `StoreError` and its kin.

    Args:
        doing: What the block does, for the message: ``storing records``.

    Raises:
        StoreUnavailable: The connection broke, or the server asked to try again; nothing was half done.
        ConfigurationError: The schema is not there.
        StoreError: Anything else the server refused, such as a missing privilege.
    """
    try:
        yield
    except psycopg.Error as error:
        raise store_error_from(error, doing) from None


def store_error_from(error: psycopg.Error, doing: str) -> AmfsOtelError:
    """Return our error for one of psycopg's about a statement.

    Only the server's primary message is used. Its detail lines quote rows.
    """
    state = error.sqlstate or ""
    if state in _UNPREPARED:
        return ConfigurationError(
            "the database does not hold the schema amfs_otel as this version knows it",
            where=doing,
            hint=NOT_PREPARED_HINT,
        )
    if state in _TRY_AGAIN or state[:2] in ("08", "53") or (not state and isinstance(error, psycopg.OperationalError)):
        return StoreUnavailable(reason_of(error), where=doing, hint="Nothing was half done; it can be repeated.")
    hint = ""
    if state == "42501":
        hint = _grant_for(doing)
    return StoreError(reason_of(error), where=doing, hint=hint)


def _grant_for(doing: str) -> str:
    if doing == "preparing the database":
        return "Run amfs-otel init as an administrator."
    role = _ROLES_FOR.get(doing, "amfs_otel_reader")
    return f"An administrator grants it to the user of the DSN, with: GRANT {role} TO USER;"


def reason_of(error: psycopg.Error) -> str:
    """Return one line that says why, safe to log: the server's primary message and its SQLSTATE."""
    primary = error.diag.message_primary
    if primary is None:
        return "the connection broke" if isinstance(error, psycopg.OperationalError) else type(error).__name__
    return f"{primary[:200]} ({error.sqlstate})"


def set_limits(connection: Connection, *, statement_s: int = 60, lock_s: int = 5) -> None:
    """Bound the statements, locks and idle time of the transaction that is open."""
    connection.execute(
        "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),"
        " set_config('idle_in_transaction_session_timeout', '60s', true)",
        (f"{statement_s}s", f"{lock_s}s"),
    )


def one_row(
    connection: Connection, query: LiteralString, parameters: tuple[object, ...] = ()
) -> tuple[Any, ...] | None:
    """Run a query and return its first row."""
    return connection.execute(query, parameters).fetchone()
