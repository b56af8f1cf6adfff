"""An entry: a record's place in the log, made by the sealer (FORMAT 6).

The entry hash is at once the link to the next entry and the leaf of the RFC 6962 tree. An entry's bytes have one
fixed shape, read by one regular expression: a match is the proof that they are canonical and complete. Objects are
immutable and thread-safe.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

from amfs_otel.chain.canonical import jcs
from amfs_otel.chain.hashes import ENTRY_DOMAIN, entry_hash
from amfs_otel.chain.header import LOG_NAME, TIMESTAMP
from amfs_otel.chain.keys import SigningKey
from amfs_otel.errors import FormatError

FIRST_PARENT = bytes(32)
"""``parent_hash`` of entry 0."""

_ENTRY = re.compile(
    rf'{{"log":"(?P<log>{LOG_NAME.pattern})"'
    r',"log_key_id":"(?P<log_key_id>[0-9a-f]{16})"'
    r',"log_uid":"(?P<log_uid>[0-9a-f]{32})"'
    r',"parent_hash":"(?P<parent_hash>[0-9a-f]{64})"'
    r',"record_hash":"(?P<record_hash>[0-9a-f]{64})"'
    rf',"sealed_at":"(?P<sealed_at>{TIMESTAMP.pattern})"'
    r',"sequence_number":(?P<sequence_number>0|[1-9][0-9]{0,14})'
    r',"signature_hash":"(?P<signature_hash>[0-9a-f]{64})"'
    r',"v":1}'
)


class EntryFields(NamedTuple):
    """The members of an entry, as the texts that stand in it."""

    log: str
    log_key_id: str
    log_uid: str
    parent_hash: str
    record_hash: str
    sealed_at: str
    sequence_number: str
    signature_hash: str


def read_entry(entry: bytes) -> EntryFields:
    """Return the members of an entry, checked against the whole grammar (FORMAT 6.1).

    Raises:
        FormatError: The bytes are not the canonical form of an entry of this format.
    """
    match = _ENTRY.fullmatch(entry.decode("ascii", "replace"))
    if match is None:
        raise FormatError("the entry's members are not those of the format, in canonical form", where="FORMAT 6.1")
    return EntryFields(*match.groups())


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as stored. The properties read its bytes and raise `FormatError` where they are damaged.

    Attributes:
        entry: Exact bytes.
        entry_hash: 32 bytes, as stored.
        entry_mac: As stored.
    """

    entry: bytes
    entry_hash: bytes
    entry_mac: bytes

    @property
    def fields(self) -> EntryFields:
        """The members, read strictly; about 2 µs a call."""
        return read_entry(self.entry)

    @property
    def sequence_number(self) -> int:
        """Its position, from 0, without gaps."""
        return int(self.fields.sequence_number)

    @property
    def parent_hash(self) -> bytes:
        """Entry hash of the entry before; 32 zero bytes for entry 0."""
        return bytes.fromhex(self.fields.parent_hash)

    @property
    def record_hash(self) -> bytes:
        """Hash of the record it places, 32 bytes."""
        return bytes.fromhex(self.fields.record_hash)

    @property
    def signature_hash(self) -> bytes:
        """SHA-256 of that record's signature."""
        return bytes.fromhex(self.fields.signature_hash)

    @property
    def log(self) -> str:
        """Name of the log."""
        return self.fields.log

    @property
    def log_uid(self) -> str:
        """Identity of the log, drawn by its genesis: 32 hex digits."""
        return self.fields.log_uid

    @property
    def sealed_at(self) -> str:
        """The database's time under the seal lock, never before that of the entry before: RFC 3339, microseconds, Z."""
        return self.fields.sealed_at

    @property
    def log_key_id(self) -> str:
        """Kid of the log key, 16 hex digits."""
        return self.fields.log_key_id


def make_entry(
    *,
    log: str,
    log_uid: str,
    sequence_number: int,
    parent_hash: bytes,
    record: tuple[bytes, bytes],
    sealed_at: str,
    log_key: SigningKey,
) -> Entry:
    """Make the entry that places a record (FORMAT 6).

    Args:
        log: Name of the log.
        log_uid: Its identity, 32 hex digits.
        sequence_number: Position, from 0.
        parent_hash: Entry hash of the entry before; `FIRST_PARENT` for 0.
        record: The record's (record_hash, signature).
        sealed_at: RFC 3339 with six digits and Z.
        log_key: A key announced with role ``log``.

    Raises:
        FormatError: A member is not of the format.
    """
    record_hash, signature = record
    data = jcs(
        {
            "v": 1,
            "log": log,
            "log_uid": log_uid,
            "sequence_number": sequence_number,
            "parent_hash": parent_hash.hex(),
            "record_hash": record_hash.hex(),
            "signature_hash": hashlib.sha256(signature).hexdigest(),
            "sealed_at": sealed_at,
            "log_key_id": log_key.kid,
        }
    )
    read_entry(data)
    digest = entry_hash(data)
    return Entry(data, digest, log_key.sign(ENTRY_DOMAIN + digest))
