"""The formulas of the format: every domain and every hash, in one place (FORMAT 4 and 6.2).

``H`` is SHA-256; each use has a domain of its own, so bytes of one kind never stand for another.
"""

from collections.abc import Sequence
from hashlib import sha256

PART_DOMAIN = b"amfs-otel/v1/part\0"
CONTENT_DOMAIN = b"amfs-otel/v1/content\0"
RECORD_DOMAIN = b"amfs-otel/v1/record\0"
SIGNATURE_DOMAIN = b"amfs-otel/v1/signature\0"
ENTRY_DOMAIN = b"amfs-otel/v1/entry\0"


def part_commitment(salt: bytes, data: bytes) -> bytes:
    """Return c_i, 32 bytes (FORMAT 4.1)."""
    digest = sha256(PART_DOMAIN + salt + len(data).to_bytes(8, "big"))
    digest.update(data)  # apart, so that a large text is not copied
    return digest.digest()


def content_hash(commitments: Sequence[bytes]) -> bytes:
    """Return the hash over all commitments, 32 bytes (FORMAT 4.2)."""
    return sha256(CONTENT_DOMAIN + len(commitments).to_bytes(4, "big") + b"".join(commitments)).digest()


def record_hash(header: bytes) -> bytes:
    """Return the hash of a header, 32 bytes (FORMAT 4.3)."""
    return sha256(RECORD_DOMAIN + header).digest()


def entry_hash(entry: bytes) -> bytes:
    """Return the hash of an entry's bytes, 32 bytes: link and RFC 6962 leaf in one (FORMAT 6.2)."""
    return sha256(b"\x00" + entry).digest()
