"""Parts: the erasable bytes that a record commits to (FORMAT 4.1)."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from amfs_otel.chain.hashes import part_commitment
from amfs_otel.errors import FormatError

PartClass = Literal["s", "i", "d", "m", "h"]
"""s skeleton, i strings, d decision text, m message text, h keyed digests."""

SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class PartInput:
    """A part that goes into `record.make_record`.

    Attributes:
        klass: Its class letter.
        data: Its bytes; None if policy withholds them, then salt and commitment are given.
        salt: 32 random bytes; None = drawn when the record is made.
        commitment: c_i, if it was computed before with this salt; computed if None.
    """

    klass: PartClass
    data: bytes | None
    salt: bytes | None = None
    commitment: bytes | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part as stored. Salt and data are None once erased; data alone is None where policy withheld it."""

    number: int
    klass: PartClass
    salt: bytes | None
    data: bytes | None


_DRAWN_AT_ONCE = 64
_salts: list[bytes] = []
"""Random bytes drawn and not used yet: asking the kernel costs more than all else that is done for a part."""

# A forked child would use its parent's salts once more.
os.register_at_fork(after_in_child=_salts.clear)


def new_salt() -> bytes:
    """Return 32 random bytes, never the same twice. Safe from any thread."""
    try:
        return _salts.pop()
    except IndexError:
        drawn = secrets.token_bytes(SALT_BYTES * _DRAWN_AT_ONCE)
        _salts.extend(drawn[start : start + SALT_BYTES] for start in range(SALT_BYTES, len(drawn), SALT_BYTES))
        return drawn[:SALT_BYTES]


def stored_parts(parts: Sequence[PartInput]) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
    """Return the parts as stored, numbered from 1, and their commitments.

    Raises:
        FormatError: A withheld part lacks salt or commitment, or a salt has another length.
    """
    stored: list[Part] = []
    commitments: list[bytes] = []
    for number, given in enumerate(parts, 1):
        salt = new_salt() if given.salt is None else given.salt
        if len(salt) != SALT_BYTES:
            raise FormatError("a salt has 32 bytes", where=f"part {number}", got=f"{len(salt)} bytes")
        if given.salt is not None and given.commitment is not None:
            commitments.append(given.commitment)
        elif given.data is not None:
            commitments.append(part_commitment(salt, given.data))
        else:
            raise FormatError("a withheld part needs its salt and commitment", where=f"part {number}")
        stored.append(Part(number, given.klass, salt, given.data))
    return tuple(stored), tuple(commitments)
