"""A stored record -> a `Document`: its facts with identifiers as strings and texts in place.

The skeleton of a record points to its other parts; here they are put together, and what is withheld becomes a `Text`
that says why. Pure: whoever reads the store hands in the record and what it knows about erasures.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from amfs_otel.chain.canonical import clean_text
from amfs_otel.chain.entry import Entry
from amfs_otel.chain.record import Record
from amfs_otel.chain.skeleton import Decomposed, ResolvedText, decompose
from amfs_otel.errors import FormatError
from amfs_otel.graph.texts import Stored, Text, members, word
from amfs_otel.model import FIELDS, FieldClass

JSON_MEDIA = "application/json"

NAMES_PART = 2
"""Up to here a record's parts hold its structure and names; the texts follow."""

_NUMBERS = frozenset((int, float, bool))
"""What stands for itself; half of a record's facts, so they are not even asked."""
_INTEGER = re.compile(r"-?[0-9]{1,40}")


@dataclass(frozen=True, slots=True)
class Document:
    """A record with its facts.

    Attributes:
        record_id: UUIDv7.
        kind: ``decision``, ``outcome``, ``amendment``, ``gap``, ``erasure``, …
        head: The header's members.
        facts: The facts tree (docs/trace-document.md): structure as it is, identifiers as strings, texts and erased
            identifiers as `Text`. Empty where the skeleton is erased or the kind has none.
        record: The record itself.
        entry: Its place in the log, None until sealed.
    """

    record_id: str
    kind: str
    head: Mapping[str, Any]
    facts: Mapping[str, Any]
    record: Record = field(repr=False)
    entry: Entry | None = None

    @property
    def sequence_number(self) -> int | None:
        """Its position in the log, None until sealed."""
        return None if self.entry is None else self.entry.sequence_number

    @property
    def parent_hash(self) -> str | None:
        """Hex of the entry before, None until sealed."""
        return None if self.entry is None else self.entry.parent_hash.hex()

    @property
    def trace(self) -> str | None:
        """OpenTelemetry trace id, 32 hex digits."""
        return word(self.head.get("trace"))

    @property
    def session(self) -> str | None:
        """128 random bits, hex: one run of one agent."""
        return word(self.head.get("session"))

    @property
    def captured_at(self) -> str | None:
        """When the writer closed it: RFC 3339."""
        return word(self.head.get("captured_at"))

    def named_by(self, relation: str) -> str | None:
        """Id of the record that this one refers to as `relation`, None where there is none."""
        for ref in self.head.get("refs") or ():
            if members(ref).get("rel") == relation:
                return word(members(ref).get("record"))
        return None


def document_from_record(
    record: Record, entry: Entry | None = None, erased_by: Mapping[int, str] | None = None
) -> Document:
    """Returns the document of a record.

    Args:
        record: As stored; parts may be missing.
        entry: Its entry, if it is sealed.
        erased_by: Part number → id of the erasure record that named it, as far as known.

    Raises:
        FormatError: Header or parts cannot be read; `amfs-otel verify` says why.
    """
    try:
        parts = decompose(record)
        facts = _Facts(record, parts, erased_by or {}).tree(parts.facts)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise FormatError("the record's parts cannot be read", where=_where(record), hint="See `verify`.") from error
    return Document(record.record_id, record.kind, record.head, members(facts), record, entry)


def _where(record: Record) -> str:
    return f"record {record.head.get('id')}"


class _Facts:
    """Puts texts in place in one facts tree."""

    def __init__(self, record: Record, parts: Decomposed, erased_by: Mapping[int, str]) -> None:
        self._classes = record.classes
        self._parts = parts
        self._erased_by = erased_by
        self._record_id = record.record_id
        self._stored = {part.number: part for part in record.parts}
        self._ledger = word(members(members(parts.facts).get("policy")).get("ledger"))
        self._erased_name = Text(None, "i", "erased", erased_by=erased_by.get(NAMES_PART))

    def tree(self, stored: Any, key: str = "") -> Any:
        """The tree with texts in place; `key` is the field that holds it, for identifiers that were erased.

        Times in ns are beyond what JSON numbers hold exactly, so canonical bytes spell them ``{"$int": "…"}``.
        """
        if isinstance(stored, str):
            # Printable text, which nearly all is, holds nothing that would have to be replaced.
            return stored if stored.isprintable() else clean_text(stored)[0]
        if isinstance(stored, dict):
            node = cast("dict[str, Any]", stored)
            index = node.get("$t")
            if isinstance(index, int):
                return self._text(self._parts.texts[index])
            if len(node) == 1 and _INTEGER.fullmatch(str(node.get("$int"))):
                return int(node["$int"])
            return {name: value if type(value) in _NUMBERS else self.tree(value, name) for name, value in node.items()}
        if isinstance(stored, list):
            items = cast("list[Any]", stored)
            return [item if type(item) in _NUMBERS else self.tree(item, key) for item in items]
        if stored is None and self._parts.names_erased and FIELDS.get(key) is FieldClass.NAME:
            return self._erased_name
        return stored

    def _text(self, text: ResolvedText) -> Text:
        erased = text.withheld_reason == "erased"
        return Text(
            value=None if text.data is None else _value(text.data, text.media),
            klass=self._classes[text.part - 1],
            reason=text.withheld_reason,
            size=text.length,
            commitment=text.commitment,
            ledger=self._ledger,
            erased_by=self._erased_by.get(text.part) if erased else None,
            stored=None if text.data is None else Stored(self._record_id, self._stored[text.part]),
        )


def _value(data: bytes, media: str) -> Any:
    text = data.decode("utf-8", "replace")
    if media != JSON_MEDIA:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
