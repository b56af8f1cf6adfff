"""Three forgeries on copies of the log, made as the database's superuser, who can switch every rule off."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_OFF = """
ALTER TABLE amfs_otel.{table}
    DISABLE TRIGGER ALL, DISABLE RULE {table}_no_update, DISABLE RULE {table}_no_delete
"""
_ON = """
ALTER TABLE amfs_otel.{table}
    ENABLE TRIGGER ALL, ENABLE ALWAYS RULE {table}_no_update, ENABLE ALWAYS RULE {table}_no_delete
"""
_TABLES = ("part", "record", "entry")

_CHANGE_A_BYTE = """
UPDATE amfs_otel.part AS p SET bytes = set_byte(p.bytes, 1, (get_byte(p.bytes, 1) + 1) %% 256)
FROM amfs_otel.record AS r JOIN amfs_otel.entry AS e ON e.record_hash = r.record_hash
WHERE e.log = %(log)s AND e.sequence_number = %(at)s AND p.record = r.id
    AND p.number = (SELECT max(number) FROM amfs_otel.part WHERE record = r.id AND octet_length(bytes) > 1)
"""
_DELETE_PARTS = """
DELETE FROM amfs_otel.part USING amfs_otel.record AS r JOIN amfs_otel.entry AS e ON e.record_hash = r.record_hash
WHERE e.log = %(log)s AND e.sequence_number = %(at)s AND part.record = r.id
"""
_DELETE_RECORD = """
DELETE FROM amfs_otel.record USING amfs_otel.entry AS e
WHERE e.log = %(log)s AND e.sequence_number = %(at)s AND record.record_hash = e.record_hash
"""
_DELETE_ENTRY = "DELETE FROM amfs_otel.entry WHERE log = %(log)s AND sequence_number = %(at)s"
_DATE_BACK = """
UPDATE amfs_otel.entry AS e
SET entry = forged.text, entry_hash = sha256('\\x00'::bytea || convert_to(forged.text, 'UTF8'))
FROM (
    SELECT entry_hash, replace(entry, sealed_at, (left(sealed_at, 4)::int - 1)::text || substr(sealed_at, 5)) AS text
    FROM (SELECT entry, entry_hash, entry::json ->> 'sealed_at' AS sealed_at FROM amfs_otel.entry
          WHERE log = %(log)s AND sequence_number = %(at)s) AS original
) AS forged
WHERE e.entry_hash = forged.entry_hash
"""


@dataclass(frozen=True, slots=True)
class Forgery:
    """One way to forge a log.

    Attributes:
        name: Last part of the copy's database name.
        title: What the forger does, with ``{at}`` for the sequence number.
        statements: What is run with rules and triggers off; ``%(log)s`` and ``%(at)s`` are given.
    """

    name: str
    title: str
    statements: tuple[LiteralString, ...]


FORGERIES = (
    Forgery("altered", "one byte of a text in record #{at} is changed", (_CHANGE_A_BYTE,)),
    Forgery(
        "deleted",
        "record #{at} and its entry are deleted, as if it had never happened",
        (_DELETE_PARTS, _DELETE_RECORD, _DELETE_ENTRY),
    ),
    Forgery("rewritten", "entry #{at} is dated back a year, and its hash computed anew", (_DATE_BACK,)),
)


@contextmanager
def copies(dsn: str) -> Generator["Copier"]:
    """A maker of copies of a database; what it made is dropped at the end.

    Args:
        dsn: Enters as a superuser.

    Raises:
        psycopg.Error: The server refused.
    """
    with psycopg.connect(make_conninfo(dsn, dbname="template1"), autocommit=True) as connection:
        copier = Copier(dsn, connection)
        try:
            yield copier
        finally:
            copier.drop()


class Copier:
    """Copies one database on its own server."""

    def __init__(self, dsn: str, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        self._dsn = dsn
        self._connection = connection
        self._made: list[str] = []

    def forged(self, forgery: Forgery, log: str, at: int) -> str:
        """Make a copy, forge it, and return its connection string.

        Raises:
            psycopg.Error: The server refused.
        """
        name = f"amfs_otel_demo_{forgery.name}"
        self._drop(name)
        source = conninfo_to_dict(self._dsn)["dbname"]
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(str(source)))
        self._connection.execute(statement)
        self._made.append(name)
        dsn = make_conninfo(self._dsn, dbname=name)
        with psycopg.connect(dsn) as connection:
            forge(connection, forgery, log, at)
        return dsn

    def drop(self) -> None:
        """Drop what was made."""
        while self._made:
            self._drop(self._made.pop())

    def _drop(self, name: str) -> None:
        self._connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def forge(connection: "psycopg.Connection[tuple[object, ...]]", forgery: Forgery, log: str, at: int) -> None:
    """Commit a forgery, in one transaction: everything that guards the tables is off for that long.

    Args:
        connection: Of a superuser, to a database that may be spoilt.
        forgery: Which one.
        log: Name of the log.
        at: Sequence number.

    Raises:
        psycopg.Error: The server refused.
        RuntimeError: Nothing was forged.
    """
    for table in _TABLES:
        connection.execute(sql.SQL(_OFF).format(table=sql.SQL(table)))
    for statement in forgery.statements:
        if connection.execute(statement, {"log": log, "at": at}).rowcount == 0:
            raise RuntimeError(f"nothing was forged: {forgery.name}")
    for table in _TABLES:
        connection.execute(sql.SQL(_ON).format(table=sql.SQL(table)))


def refusal(dsn: str) -> str:
    """Try to change a text as a superuser with everything on, and return what the database says."""
    with psycopg.connect(dsn) as connection:
        try:
            connection.execute("UPDATE amfs_otel.part SET bytes = NULL")
        except psycopg.Error as error:
            return error.diag.message_primary or type(error).__name__
    return "nobody refused"
