"""The encoder of RFC 8785 (JSON Canonicalization Scheme), strict: it takes JSON and refuses everything else.

``json``'s C encoder gives the same bytes when every key is ASCII, integers are within ±(2^53 - 1) and floats are such
that Python writes them as ECMAScript does; `is_plain` says whether that holds. `encode` covers the rest.
"""

import json
import math
from collections.abc import Iterable
from typing import Any

from amfs_otel.errors import FormatError

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader takes exactly."""

encode_plain = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
"""Encode a tree for which `is_plain` holds; it does not stand inside itself, or looking would not have ended."""

_encode_string = json.JSONEncoder(ensure_ascii=False).encode


def is_plain(value: Any) -> bool:
    """Say whether the C encoder's output for this tree equals JCS."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    if kind is float:
        return is_plain_float(value)
    if kind is list or kind is tuple:
        return _are_plain(value)
    if kind is dict:
        for key in value:
            if type(key) is not str or not key.isascii():
                return False
        return _are_plain(value.values())
    return False


def is_plain_float(value: float) -> bool:
    """Say whether Python writes this float as ECMAScript does: with a fraction and without an exponent."""
    return 1e-4 <= abs(value) < 1e16 and not value.is_integer()


def _are_plain(items: Iterable[Any]) -> bool:
    # Most are strings: the look at the type costs less than a call, and this loop less than a generator.
    for item in items:  # noqa: SIM110
        if type(item) is not str and not is_plain(item):
            return False
    return True


def encode(value: Any) -> str:
    """Return the JCS text of one JSON value.

    Raises:
        FormatError: The value, or one within it, is not JSON within RFC 8785.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return _encode_string(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return int.__repr__(value)
    if kind is float:
        return _encode_float(value)
    if kind is list or kind is tuple:
        return "[" + ",".join(map(encode, value)) + "]"
    if kind is dict:
        return _encode_object(value)
    raise FormatError("a value is not JSON within RFC 8785", where="JCS", got=f"type {kind.__name__}")


def _encode_object(value: dict[Any, Any]) -> str:
    if not all(type(key) is str for key in value):
        raise FormatError("an object's key is not a string", where="JCS")
    # RFC 8785 3.2.3: keys are ordered by UTF-16 code units, which differs from code points beyond the BMP.
    ordered = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    return "{" + ",".join(f"{_encode_string(key)}:{encode(value[key])}" for key in ordered) + "}"


def _encode_float(value: float) -> str:
    """Encode a finite double as ECMAScript's Number::toString does (RFC 8785 3.2.2.3)."""
    if not math.isfinite(value):
        raise FormatError("NaN and infinity are not JSON", where="JCS")
    if value == 0:
        return "0"
    mantissa, _, exponent_text = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = int(exponent_text or 0) + len(whole)
    digits = whole + ("" if fraction == "0" else fraction)
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    return ("-" if value < 0 else "") + _layout(digits, exponent)


def _layout(digits: str, exponent: int) -> str:
    """Lay out 0.DIGITS x 10^exponent."""
    if 0 < exponent <= 21:
        if len(digits) <= exponent:
            return digits.ljust(exponent, "0")
        return f"{digits[:exponent]}.{digits[exponent:]}"
    if -6 < exponent <= 0:
        return "0." + "0" * -exponent + digits
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{tail}e{exponent - 1:+d}"
