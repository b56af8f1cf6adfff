"""Checkpoints: a log's size and root, signed with a public key (FORMAT 7.3).

The text is a C2SP tlog-checkpoint (c2sp.org/tlog-checkpoint) of three lines, in a C2SP signed note
(c2sp.org/signed-note) with Ed25519 signatures, so any tool of that family can check it. Pure; keeping and publishing
checkpoints is the caller's.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from amfs_otel.chain.keys import Ed25519Key, PublicKey
from amfs_otel.chain.merkle import HASH_BYTES
from amfs_otel.chain.merkle import root as tree_root
from amfs_otel.errors import FormatError

_ED25519_NOTE = b"\x01"
_MARK = "\u2014 "


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line: the signer's name, the 4 byte key hash, the signature."""

    name: str
    key_hash: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A log's head as signed.

    Attributes:
        origin: ``amfs-otel/<log>/<log_uid>``.
        size: Number of entries.
        root: RFC 6962 root over them, 32 bytes.
        signatures: As found on the note; empty for an unsigned one.
    """

    origin: str
    size: int
    root: bytes
    signatures: tuple[NoteSignature, ...] = ()

    @property
    def body(self) -> str:
        """The signed text: three lines, each with its line end."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode('ascii')}\n"

    def is_signed_by(self, key: PublicKey, name: str | None = None) -> bool:
        """Say whether the note has a valid signature of this key.

        Args:
            key: Ed25519.
            name: The signer's name on the note; None = the origin.
        """
        signer = name or self.origin
        wanted = _key_hash(signer, key)
        return any(
            found.name == signer and found.key_hash == wanted and key.verifies(self.body.encode(), found.signature)
            for found in self.signatures
        )


def origin_of(log: str, log_uid: str) -> str:
    """Return a log's origin line."""
    return f"amfs-otel/{log}/{log_uid}"


def make_checkpoint(*, log: str, log_uid: str, size: int, root: bytes, key: Ed25519Key, name: str | None = None) -> str:
    """Return a signed note over a log's head.

    Args:
        log: Name of the log.
        log_uid: Its identity, hex.
        size: Number of entries, at least 1.
        root: RFC 6962 root over them.
        key: The checkpoint key.
        name: The signer's name; None = the origin.

    Raises:
        FormatError: Size or root are impossible, or the name cannot stand in a note.
    """
    if size < 1 or len(root) != HASH_BYTES:
        raise FormatError("a checkpoint is over at least one entry and a root of 32 bytes", where="FORMAT 7.3")
    checkpoint = Checkpoint(origin_of(log, log_uid), size, root)
    signer = name or checkpoint.origin
    if not signer or "+" in signer or any(character.isspace() for character in signer):
        raise FormatError("a signer's name has neither white space nor a plus sign", where="FORMAT 7.3")
    blob = _key_hash(signer, key.public) + key.sign(checkpoint.body.encode())
    return f"{checkpoint.body}\n{_MARK}{signer} {base64.b64encode(blob).decode('ascii')}\n"


def parse_checkpoint(note: str) -> Checkpoint:
    """Return what a signed note says. Nothing is verified; ask `Checkpoint.is_signed_by`.

    Raises:
        FormatError: It is no signed note over a checkpoint of three lines.
    """
    body, found, signatures = note.partition("\n\n")
    lines = body.split("\n")
    if not found or len(lines) != 3 or not signatures.endswith("\n"):
        raise FormatError("not a signed note over three lines", where="FORMAT 7.3")
    origin, size, encoded = lines
    if not origin or not size.isascii() or not size.isdecimal() or size != str(int(size[:19])):
        raise FormatError("not a checkpoint", where="FORMAT 7.3")
    root = _decoded(encoded)
    if len(root) != HASH_BYTES:
        raise FormatError("a root has 32 bytes", where="FORMAT 7.3", got=f"{len(root)} bytes")
    return Checkpoint(origin, int(size), root, tuple(map(_signature, signatures[:-1].split("\n"))))


def public_key_text(name: str, key: PublicKey) -> str:
    """Return a C2SP verifier key: ``name+hash+base64``, for other tools of the family."""
    encoded = base64.b64encode(_ED25519_NOTE + key.public).decode("ascii")
    return f"{name}+{_key_hash(name, key).hex()}+{encoded}"


def disagreement(one: Checkpoint, two: Checkpoint) -> bool:
    """Say whether two checkpoints, both signed, prove a fork: one origin and size, two roots (FORMAT 8.1, FORK)."""
    return one.origin == two.origin and one.size == two.size and one.root != two.root


def checkpoint_matches(checkpoint: Checkpoint, entry_hashes: Sequence[bytes]) -> bool:
    """Say whether the log begins with the entries that a checkpoint fixed; false if the log is shorter. O(size)."""
    return len(entry_hashes) >= checkpoint.size and tree_root(entry_hashes[: checkpoint.size]) == checkpoint.root


def _key_hash(name: str, key: PublicKey) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519_NOTE + key.public).digest()[:4]


def _signature(line: str) -> NoteSignature:
    words = line.split(" ")
    data = _decoded(words[2]) if len(words) == 3 else b""
    if words[0] != _MARK.strip() or len(data) < 5 or not words[1]:
        raise FormatError("not a signature line of a signed note", where="FORMAT 7.3")
    return NoteSignature(words[1], data[:4], data[4:])


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise FormatError("not base64", where="FORMAT 7.3") from None
    if base64.b64encode(data).decode("ascii") != text:
        raise FormatError("not canonical base64", where="FORMAT 7.3")
    return data
