"""The tools that a server is known to have, by what it said itself: it listed them, or answered a call of them well.

Whoever calls a server names the tool as he likes. Such a name is nothing for spans and metrics, where each is a series
of its own, before the server has stood by it.
"""

import weakref
from collections.abc import Iterable
from typing import Any

from amfs_otel import capture

LIMIT = 1000
"""Tools of one server; one that answers whatever name it is called by has no more."""

_known: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()


def is_known(server: Any, name: str) -> bool:
    """Whether `server` is known to have a tool called `name`."""
    return name in _known.get(server, ())


def learn(server: Any, names: Iterable[Any]) -> None:
    """`server` has stood by `names`; what is no name is left out."""
    known = _known.setdefault(server, set())
    for name in map(capture.name, names):
        if name is not None and len(known) < LIMIT:
            known.add(name)
