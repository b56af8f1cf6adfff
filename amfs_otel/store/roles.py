"""Roles and ownership: NOLOGIN groups that a site grants to its own users.

The owner of the schema can switch rules and triggers off, so it is a role nobody logs in as. Where the preparing user
may not create roles, everything goes on under that user, and what is missing is said.
"""

import contextlib
from collections.abc import Generator
from functools import cache
from importlib.resources import files
from typing import LiteralString, cast

import psycopg
from psycopg import sql

from amfs_otel.errors import StoreError
from amfs_otel.store.connect import Connection, one_row

OWNER = "amfs_otel_owner"
ROLES: tuple[LiteralString, ...] = (
    "amfs_otel_owner",
    "amfs_otel_writer",
    "amfs_otel_sealer",
    "amfs_otel_eraser",
    "amfs_otel_verifier",
    "amfs_otel_reader",
)
FOR_THE_PREPARING_USER: tuple[LiteralString, ...] = ("amfs_otel_writer", "amfs_otel_sealer", "amfs_otel_reader")


@cache
def grants_sql() -> LiteralString:
    """Return the grants, which may be run any number of times."""
    return cast("LiteralString", (files("amfs_otel.store") / "schema" / "grants.sql").read_text(encoding="utf-8"))


def existing_roles(connection: Connection) -> frozenset[str]:
    """Return which of our roles the server knows."""
    rows = connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY (%s)", (list(ROLES),)).fetchall()
    return frozenset(row[0] for row in rows)


def ensure_roles(connection: Connection) -> list[str]:
    """Create the roles that are missing; return a note if that was not allowed."""
    missing = [role for role in ROLES if role not in existing_roles(connection)]
    refused: list[str] = []
    for role in missing:
        try:
            with connection.transaction():
                connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(role)))
        except psycopg.errors.InsufficientPrivilege:
            refused.append(role)
        except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            # Roles belong to the whole server: another database's preparation was quicker.
            continue
    if not refused:
        return []
    missing_now = ", ".join(refused)
    return [f"this user may not create roles, so these are missing: {missing_now}; an administrator can run init again"]


@contextlib.contextmanager
def as_schema_owner(connection: Connection, *, create: bool, notes: list[str]) -> Generator[bool]:
    """Act as the owner of the schema inside the block; gives ``False`` where this user cannot.

    Args:
        connection: With an open transaction.
        create: Make the schema, owned by the owner role where that is possible, else by this user.
        notes: Gets a sentence where it was not.
    """
    owner = _owner_of_schema(connection)
    if owner is None and create:
        owner = OWNER if OWNER in existing_roles(connection) else _user(connection)
        with _membership(connection, owner) as possible:
            if possible:
                _create_schema(connection, owner)
        if not possible:
            notes.append(
                f"this user may not act as {OWNER}, so it owns the schema itself and could switch its rules off"
            )
            owner = _user(connection)
            _create_schema(connection, owner)
    if owner is None:
        yield False
        return
    with _acting_as(connection, owner) as possible:
        yield possible


def _create_schema(connection: Connection, owner: str) -> None:
    try:
        connection.execute(sql.SQL("CREATE SCHEMA amfs_otel AUTHORIZATION {}").format(sql.Identifier(owner)))
    except psycopg.errors.InsufficientPrivilege:
        raise StoreError(
            "this user may not create a schema in the database",
            where="preparing the database",
            hint="GRANT CREATE ON DATABASE … to it, or run amfs-otel init as an administrator.",
        ) from None


@contextlib.contextmanager
def _acting_as(connection: Connection, role: str) -> Generator[bool]:
    if role == _user(connection):
        yield True
        return
    with _membership(connection, role) as possible:
        if possible:
            connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        try:
            yield possible
        finally:
            if possible and connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                connection.execute("RESET ROLE")


@contextlib.contextmanager
def _membership(connection: Connection, role: str) -> Generator[bool]:
    """Be a member of the role inside the block: as it is, or for that long, as one who created it may be."""
    kind = "SET" if connection.info.server_version >= 160000 else "MEMBER"
    row = one_row(connection, "SELECT pg_has_role(current_user, %s, %s)", (role, kind))
    if row == (True,):
        yield True
        return
    try:
        with connection.transaction():
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))
    except psycopg.errors.InsufficientPrivilege:
        yield False
        return
    yield True
    connection.execute(sql.SQL("REVOKE {} FROM CURRENT_USER").format(sql.Identifier(role)))


def apply_grants(connection: Connection) -> None:
    """Give the existing roles their rights on what there is. As the owner."""
    connection.execute(grants_sql())


def grant_to_user(connection: Connection) -> list[str]:
    """Make the preparing user a writer, sealer and reader, so that its own DSN works for agents and the CLI."""
    row = one_row(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    if row == (True,):
        return []
    there = existing_roles(connection)
    refused: list[str] = []
    for role in FOR_THE_PREPARING_USER:
        if role not in there or one_row(connection, "SELECT pg_has_role(current_user, %s, 'USAGE')", (role,)) == (
            True,
        ):
            continue
        try:
            with connection.transaction():
                connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))
        except psycopg.errors.InsufficientPrivilege:
            refused.append(role)
    if not refused:
        return []
    names = ", ".join(refused)
    user = sql.Identifier(_user(connection)).as_string(connection)
    return [f"this user was not granted {names}; an administrator can, with: GRANT {names} TO {user};"]


def _owner_of_schema(connection: Connection) -> str | None:
    row = one_row(connection, "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'amfs_otel'")
    return row[0] if row else None


def _user(connection: Connection) -> str:
    row = one_row(connection, "SELECT current_user")
    assert row is not None
    return row[0]
