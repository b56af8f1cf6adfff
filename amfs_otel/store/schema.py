"""The schema ``amfs_otel``: which state a database is in, and preparing it (`amfs-otel init`; never an agent).

The numbered files of ``schema/`` are applied in order, each once, and recorded in ``amfs_otel.schema_migration``, which
is also the mark by which a schema of that name is known to be ours. They only go forward.
"""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import LiteralString, cast

from amfs_otel.chain.genesis import genesis_record, new_log_uid
from amfs_otel.chain.keys import Key
from amfs_otel.errors import ConfigurationError, KeyUnavailable, StoreError
from amfs_otel.store import append, roles
from amfs_otel.store.announced import announced_keys
from amfs_otel.store.connect import Connection, connect, one_row, set_limits, translated
from amfs_otel.store.seal import COPY_ENTRIES, first_entry, head_of, lock_log, now_of

PREPARE_LOCK = 0x616D6674
"""Advisory lock: one preparation at a time in a database."""

MARK = """
CREATE TABLE amfs_otel.schema_migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON SCHEMA amfs_otel IS 'Decision traces of amfs-otel. The tables record, part and entry are append-only.';
COMMENT ON TABLE amfs_otel.schema_migration IS 'Which schema files of amfs-otel were applied. Marks the schema as ours.'
"""
# From the catalogue, which everybody may read: to_regclass needs USAGE on the schema.
LOOK = """
SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = 'schema_migration' AND relkind = 'r'),
       EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid)
           OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = n.oid)
FROM pg_namespace AS n WHERE n.nspname = 'amfs_otel'
"""
FIRST_ENTRY = "SELECT entry::json ->> 'log_uid' FROM amfs_otel.entry WHERE log = %s ORDER BY sequence_number LIMIT 1"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: LiteralString

    @property
    def sha256(self) -> str:
        """Hex digest of the file's text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database holds.

    Attributes:
        present: Our schema is there.
        version: Number of the newest file applied; 0 where none was.
        newest: Number of the newest file that this version of the library has.
        foreign: Something else is there under the name ``amfs_otel``.
    """

    present: bool
    version: int
    newest: int
    foreign: bool = False

    @property
    def outdated(self) -> bool:
        """It is ours and older than this library: ``amfs-otel init`` (or ``migrate``) brings it forward."""
        return self.present and self.version < self.newest


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` did.

    Attributes:
        created: This call began the log (its genesis record and entry 0).
        log_uid: Identity of the log, 32 hex digits.
        version: Of the schema now.
        notes: What could not be done, or that a person should know, one sentence each.
    """

    created: bool
    log_uid: str
    version: int = 0
    notes: list[str] = field(default_factory=list[str])


@cache
def migrations() -> tuple[Migration, ...]:
    """Return the numbered files, in order. They are package data, so their text counts as literal."""
    found: list[Migration] = []
    for file in (files("amfs_otel.store") / "schema").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match:
            text = cast("LiteralString", file.read_text(encoding="utf-8"))
            found.append(Migration(int(match[1]), match[2], text))
    return tuple(sorted(found, key=lambda one: one.number))


def state_of(connection: Connection) -> SchemaState:
    """Look at a database without changing it.

    Raises:
        StoreError: The schema is ours, but this user may not read its version.
    """
    newest = migrations()[-1].number
    with translated("looking at the schema"):
        row = one_row(connection, LOOK)
        if row is None or row == (False, False):
            return SchemaState(False, 0, newest)
        if not row[0]:
            return SchemaState(False, 0, newest, foreign=True)
        version = one_row(connection, "SELECT coalesce(max(number), 0) FROM amfs_otel.schema_migration")
    return SchemaState(True, version[0] if version else 0, newest)


def log_uid_of(connection: Connection, log: str) -> str | None:
    """Return the identity of a log, ``None`` where it was never begun."""
    with translated("reading the log's first entry"):
        row = one_row(connection, FIRST_ENTRY, (log,))
    return row[0] if row else None


def prepare(
    dsn: str, *, log: str, writer_key: Key | None, log_key: Key | None, now_ns: int, timeout_s: float = 5.0
) -> Prepared:
    """Make or bring forward the schema, the roles and a log, in one transaction. Doing it again changes nothing.

    Args:
        dsn: Connection string of a user that may create a schema (and, better, roles).
        log: Name of the log.
        writer_key: Signs the genesis record; may be ``None`` where the log exists.
        log_key: Seals it; likewise. Keys are never invented here.
        now_ns: Nanoseconds since the epoch, for the genesis record.
        timeout_s: Seconds for the connection.

    Raises:
        ConfigurationError: The DSN or the server does not fit (`connect`), the server is read-only, the schema is
            somebody else's, newer than this library, or belongs to another user.
        KeyUnavailable: The log is new and a key is missing.
        StoreUnavailable: The server cannot be reached.
        StoreError: The server refused something.
    """
    with connect(dsn, timeout_s=timeout_s) as connection, translated("preparing the database"):
        _refuse_unsuitable(connection)
        with connection.transaction():
            set_limits(connection, lock_s=30)
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (PREPARE_LOCK,))
            state = _own_state(connection)
            notes = roles.ensure_roles(connection)
            with roles.as_schema_owner(connection, create=not state.present, notes=notes) as is_owner:
                _migrate(connection, state, may_change=is_owner)
                if is_owner:
                    roles.apply_grants(connection)
                created, uid = _ensure_log(connection, log, writer_key, log_key, now_ns)
            notes += roles.grant_to_user(connection)
            notes += _key_notes(connection, log, writer_key, log_key)
    return Prepared(created, uid, state.newest, notes)


def _refuse_unsuitable(connection: Connection) -> None:
    row = one_row(connection, "SELECT current_setting('server_encoding'), pg_is_in_recovery()")
    assert row is not None
    if row[0] != "UTF8":
        raise ConfigurationError(
            "the database has another encoding",
            where="PostgreSQL",
            expected="UTF8",
            got=row[0],
            hint="Create one in UTF8.",
        )
    if row[1]:
        raise ConfigurationError("the server is a read-only standby", where="PostgreSQL", hint="Name the primary.")


def _own_state(connection: Connection) -> SchemaState:
    state = state_of(connection)
    if state.foreign:
        raise ConfigurationError(
            "holds a schema named amfs_otel that this library did not make; it was left alone",
            where="the database",
            hint="Use another database, or rename that schema.",
        )
    if state.version > state.newest:
        raise ConfigurationError(
            "the schema was made by a newer version of amfs-otel",
            where="the database",
            expected=f"schema version {state.newest} or older",
            got=state.version,
            hint="Update amfs-otel.",
        )
    return state


def _migrate(connection: Connection, state: SchemaState, *, may_change: bool) -> None:
    pending = [one for one in migrations() if one.number > state.version]
    if pending and not may_change:
        raise ConfigurationError(
            "the schema must be brought forward by its owner",
            where="the schema amfs_otel",
            expected=f"version {state.newest}",
            got=state.version,
            hint="Run amfs-otel init as its owner or as an administrator.",
        )
    if not state.present:
        connection.execute(MARK)
    for migration in pending:
        connection.execute(migration.sql)
        connection.execute(
            "INSERT INTO amfs_otel.schema_migration (number, name, sha256) VALUES (%s, %s, %s)",
            (migration.number, migration.name, migration.sha256),
        )


def _ensure_log(
    connection: Connection, log: str, writer_key: Key | None, log_key: Key | None, now_ns: int
) -> tuple[bool, str]:
    lock_log(connection, log)
    uid = log_uid_of(connection, log)
    if uid is not None:
        return False, uid
    refuse_headless(connection, log)
    if writer_key is None or log_key is None:
        missing = "writer" if writer_key is None else "log"
        raise KeyUnavailable(
            f"the log {log} is new, and beginning it needs its keys",
            where=f"{missing} key",
            hint="amfs-otel init makes them.",
        )
    uid = new_log_uid()
    record = genesis_record(log=log, log_uid=uid, writer_key=writer_key, log_key=log_key, now_ns=now_ns)
    stored = append.append(connection, [record])[0]
    if stored.outcome != "stored":
        raise StoreError("the genesis record was not stored", got=stored.reason)
    entry = first_entry(
        log=log,
        log_uid=uid,
        record=(record.record_hash, record.signature),
        log_key=log_key,
        now=now_of(connection),
    )
    with connection.cursor() as cursor, cursor.copy(COPY_ENTRIES) as copy:
        copy.set_types(["text", "bytea", "bytea"])
        copy.write_row((entry.entry.decode(), entry.entry_hash, entry.entry_mac))
    assert head_of(connection, log) is not None
    return True, uid


def refuse_headless(connection: Connection, log: str) -> None:
    """Refuse to begin a log that was begun before: its first entry was taken away, and another would cover that.

    Records alone say nothing: those of an agent may be there before their log is begun.

    Raises:
        ConfigurationError: There is a genesis record of the log. The log has no entry, or this is not asked.
    """
    row = one_row(
        connection,
        "SELECT count(*), count(*) FILTER (WHERE kind = 'genesis') FROM ONLY amfs_otel.record WHERE log = %s",
        (log,),
    )
    if row is not None and row[1]:
        raise ConfigurationError(
            f"the log {log} was begun before and its first entry is gone, so it was not begun anew",
            where="the database",
            got=f"{row[0]} records, {row[1]} of them a genesis",
            hint="See what is missing with: amfs-otel verify. Restore the database, or begin another log with --log.",
        )


def _key_notes(connection: Connection, log: str, writer_key: Key | None, log_key: Key | None) -> list[str]:
    announced = {(key.kid, key.role) for key in announced_keys(connection, log) if key.state == "add"}
    given = [(key, role) for key, role in ((writer_key, "writer"), (log_key, "log")) if key is not None]
    return [
        f"the {role} key {key.kid} is not announced by the log {log}; announced: "
        + ", ".join(sorted(kid for kid, its_role in announced if its_role == role))
        for key, role in given
        if (key.kid, role) not in announced
    ]
