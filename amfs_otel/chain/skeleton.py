"""A facts tree <-> the parts of a record: skeleton, strings, texts, keyed digests (FORMAT 4.4 to 4.6).

The facts tree is JSON-able. In it an identifier that the application chose is ``{"$n": text}`` and a free text is
``{"$t": index}`` into a list of `PreparedText`. `compose` moves the identifiers into part 2 and points to the texts
by part number, so that a person's data can be erased while the skeleton still verifies. This module knows no field
names: which value is an identifier or a text is the caller's table.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from amfs_otel.chain.canonical import canonical_bytes, clean_text, jcs, normalised
from amfs_otel.chain.hashes import part_commitment
from amfs_otel.chain.jcs import MAX_SAFE_INTEGER, encode_plain, is_plain
from amfs_otel.chain.keys import Key
from amfs_otel.chain.parts import PartInput, new_salt
from amfs_otel.chain.record import Record

FieldClass = Literal["structure", "name", "decision", "message"]
"""What a field of the facts is: skeleton, an identifier for part 2, decision text (d) or message text (m)."""

DIGEST_BYTES = 16

_FIRST_TEXT_PART = 3


class PreparedText(NamedTuple):
    """A free text as it enters a record.

    Attributes:
        klass: ``d`` decision text, ``m`` message text.
        media: Media type of the bytes.
        length_bytes: Length of the text, also where it is withheld.
        salt: 32 random bytes.
        commitment: c_i over the text.
        data: The bytes; None if policy withholds them.
        digest: Keyed digest, 16 bytes, if one is wanted.
    """

    klass: Literal["d", "m"]
    media: str
    length_bytes: int
    salt: bytes
    commitment: bytes
    data: bytes | None
    digest: bytes | None


@dataclass(frozen=True, slots=True)
class ResolvedText:
    """A free text as it is read back.

    Attributes:
        data: The bytes, None if withheld.
        media: Media type.
        length: Length in bytes, known even if withheld.
        withheld_reason: ``policy`` or ``erased``, None if the bytes are there.
        part: Its part number.
        commitment: c_i, hex.
        digest: Keyed digest, hex; None if there is none or it was erased.
    """

    data: bytes | None
    media: str
    length: int
    withheld_reason: Literal["policy", "erased"] | None
    part: int
    commitment: str
    digest: str | None


@dataclass(frozen=True, slots=True)
class Decomposed:
    """A record's facts, read back.

    Attributes:
        facts: The tree, with identifiers as plain strings (None where erased) and texts as ``{"$t": index}``; None if
            the skeleton is erased.
        texts: What the ``$t`` indices mean: every text part, in order.
        names_erased: Part 2 was erased.
    """

    facts: Any
    texts: list[ResolvedText]
    names_erased: bool


def prepare_text(
    data: bytes, klass: Literal["d", "m"], media: str, keep: bool, digest_key: bytes | None
) -> PreparedText:
    """Return a text with its salt, commitment and, if a key is given, keyed digest.

    Args:
        data: The masked bytes.
        klass: ``d`` or ``m``.
        media: Media type.
        keep: False = the bytes are withheld by policy and end here.
        digest_key: `keys.Key.digest_key()` of the writer, or None for no digest.
    """
    salt = new_salt()
    digest = _keyed(digest_key).sign(data)[:DIGEST_BYTES] if digest_key is not None else None
    return PreparedText(klass, media, len(data), salt, part_commitment(salt, data), data if keep else None, digest)


@functools.lru_cache(maxsize=4)
def _keyed(digest_key: bytes) -> Key:
    """The key with its hash states prepared: each digest takes a third of the time."""
    return Key(digest_key)


def compose(facts: Any, texts: Sequence[PreparedText]) -> list[PartInput]:
    """Return the parts that hold a facts tree: skeleton, strings, one for each text, digests if there are any.

    Args:
        facts: The prepared tree. Anything in it that JSON cannot hold is normalised, never refused.
        texts: What its ``{"$t": index}`` mean, in part order.

    Raises:
        IndexError: A ``$t`` names no text.
    """
    writer = _Writer(texts)
    tree = writer.tree(facts)
    skeleton = encode_plain(tree).encode() if writer.plain else jcs(tree)
    digests = {
        str(number): text.digest.hex() for number, text in enumerate(texts, _FIRST_TEXT_PART) if text.digest is not None
    }
    parts = [PartInput("s", skeleton), PartInput("i", jcs(list(writer.strings)))]
    parts += [PartInput(text.klass, text.data, text.salt, text.commitment) for text in texts]
    if digests:
        parts.append(PartInput("h", jcs(digests)))
    return parts


class _Writer:
    """Moves the identifiers and texts of one facts tree out of it.

    Attributes:
        strings: The identifiers met, and the index of each in part 2.
        plain: For all that was met ``json``'s encoder gives JCS.
    """

    __slots__ = ("_texts", "plain", "strings")

    def __init__(self, texts: Sequence[PreparedText]) -> None:
        self.strings: dict[str, int] = {}
        self.plain = True
        self._texts = texts

    def tree(self, tree: Any) -> Any:
        if isinstance(tree, dict):
            return self._members(cast("dict[str, Any]", tree))
        if isinstance(tree, list | tuple):
            return [self.tree(item) for item in cast("list[Any]", tree)]
        return tree if _stands(tree) else self._leaf(tree)

    def _members(self, members: dict[str, Any]) -> Any:
        if len(members) == 1:
            ((name, value),) = members.items()
            if name == "$n":
                return self._identifier(value)
            if name == "$t":
                prepared: PreparedText = self._texts[cast("int", value)]
                return {"$part": _FIRST_TEXT_PART + value, "len": prepared.length_bytes, "media": prepared.media}
        self.plain = self.plain and all(map(str.isascii, members))
        return {name: value if _stands(value) else self.tree(value) for name, value in members.items()}

    def _identifier(self, value: Any) -> dict[str, int]:
        text = value if type(value) is str else canonical_bytes(value).decode()
        return {"$s": self.strings.setdefault(clean_text(text)[0], len(self.strings))}

    def _leaf(self, value: Any) -> Any:
        found = normalised(value)
        if type(found) is float and found.is_integer() and abs(found) <= MAX_SAFE_INTEGER:
            return int(found)  # the same bytes in JCS, and `json`'s fast encoder writes them
        self.plain = self.plain and is_plain(found)
        return found


def _stands(value: Any) -> bool:
    """Whether normalising leaves a leaf as it is, and JCS of it is plain: most are so."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return value.isascii() and "\0" not in value
    return kind is bool or value is None or (kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER)


def decompose(record: Record) -> Decomposed:
    """Return the facts of a record that `compose` made, as far as its parts are still there.

    Raises:
        ValueError: A part is no JSON; verify the record to learn why.
    """
    data = {part.number: part.data for part in record.parts}
    names = _json_part(data, 2)
    reader = _Reader(names)
    facts = reader.tree(_json_part(data, 1))
    return Decomposed(facts, _resolved_texts(record, data, reader.described), names_erased=names is None)


def _json_part(data: dict[int, bytes | None], number: int) -> Any:
    stored = data.get(number)
    return None if stored is None else json.loads(stored)


def _resolved_texts(
    record: Record, data: dict[int, bytes | None], described: dict[int, tuple[int, str]]
) -> list[ResolvedText]:
    classes, withheld = record.classes, frozenset(record.withheld)
    last = len(classes)
    digests: dict[str, str] = (_json_part(data, last) or {}) if classes.endswith("h") else {}
    texts: list[ResolvedText] = []
    for number in range(_FIRST_TEXT_PART, last + 1):
        if classes[number - 1] == "h":
            continue
        text = data.get(number)
        reason: Literal["policy", "erased"] | None = None
        if text is None:
            reason = "policy" if number in withheld else "erased"
        length, media = described.get(number, (len(text or b""), ""))
        commitment = record.commitments[number - 1].hex()
        texts.append(ResolvedText(text, media, length, reason, number, commitment, digests.get(str(number))))
    return texts


class _Reader:
    """Resolves the references of one skeleton, and collects what it says about the texts."""

    def __init__(self, names: list[str] | None) -> None:
        self.described: dict[int, tuple[int, str]] = {}
        self._names = names

    def tree(self, stored: Any) -> Any:
        if isinstance(stored, list):
            return [self.tree(item) for item in cast("list[Any]", stored)]
        if not isinstance(stored, dict):
            return stored
        members = cast("dict[str, Any]", stored)
        if len(members) == 1 and "$s" in members:
            return None if self._names is None else self._names[int(members["$s"])]
        if "$part" in members:
            number: int = members["$part"]
            self.described[number] = members["len"], members["media"]
            return {"$t": number - _FIRST_TEXT_PART}
        return {name: self.tree(value) for name, value in members.items()}
