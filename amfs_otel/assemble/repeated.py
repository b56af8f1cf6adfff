"""What a conversation sends again with each request, its older messages and its tools, made into text once."""

import marshal
from collections.abc import Callable
from typing import Any

from amfs_otel.assemble.plain_json import canonical_if_plain

LONG = 1 << 16
"""What takes long, in characters: making and reading through it costs milliseconds."""
REMEMBERED_CHARACTERS = 1 << 19
LONGEST = 1 << 17
"""A longer item is not for here."""


class RepeatedItems:
    """Canonical texts of lists whose items have mostly been met before. Not safe in threads."""

    def __init__(self) -> None:
        self._texts: dict[bytes, str] = {}
        self._characters = 0

    def text(self, items: list[Any], leaves: Callable[[str], bool], before_long: Callable[[], None]) -> str | None:
        """The text that `canonical_if_plain` gives of `items`; `None` where it gives none, or one to be masked.

        Args:
            items: Any values.
            leaves: Whether there is nothing to mask in a text; always the same function.
            before_long: Called once where the items are `LONG` together.
        """
        texts: list[str] = []
        room = LONG
        for item in items:
            text = self._text_of(item, leaves)
            if text is None:
                return None
            texts.append(text)
            was, room = room, room - len(text)
            if room < 0 <= was:
                before_long()
        return f"[{','.join(texts)}]"

    def _text_of(self, item: Any, leaves: Callable[[str], bool]) -> str | None:
        try:
            # Only built-in types have such bytes, equal ones mean equal values, and shared parts do not unfold.
            key = marshal.dumps(item)
        except ValueError:
            return None
        known = self._texts.get(key)
        if known is None:
            known = canonical_if_plain(item)
            if known is None or len(known) > LONGEST or not leaves(known):
                return None
            self._remember(key, known)
        return known

    def _remember(self, key: bytes, text: str) -> None:
        self._characters += len(key) + len(text)
        if self._characters > REMEMBERED_CHARACTERS:
            self._texts.clear()
            self._characters = len(key) + len(text)
        self._texts[key] = text
