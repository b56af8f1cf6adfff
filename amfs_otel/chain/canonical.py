"""Canonical bytes: RFC 8785 (JCS) behind a normaliser that never raises and never loses a value (FORMAT 2).

`canonical_bytes` is for values that an application gave us; `jcs` is strict and for values that we made. Bytes are
made once, stored and hashed as stored; nothing here is used to rebuild bytes in order to verify them.

Foreign code is run only where there is no other way (``__repr__`` of an unknown type); it is bounded and its
exceptions become a marker. Iterators and generators are never consumed. Cost: one walk, then the C encoder of
``json`` where its output equals JCS (no float, ASCII keys), else our own encoder.
"""

from datetime import UTC, datetime
from typing import Any

from amfs_otel.chain.jcs import encode, encode_plain, is_plain
from amfs_otel.chain.normalise import Normaliser, cleaned
from amfs_otel.errors import FormatError


def canonical_bytes(value: Any) -> bytes:
    """Return the canonical bytes of any Python value: normalised, then JCS, UTF-8. Never raises an ``Exception``."""
    try:
        normaliser = Normaliser()
        tree = normaliser.tree(value)
        text = encode_plain(tree) if normaliser.plain else encode(tree)
        return text.encode()
    except (RecursionError, MemoryError):
        # The caller stood at its own limit; the record is kept and says what was lost.
        return b'{"$cut":"resources"}'


def normalised(value: Any) -> Any:
    """Return the JSON-able tree that stands for any Python value (FORMAT 2.2). Never raises an ``Exception``."""
    try:
        return Normaliser().tree(value)
    except (RecursionError, MemoryError):
        return {"$cut": "resources"}


def jcs(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a value that is JSON already.

    Args:
        value: None, bool, int within ±(2^53 - 1), finite float, str without lone surrogates, list or tuple, dict with
            str keys.

    Raises:
        FormatError: The value is anything else.
    """
    try:
        return (encode_plain(value) if is_plain(value) else encode(value)).encode()
    except UnicodeEncodeError:
        raise FormatError("a string holds a lone surrogate", where="JCS") from None


def clean_text(text: str) -> tuple[str, int]:
    """Return a text with lone surrogates and NUL replaced by U+FFFD, and how many were replaced."""
    return cleaned(text)


def timestamp_from_ns(ns: int) -> str:
    """Return nanoseconds since the epoch as RFC 3339, UTC, six digits and Z; finer digits are cut, not rounded.

    Raises:
        FormatError: Outside the years 1 to 9999.
    """
    seconds, rest = divmod(ns, 1_000_000_000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise FormatError("a time lies outside the years 1 to 9999", got=f"{ns} ns") from None
    return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}.{rest // 1000:06}Z"


def ns_from_timestamp(text: str) -> int:
    """Return nanoseconds since the epoch of a time that `timestamp_from_ns` wrote.

    Raises:
        FormatError: It is no such time.
    """
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        raise FormatError("not a time", expected="RFC 3339 with six digits and Z") from None
    whole = moment.replace(microsecond=0)
    return (int(whole.timestamp()) * 1_000_000 + moment.microsecond) * 1000
