"""A record: parts, commitments, header, hashes, signature (FORMAT 3 and 4).

A record says what happened and is signed by the process that saw it. It has no position in a log, so it is final
before any database is reached. Its bytes are made once, stored and hashed as stored; nothing here rebuilds them.
Objects are immutable and thread-safe.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from amfs_otel.chain.canonical import jcs, timestamp_from_ns
from amfs_otel.chain.hashes import SIGNATURE_DOMAIN, content_hash, part_commitment, record_hash
from amfs_otel.chain.header import loose_header, read_header
from amfs_otel.chain.keys import SigningKey
from amfs_otel.chain.parts import SALT_BYTES, Part, PartClass, PartInput, stored_parts
from amfs_otel.chain.record_id import new_record_id
from amfs_otel.errors import FormatError

__all__ = [
    "Part",
    "PartClass",
    "PartInput",
    "Record",
    "Ref",
    "content_hash",
    "make_record",
    "new_record_id",
    "part_commitment",
    "record_from_bytes",
    "record_hash",
    "record_to_bytes",
]
_MAGIC = b"AOR1"


@dataclass(frozen=True, slots=True)
class Ref:
    """A record's statement about another.

    Attributes:
        rel: ``outcome_of | amends | continues | approves``.
        record: The other record's id.
        hash: Its record_hash, hex; None where it is not known.
    """

    rel: str
    record: str
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A signed record, as stored. The properties read the header and raise `FormatError` where it is damaged.

    Attributes:
        header: Exact bytes of the header.
        record_hash: 32 bytes, as stored.
        signature: As stored.
        commitments: c_1 … c_n, 32 bytes each.
        parts: The parts that are there; erased ones may be absent.
    """

    header: bytes
    record_hash: bytes
    signature: bytes
    commitments: tuple[bytes, ...]
    parts: tuple[Part, ...]
    _head: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]], init=False, repr=False, compare=False)

    @property
    def head(self) -> dict[str, Any]:
        """The header as a dict, parsed once. Treat it as read-only."""
        if not self._head:
            members = loose_header(self.header)
            if not members:
                raise FormatError("the header cannot be read", where="FORMAT 3.1")
            self._head.append(members)
        return self._head[0]

    def _text(self, name: str) -> str:
        value = self.head.get(name)
        if not isinstance(value, str):
            raise FormatError(f"the header holds no {name}", where="FORMAT 3.1")
        return value

    @property
    def record_id(self) -> str:
        """UUIDv7 in its canonical text."""
        return self._text("id")

    @property
    def kind(self) -> str:
        """One of `header.KINDS`."""
        return self._text("kind")

    @property
    def log(self) -> str:
        """Name of the log the record is for."""
        return self._text("log")

    @property
    def session(self) -> str:
        """128 random bits, hex."""
        return self._text("session")

    @property
    def trace(self) -> str | None:
        """OpenTelemetry trace id, 32 hex digits, or None."""
        return self.head.get("trace")

    @property
    def span(self) -> str | None:
        """Id of the root span, 16 hex digits, or None."""
        return self.head.get("span")

    @property
    def content_hash(self) -> str:
        """Hex of the hash over all commitments."""
        return self._text("content_hash")

    @property
    def signing_key_id(self) -> str:
        """Kid of the writer key, 16 hex digits."""
        return self._text("signing_key_id")

    @property
    def captured_at(self) -> str:
        """When the record was closed by its writer's clock: RFC 3339, microseconds, Z."""
        return self._text("captured_at")

    @property
    def classes(self) -> str:
        """One class letter a part."""
        return self._text("classes")

    @property
    def withheld(self) -> tuple[int, ...]:
        """Numbers of the parts that policy withheld."""
        return tuple(self.head.get("withheld", ()))

    @property
    def refs(self) -> tuple[Ref, ...]:
        """What it says about other records."""
        return tuple(Ref(item["rel"], item["record"], item["hash"]) for item in self.head.get("refs", ()))


def make_record(
    *,
    kind: str,
    log: str,
    record_id: str,
    session: str,
    parts: Sequence[PartInput],
    key: SigningKey,
    captured_at_ns: int,
    trace: str | None = None,
    span: str | None = None,
    refs: Sequence[Ref] = (),
    erases: Iterable[tuple[str, int]] | None = None,
    erase_range: Mapping[str, str] | None = None,
    key_fact: Mapping[str, Any] | None = None,
    genesis: Mapping[str, Any] | None = None,
) -> Record:
    """Make and sign a record (FORMAT 3 and 4).

    Args:
        kind: One of `header.KINDS`.
        log: Name of the log it is for.
        record_id: From `new_record_id`.
        session: 128 random bits, hex.
        parts: In order; `skeleton.compose` makes them.
        key: The writer's key.
        captured_at_ns: Nanoseconds since the epoch.
        trace: OpenTelemetry trace id, hex.
        span: Id of the root span, hex.
        refs: Statements about other records.
        erases: (record id, part number) pairs, for kind ``erasure``.
        erase_range: ``{"before": time, "class": letters}``, for kind ``erasure``.
        key_fact: From `genesis.key_fact`, for kind ``key``.
        genesis: From `genesis.genesis_fact`, for kind ``genesis``.

    Raises:
        FormatError: The header would not be one of this format.
    """
    stored, commitments = stored_parts(parts)
    members: dict[str, Any] = {
        "v": 1,
        "log": log,
        "id": record_id,
        "kind": kind,
        "schema": f"amfs-otel/{kind}/1",
        "session": session,
        "trace": trace,
        "span": span,
        "content_hash": content_hash(commitments).hex(),
        "parts": len(stored),
        "classes": "".join(part.klass for part in stored),
        "withheld": [part.number for part in stored if part.data is None],
        "captured_at": timestamp_from_ns(captured_at_ns),
        "alg": key.alg,
        "signing_key_id": key.kid,
    }
    if refs:
        members["refs"] = [{"rel": ref.rel, "record": ref.record, "hash": ref.hash} for ref in refs]
    if erases is not None:
        members["erases"] = [[record, part] for record, part in erases]
    for name, fact in (("erase_range", erase_range), ("key", key_fact), ("genesis", genesis)):
        if fact is not None:
            members[name] = dict(fact)
    header = jcs(members)
    read_header(header)
    digest = record_hash(header)
    return Record(header, digest, key.sign(SIGNATURE_DOMAIN + digest), commitments, stored)


def record_to_bytes(record: Record) -> bytes:
    """Return the wire form of a record, for the spool (FORMAT 4.7); every byte is kept as it stands, damaged or not."""
    pieces = [_MAGIC, struct.pack(">I", len(record.header)), record.header]
    pieces += [struct.pack(">HH", len(record.record_hash), len(record.signature)), record.record_hash, record.signature]
    pieces += [struct.pack(">I", len(record.commitments)), *record.commitments]
    pieces.append(struct.pack(">I", len(record.parts)))
    for part in record.parts:
        flags = (part.salt is not None) | (part.data is not None) << 1
        data = part.data or b""
        pieces += [struct.pack(">IcBQ", part.number, part.klass.encode(), flags, len(data)), part.salt or b"", data]
    return b"".join(pieces)


def record_from_bytes(data: bytes) -> Record:
    """Return the record in a wire form.

    Raises:
        FormatError: The bytes are no whole wire form of one record.
    """
    reader = _Reader(data)
    if reader.take(4) != _MAGIC:
        raise FormatError("not a record's wire form", where="FORMAT 4.7")
    header = reader.take(*reader.unpack(">I"))
    hash_length, signature_length = reader.unpack(">HH")
    digest, signature = reader.take(hash_length), reader.take(signature_length)
    (count,) = reader.unpack(">I")
    flat = reader.take(32 * count)
    commitments = tuple(flat[start : start + 32] for start in range(0, len(flat), 32))
    parts = tuple(reader.part() for _ in range(reader.unpack(">I")[0]))
    if reader.offset != len(data):
        raise FormatError("bytes follow after the record", where="FORMAT 4.7")
    return Record(header, digest, signature, commitments, parts)


class _Reader:
    """A cursor over wire bytes."""

    __slots__ = ("_data", "offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offset = 0

    def take(self, length: int) -> bytes:
        end = self.offset + length
        if end > len(self._data):
            raise FormatError("the record's wire form ends early", where="FORMAT 4.7")
        piece = self._data[self.offset : end]
        self.offset = end
        return piece

    def unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def part(self) -> Part:
        number, letter, flags, length = self.unpack(">IcBQ")
        klass = letter.decode("latin-1")
        if klass not in "sidmh" or flags > 3 or (length and not flags & 2):
            raise FormatError("a part of the record is malformed", where="FORMAT 4.7")
        salt = self.take(SALT_BYTES) if flags & 1 else None
        data = self.take(length) if flags & 2 else None
        return Part(number, cast("PartClass", klass), salt, data)
