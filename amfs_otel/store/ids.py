"""Finding records by a piece of their id."""

import re

from amfs_otel.store.connect import Connection

LONGEST_ANSWER = 50
LOGS = "SELECT log FROM amfs_otel.entry WHERE sequence_number = 0 ORDER BY log"
# By range for a prefix, so by the primary key; the ids are UUIDs of version 7, so the newest is the largest.
BY_PREFIX = """
SELECT id::text FROM amfs_otel.record
WHERE log = %s AND id BETWEEN %s::uuid AND %s::uuid ORDER BY id DESC LIMIT %s
"""
BY_SUFFIX = """
SELECT id::text FROM amfs_otel.record WHERE log = %s AND replace(id::text, '-', '') LIKE %s ORDER BY id DESC LIMIT %s
"""
_RECORD_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_record_id(text: str) -> bool:
    """Say whether a text is a whole record id."""
    return _RECORD_ID.fullmatch(text) is not None


def find_ids(connection: Connection, log: str, piece: str) -> list[str]:
    """Return the record ids that begin or end with a piece, newest first.

    A prefix costs a look into the primary key, a suffix a scan over all ids.

    Args:
        connection: In autocommit mode.
        log: Name of the log.
        piece: Hex digits, with or without hyphens; anything else finds nothing.
    """
    digits = piece.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{1,32}", digits):
        return []
    lowest, highest = digits.ljust(32, "0"), digits.ljust(32, "f")
    begin = connection.execute(BY_PREFIX, (log, lowest, highest, LONGEST_ANSWER)).fetchall()
    end = connection.execute(BY_SUFFIX, (log, f"%{digits}", LONGEST_ANSWER)).fetchall()
    return sorted({row[0] for row in (*begin, *end)}, reverse=True)[:LONGEST_ANSWER]
