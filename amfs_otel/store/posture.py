"""How well a database keeps what it holds: rules, triggers, owners, grants, settings.

All of this only prevents, and a superuser can undo it. What proves is the chain; so nothing here changes a verdict.
"""

from dataclasses import dataclass
from typing import Any, LiteralString

from amfs_otel.store.connect import Connection, one_row
from amfs_otel.store.roles import ROLES, existing_roles
from amfs_otel.store.schema import migrations

LEDGER = ("record", "part", "entry", "checkpoint")
RULES = frozenset(
    f"{table}_no_{operation}"
    for table in ("record", "part", "entry", "checkpoint")
    for operation in ("update", "delete")
)
TRIGGERS = frozenset(f"{table}_{what}" for table in LEDGER for what in ("no_change", "no_truncate")) | {
    "part_guarded_delete",
    "entry_links",
}
CHECKS = frozenset(
    (
        "record_hash_is_of_header",
        "record_signature_is_present",
        "record_hash_is_unique",
        "record_pkey",
        "part_pkey",
        "entry_hash_is_of_entry",
        "entry_parent_is_unique",
        "entry_record_is_unique",
        "entry_pkey",
    )
)
RULES_IN_FORCE = """
SELECT r.rulename FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
WHERE c.relnamespace = 'amfs_otel'::regnamespace AND c.relname = ANY (%s) AND r.ev_enabled = 'A'
"""
TRIGGERS_IN_FORCE = """
SELECT t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'amfs_otel'::regnamespace AND c.relname = ANY (%s)
  AND (t.tgenabled = 'A' OR t.tgname = 'entry_links' AND t.tgenabled = 'O')
"""
CONSTRAINTS_IN_FORCE = """
SELECT k.conname FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
WHERE c.relnamespace = 'amfs_otel'::regnamespace AND c.relname = ANY (%s) AND k.convalidated
"""
OWNERS = """
SELECT DISTINCT pg_get_userbyid(c.relowner), o.rolcanlogin, pg_has_role(current_user, c.relowner, 'MEMBER')
FROM pg_class AS c JOIN pg_roles AS o ON o.oid = c.relowner
WHERE c.relnamespace = 'amfs_otel'::regnamespace AND c.relname = ANY (%s)
"""
UNDER_ROW_SECURITY = """
SELECT c.relname FROM pg_class AS c
WHERE c.relnamespace = 'amfs_otel'::regnamespace AND c.relname = ANY (%s) AND c.relrowsecurity
"""
HEIRS = """
SELECT i.inhrelid::regclass::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhparent
WHERE c.relnamespace = 'amfs_otel'::regnamespace AND c.relname = ANY (%s)
"""


@dataclass(frozen=True, slots=True)
class PostureFact:
    """One thing about the database.

    Attributes:
        code: RULES, TRIGGERS, CHECKS, OWNER, ROLES, PARTS, ROW_SECURITY, INHERITANCE, MIGRATIONS, CHECKSUMS,
            DURABILITY or SUPERUSER.
        ok: It is as it should be.
        detail: One sentence.
    """

    code: str
    ok: bool
    detail: str


def posture(connection: Connection) -> list[PostureFact]:
    """Return every fact, in a fixed order. Reads the catalogue and the settings, no ledger row."""
    return [
        _all_there("RULES", "rules that refuse changes", RULES, _names(connection, RULES_IN_FORCE)),
        _all_there("TRIGGERS", "triggers that refuse changes", TRIGGERS, _names(connection, TRIGGERS_IN_FORCE)),
        _all_there("CHECKS", "hash checks and unique keys", CHECKS, _names(connection, CONSTRAINTS_IN_FORCE)),
        _owner(connection),
        _roles(connection),
        _parts(connection),
        _row_security(connection),
        _inheritance(connection),
        _migrations(connection),
        _checksums(connection),
        _durability(connection),
        _superuser(connection),
    ]


def _ledger_rows(connection: Connection, query: LiteralString) -> list[tuple[Any, ...]]:
    return connection.execute(query, (list(LEDGER),)).fetchall()


def _names(connection: Connection, query: LiteralString) -> set[str]:
    return {row[0] for row in _ledger_rows(connection, query)}


def _all_there(code: str, what: str, expected: frozenset[str], found: set[str]) -> PostureFact:
    missing = sorted(expected - found)
    if missing:
        return PostureFact(code, False, f"{what}: missing or switched off: {', '.join(missing)}")
    return PostureFact(code, True, f"{what}: all {len(expected)} in force")


def _owner(connection: Connection) -> PostureFact:
    rows = _ledger_rows(connection, OWNERS)
    for owner, can_login, is_member in rows:
        if can_login:
            return PostureFact(
                "OWNER", False, f"the ledger belongs to {owner}, who can log in and switch its rules off"
            )
        if is_member and not _is_superuser(connection):
            return PostureFact(
                "OWNER", False, f"this user is a member of {owner} and can switch the ledger's rules off"
            )
    return PostureFact("OWNER", True, f"the ledger belongs to {', '.join(row[0] for row in rows)}, who cannot log in")


def _roles(connection: Connection) -> PostureFact:
    return _all_there("ROLES", "roles", frozenset(ROLES), set(existing_roles(connection)))


def _parts(connection: Connection) -> PostureFact:
    if "amfs_otel_writer" not in existing_roles(connection):
        return PostureFact(
            "PARTS", False, "there is no writer role, so a writer that cannot read content cannot be made"
        )
    row = one_row(connection, "SELECT has_any_column_privilege('amfs_otel_writer', 'amfs_otel.part', 'SELECT')")
    if row == (True,):
        return PostureFact("PARTS", False, "the writer role can read parts")
    return PostureFact("PARTS", True, "the writer role cannot read parts")


def _row_security(connection: Connection) -> PostureFact:
    rows = _ledger_rows(connection, UNDER_ROW_SECURITY)
    if rows:
        return PostureFact("ROW_SECURITY", False, f"row security is on for {', '.join(row[0] for row in rows)}")
    return PostureFact("ROW_SECURITY", True, "no row security hides ledger rows")


def _inheritance(connection: Connection) -> PostureFact:
    rows = _ledger_rows(connection, HEIRS)
    if rows:
        return PostureFact("INHERITANCE", False, f"tables inherit from the ledger: {', '.join(row[0] for row in rows)}")
    return PostureFact("INHERITANCE", True, "no table inherits from the ledger")


def _migrations(connection: Connection) -> PostureFact:
    rows = connection.execute("SELECT number, sha256 FROM amfs_otel.schema_migration").fetchall()
    applied = dict(rows)
    known = {one.number: one.sha256 for one in migrations()}
    other = sorted(number for number, digest in applied.items() if known.get(number, digest) != digest)
    missing = sorted(known.keys() - applied.keys())
    if missing:
        return PostureFact("MIGRATIONS", False, f"the schema lacks {missing}: run amfs-otel init")
    if other:
        return PostureFact("MIGRATIONS", False, f"files that differ from those of this version were applied: {other}")
    return PostureFact("MIGRATIONS", True, f"schema version {max(applied, default=0)}")


def _checksums(connection: Connection) -> PostureFact:
    on = _setting(connection, "data_checksums") == "on"
    return PostureFact("CHECKSUMS", on, f"data checksums are {'on' if on else 'off: a failing disk goes unnoticed'}")


def _durability(connection: Connection) -> PostureFact:
    names = ("fsync", "full_page_writes", "synchronous_commit")
    off = [name for name in names if _setting(connection, name) == "off"]
    if off:
        return PostureFact(
            "DURABILITY", False, f"a power loss can take back what was acknowledged: {', '.join(off)} off"
        )
    return PostureFact("DURABILITY", True, "commits survive a power loss")


def _superuser(connection: Connection) -> PostureFact:
    if _is_superuser(connection):
        return PostureFact("SUPERUSER", False, "this user is a superuser: nothing in the database stops it")
    return PostureFact("SUPERUSER", True, "this user is not a superuser")


def _is_superuser(connection: Connection) -> bool:
    return one_row(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == (True,)


def _setting(connection: Connection, name: str) -> str:
    row = one_row(connection, "SELECT current_setting(%s)", (name,))
    return row[0] if row else ""
