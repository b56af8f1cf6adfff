"""Values of plain JSON types, told from all others in one walk: most content is of them, and can take a short way."""

from typing import Any

from amfs_otel.capture.marks import KEY_CHARACTERS, is_harmless

DEPTH = 24
ITEMS = 200_000
"""A value with more items is not walked to its end: shared references could unfold without one."""
LARGEST_INTEGER = (1 << 53) - 1


def texts_of(value: Any) -> str | None:
    """Every string in `value`, one after another with line breaks between them.

    The keys of its objects are among them, with a colon after each, but for those that no rule of `marks` would mask.

    `None` unless all of it is of exact built-in JSON types, no deeper than `DEPTH`, of at most `ITEMS`, and means the
    same after normalising: no integer beyond 2^53, no infinite number, no key that begins with `$`, no NUL, no lone
    surrogate.
    """
    texts: list[str] = []
    keys: set[str] = set()
    if not _collected(value, texts, keys, DEPTH, [ITEMS]):
        return None
    texts += [f"{key}:" for key in keys if not (len(key) <= KEY_CHARACTERS and is_harmless(key))]
    joined = "\n".join(texts)
    if joined.isascii():
        return None if "\0" in joined else joined
    try:
        joined.encode()
    except UnicodeEncodeError:
        return None
    return None if "\0" in joined else joined


def _collected(value: Any, texts: list[str], keys: set[str], depth: int, budget: list[int]) -> bool:
    """Adds the strings of `value` to `texts` and the keys of objects to `keys`.

    Returns:
        Whether all of it was plain, within the depth and the budget of items.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        texts.append(value)
        return True
    if kind is dict or kind is list:
        budget[0] -= len(value)
        if depth <= 0 or budget[0] < 0:
            return False
        items = _members_collected if kind is dict else _items_collected
        return items(value, texts, keys, depth - 1, budget)
    if kind is int:
        return -LARGEST_INTEGER <= value <= LARGEST_INTEGER
    return value is None or kind is bool or (kind is float and value - value == 0)


def _items_collected(items: list[Any], texts: list[str], keys: set[str], depth: int, budget: list[int]) -> bool:
    for item in items:
        if type(item) is str:
            texts.append(item)
        elif not _collected(item, texts, keys, depth, budget):
            return False
    return True


def _members_collected(
    members: dict[Any, Any], texts: list[str], keys: set[str], depth: int, budget: list[int]
) -> bool:
    for key, item in members.items():
        if type(key) is not str or key[:1] == "$":
            return False
        keys.add(key)
        if type(item) is str:
            texts.append(item)
        elif not _collected(item, texts, keys, depth, budget):
            return False
    return True
