"""Content that is JSON as it stands: most of it is, and its canonical text is made in one walk and one pass in C."""

from typing import Any

from amfs_otel.chain.jcs import MAX_SAFE_INTEGER, encode_plain, is_plain_float

DEPTH = 24
ITEMS = 200_000
"""A value with more items is not walked to its end: shared references could unfold without one."""


def canonical_if_plain(value: Any) -> str | None:
    """The JCS text of `value`, if it is of exact built-in JSON types and normalising would leave it as it is.

    `None` for all else, and for what is rare: whole or extreme floats, keys outside ASCII, values beyond the limits.
    Every string of `value` stands in the text; only quotation marks, backslashes and control characters are escaped.
    """
    if not _is_plain(value, DEPTH, [ITEMS]):
        return None
    text = encode_plain(value)
    if "\\u0000" in text:
        return None
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
    return text


def _is_plain(value: Any, depth: int, budget: list[int]) -> bool:
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is dict or kind is list:
        budget[0] -= len(value)
        if depth <= 0 or budget[0] < 0:
            return False
        return _are_members_plain(value, depth - 1, budget) if kind is dict else _are_plain(value, depth - 1, budget)
    if kind is int:
        return -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    if kind is float:
        return is_plain_float(value)
    return kind is str or kind is bool or value is None


def _are_plain(items: list[Any], depth: int, budget: list[int]) -> bool:
    for item in items:  # noqa: SIM110  as in `jcs`
        if type(item) is not str and not _is_plain(item, depth, budget):
            return False
    return True


def _are_members_plain(members: dict[Any, Any], depth: int, budget: list[int]) -> bool:
    for key, item in members.items():
        if type(key) is not str or not key.isascii() or key[:1] == "$":
            return False
        if type(item) is not str and not _is_plain(item, depth, budget):
            return False
    return True
