"""Keys: where their bytes come from, how they are named, how they sign (FORMAT 5).

A key id (kid) is derived from the key, so a wrong key file is *named*, never reported as tampering. There is no
default key anywhere. Objects are immutable and may be used from any thread and after a fork. A secret never appears
in ``repr`` or in an error.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from amfs_otel.errors import ConfigurationError, KeyUnavailable

MIN_KEY_BYTES = 32
"""A shorter key is refused, whatever it is written in."""

HMAC_SHA256 = "HMAC-SHA256"
ED25519 = "Ed25519"

_KID_DOMAIN = b"amfs-otel/v1/kid\0"
_DIGEST_DOMAIN = b"amfs-otel/v1/digest\0"
_BLOCK_BYTES = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))


def kid_of(key: bytes) -> str:
    """Return the key id of an HMAC secret or of an Ed25519 public key: 16 hex digits (FORMAT 5.2)."""
    return hashlib.sha256(_KID_DOMAIN + key).digest()[:8].hex()


class SigningKey(Protocol):
    """What can sign a record or an entry."""

    @property
    def kid(self) -> str:
        """Key id, 16 hex digits."""
        ...

    @property
    def alg(self) -> str:
        """`HMAC_SHA256` or `ED25519`."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature over the message."""
        ...


class VerifyingKey(Protocol):
    """What can check a signature."""

    @property
    def kid(self) -> str:
        """Key id, 16 hex digits."""
        ...

    @property
    def alg(self) -> str:
        """`HMAC_SHA256` or `ED25519`."""
        ...

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Say whether the signature over the message is this key's."""
        ...


@dataclass(frozen=True, slots=True)
class Key:
    """An HMAC-SHA256 secret.

    The two padded hash states are prepared once: signing is then about five times as fast as ``hmac.new`` for the
    short messages here.

    Raises:
        ConfigurationError: The secret is shorter than 32 bytes.
    """

    secret: bytes = field(repr=False)
    kid: str = field(init=False)
    _inner: Any = field(init=False, repr=False, compare=False)
    _outer: Any = field(init=False, repr=False, compare=False)

    alg: str = field(init=False, default=HMAC_SHA256)

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_KEY_BYTES:
            raise ConfigurationError(
                "the signing key is too short",
                expected=f"at least {MIN_KEY_BYTES} bytes after decoding",
                got=f"{len(self.secret)} bytes",
                hint="Make one with `amfs-otel keygen`.",
            )
        block = self.secret if len(self.secret) <= _BLOCK_BYTES else hashlib.sha256(self.secret).digest()
        block = block.ljust(_BLOCK_BYTES, b"\0")
        object.__setattr__(self, "kid", kid_of(self.secret))
        object.__setattr__(self, "_inner", hashlib.sha256(block.translate(_INNER_PAD)))
        object.__setattr__(self, "_outer", hashlib.sha256(block.translate(_OUTER_PAD)))

    def sign(self, message: bytes) -> bytes:
        """Return HMAC-SHA256(secret, message), 32 bytes (RFC 2104)."""
        inner = self._inner.copy()
        inner.update(message)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Say whether the signature is HMAC-SHA256(secret, message); the comparison takes constant time."""
        return hmac.compare_digest(self.sign(message), signature)

    def digest_key(self) -> bytes:
        """Return the key of the keyed digests that are made under this writer key (FORMAT 4.6), 32 bytes."""
        return self.sign(_DIGEST_DOMAIN)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key (RFC 8032), 32 bytes.

    Raises:
        ConfigurationError: The key has another length.
    """

    public: bytes
    kid: str = field(init=False)
    alg: str = field(init=False, default=ED25519)

    def __post_init__(self) -> None:
        if len(self.public) != 32:
            raise ConfigurationError("an Ed25519 public key has 32 bytes", got=f"{len(self.public)} bytes")
        object.__setattr__(self, "kid", kid_of(self.public))

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Say whether the Ed25519 signature holds; any malformed signature or key is simply false."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class Ed25519Key:
    """An Ed25519 private key, made from a 32 byte seed (RFC 8032).

    Raises:
        ConfigurationError: The seed has another length.
    """

    secret: bytes = field(repr=False)
    public: PublicKey = field(init=False)
    _private: Any = field(init=False, repr=False, compare=False)

    alg: str = field(init=False, default=ED25519)

    def __post_init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if len(self.secret) != 32:
            raise ConfigurationError("an Ed25519 seed has 32 bytes", got=f"{len(self.secret)} bytes")
        private = Ed25519PrivateKey.from_private_bytes(self.secret)
        object.__setattr__(self, "_private", private)
        object.__setattr__(self, "public", PublicKey(private.public_key().public_bytes_raw()))

    @property
    def kid(self) -> str:
        """Key id of the public half."""
        return self.public.kid

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._private.sign(message)


class KeyRing:
    """The keys a verifier holds, by key id.

    Args:
        keys: Any number; the same key twice counts once.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[VerifyingKey] = ()) -> None:
        self._keys: dict[str, VerifyingKey] = {key.kid: key for key in keys}

    def get(self, kid: str) -> VerifyingKey | None:
        """Return the key with this id, or None."""
        return self._keys.get(kid)

    def kids(self) -> tuple[str, ...]:
        """Return the ids of the keys held, sorted."""
        return tuple(sorted(self._keys))

    def __len__(self) -> int:
        return len(self._keys)


def key_from_text(text: str | bytes, *, where: str = "") -> Key:
    """Return the HMAC key written in a setting or a file (FORMAT 5.1).

    ASCII whitespace around it is stripped; ``hex:`` and ``base64:`` are decoded, anything else is taken as its UTF-8
    bytes.

    Args:
        text: The setting's value or the file's bytes.
        where: The setting or path, for the message.

    Raises:
        ConfigurationError: It cannot be decoded or has fewer than 32 bytes.
    """
    return Key(_secret_from_text(text, where))


def ed25519_key_from_text(text: str | bytes, *, where: str = "") -> Ed25519Key:
    """Return the Ed25519 key whose 32 byte seed is written as `key_from_text` says.

    Raises:
        ConfigurationError: It cannot be decoded or has not exactly 32 bytes.
    """
    return Ed25519Key(_secret_from_text(text, where))


def key_from_file(path: str | Path, *, named_by: str = "") -> Key:
    """Return the HMAC key in a file.

    Args:
        path: The file.
        named_by: The setting that names it, for messages.

    Raises:
        KeyUnavailable: The file cannot be read.
        ConfigurationError: Its content is no key.
    """
    where = f"{named_by} ({path})" if named_by else str(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise KeyUnavailable(
            "the key file cannot be read",
            where=where,
            got=error.strerror or "an error",
            hint="Check its path, owner and mode.",
        ) from error
    return key_from_text(data, where=where)


def generate_key_text() -> str:
    """Return the text of a new random key: ``hex:`` and 64 hex digits."""
    return "hex:" + secrets.token_hex(32)


def _secret_from_text(text: str | bytes, where: str) -> bytes:
    raw = (text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text).strip(b" \t\n\r\v\f")
    try:
        if raw.startswith(b"hex:"):
            secret = binascii.unhexlify(raw[4:])
        elif raw.startswith(b"base64:"):
            secret = base64.b64decode(raw[7:], validate=True)
        else:
            secret = raw
    except (binascii.Error, ValueError):
        kind = raw.split(b":", 1)[0].decode("ascii")
        # The decoder's own message may quote the key: it is neither shown nor chained.
        raise ConfigurationError(
            f"the key is not valid {kind}", where=where, hint="Was it copied whole? `amfs-otel keygen` makes a new one."
        ) from None
    if len(secret) < MIN_KEY_BYTES:
        raise ConfigurationError(
            "the key is too short",
            where=where,
            expected=f"at least {MIN_KEY_BYTES} bytes after decoding",
            got=f"{len(secret)} bytes",
            hint="Make one with `amfs-otel keygen`.",
        )
    return secret
