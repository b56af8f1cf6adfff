"""What an SDK hands back, read without running its code: models, namespaces and decoded objects alike."""

from collections.abc import Mapping
from typing import Any

_NOTHING: Mapping[str, Any] = {}


def members(node: Any) -> Mapping[str, Any]:
    """The members of a model, with those that its class does not know, of a namespace, or of a decoded object.

    Asking a model for an attribute that it lacks is slow; a look into this mapping is not. It is the node's own where
    that has one: read it, and keep nothing of it that can change.
    """
    kind = type(node)  # pyright: ignore[reportUnknownVariableType]
    if kind is dict:
        return node
    try:  # faster than a getattr() with a default
        found: Any = node.__dict__
    except AttributeError:
        found = None
    kept = type(found)  # pyright: ignore[reportUnknownVariableType]
    if kept is not dict:
        return node if issubclass(kind, dict) else _NOTHING
    try:
        extra: Any = node.__pydantic_extra__
    except AttributeError:
        return found
    return {**found, **extra} if extra else found
