"""Copies of what a request holds, as fields whose texts the worker makes.

What is copied here is recorded as it was, whatever the application does to it afterwards. Marshal copies a plain tree
at a tenth of the cost of `snapshot`, but its texts, too, which a snapshot shares: it is used where they are short.
"""

import functools
import marshal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amfs_otel.capture.content import snapshot
from amfs_otel.model import Deferred

MARSHALLED_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class Each:
    """What makes a list for a `Deferred` whose `raw` is a list of items, each by itself.

    Attributes:
        one: Makes what an item stands for.
        shown: All of an item that `one` looks at: what was made of it before is good for an equal one.
    """

    one: Callable[[Any], Any]
    shown: Callable[[Any], Any]

    def __call__(self, raw: list[Any]) -> list[Any]:
        """The list that is made of the items in `raw`."""
        return [self.one(item) for item in raw]


def messages_later(make: Callable[[Any], Any], messages: Any) -> Deferred:
    """`make(messages)`, of a list or tuple of messages, which are dicts with a `content`, mostly."""
    return tree_later(make, messages) if _are_short_texts(messages) else Deferred(make, snapshot(messages))


def _are_short_texts(messages: Any) -> bool:
    size = 0
    for message in messages:
        content: Any = message.get("content") if type(message) is dict else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(content, str):
            return False
        size += len(content)
    return size <= MARSHALLED_CHARACTERS


def tree_later(make: Callable[[Any], Any], tree: Any) -> Deferred:
    """`make(tree)`, of a deep tree with short texts, as tool definitions are."""
    try:
        return Deferred(_from_marshal(make), marshal.dumps(tree))
    except ValueError:  # not all of it is of built-in types
        return Deferred(make, snapshot(tree))


@functools.cache
def _from_marshal(make: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    def made(raw: bytes) -> Any:
        return make(marshal.loads(raw))  # noqa: S302  our own bytes, never from outside

    return made
