"""A log as JSON lines, one line an entry with its record or a record without an entry (FORMAT 9).

The header's and the entry's exact bytes stand in a JSON string, binary values in hex, a part's bytes in base64.
Entries come first, in order; records without an entry follow.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.record import Part, Record
from amfs_otel.chain.verification import StoredEntry, shown_column
from amfs_otel.errors import FormatError


def line_from_entry(stored: StoredEntry) -> str:
    """Return the line of an entry with its record, without line end."""
    entry = stored.entry
    members: dict[str, Any] = {
        "entry": {
            "entry": entry.entry.decode(),
            "entry_hash": entry.entry_hash.hex(),
            "entry_mac": entry.entry_mac.hex(),
        },
        "record": None if stored.record is None else _record_members(stored.record),
    }
    if stored.columns is not None:
        members["columns"] = {name: shown_column(value) for name, value in stored.columns.items()}
    return _line(members)


def line_from_record(record: Record) -> str:
    """Return the line of a record without an entry."""
    return _line({"entry": None, "record": _record_members(record)})


def read_lines(lines: Iterable[str]) -> Iterator[StoredEntry | Record]:
    """Yield what the lines hold, in their order.

    Raises:
        FormatError: A line is damaged; the message has its number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            members = cast("dict[str, Any]", json.loads(line))
            record = None if members["record"] is None else _record(members["record"])
            placed: Any = members["entry"]
            found = record if placed is None else StoredEntry(_entry(placed), record, members.get("columns"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError("not a line of a log", where=f"line {number}", got=type(error).__name__) from error
        if found is not None:
            yield found


def _line(members: Mapping[str, Any]) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _record_members(record: Record) -> dict[str, Any]:
    return {
        "header": record.header.decode(),
        "record_hash": record.record_hash.hex(),
        "signature": record.signature.hex(),
        "commitments": [commitment.hex() for commitment in record.commitments],
        "parts": [
            {
                "number": part.number,
                "class": part.klass,
                "salt": None if part.salt is None else part.salt.hex(),
                "data": None if part.data is None else base64.b64encode(part.data).decode("ascii"),
            }
            for part in record.parts
        ],
    }


def _entry(members: Mapping[str, Any]) -> Entry:
    texts = members["entry"], members["entry_hash"], members["entry_mac"]
    return Entry(texts[0].encode(), bytes.fromhex(texts[1]), bytes.fromhex(texts[2]))


def _record(members: Mapping[str, Any]) -> Record:
    parts = tuple(
        Part(
            part["number"],
            part["class"],
            None if part["salt"] is None else bytes.fromhex(part["salt"]),
            None if part["data"] is None else base64.b64decode(part["data"], validate=True),
        )
        for part in members["parts"]
    )
    return Record(
        members["header"].encode(),
        bytes.fromhex(members["record_hash"]),
        bytes.fromhex(members["signature"]),
        tuple(bytes.fromhex(commitment) for commitment in members["commitments"]),
        parts,
    )
