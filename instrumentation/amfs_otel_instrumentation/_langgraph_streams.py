"""The generators of langgraph's graphs: which one a run is, and whether somebody still holds it.

A graph's run lives in its generator. When that is closed before its end, by hand or because it was collected unread,
the run is told the same `GeneratorExit`. But of an object that is collected the weak references die first, so a
reference to the generator tells the two apart.
"""

import weakref
from typing import Any

from amfs_otel import guard

_generators: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
"""Generators that somebody holds, by the ids of their frames."""


def note(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wrapper of what makes a generator, asynchronous or not; it is handed on as it is."""
    made = wrapped(*args, **kwargs)
    guard.run("langgraph", _note, made)
    return made


def _note(generator: Any) -> None:
    frame = _frame_of(generator)
    if frame is not None:
        _generators[id(frame)] = generator


def generator_of(frame: Any) -> "weakref.ref[Any] | None":
    """A reference to the generator that runs in `frame`, if it is one of those noted."""
    generator = _generators.get(id(frame))
    # An id is used again by the frame of something else.
    return weakref.ref(generator) if generator is not None and _frame_of(generator) is frame else None


def _frame_of(generator: Any) -> Any:
    return getattr(generator, "gi_frame", None) or getattr(generator, "ag_frame", None)
