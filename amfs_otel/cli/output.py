"""Writing answers: JSON, text, tables. Content comes from agents, so nothing of it reaches a terminal as a command."""

import json
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WIDE = 1000


def printable(text: str) -> str:
    """The text without anything a terminal would act on; tabs and newlines stay."""
    return _CONTROL.sub("\ufffd", text)


def write(text: str, *, end: str = "\n") -> None:
    """Writes text to stdout."""
    print(text, end=end)


def write_json(answer: Any) -> None:
    """Writes an answer as JSON to stdout."""
    write(json.dumps(answer, ensure_ascii=False, indent=2))


def show(answer: Any) -> None:
    """Writes text, or anything that rich can draw, to stdout."""
    console().print(answer)


def console() -> "Console":
    """A console on stdout: coloured on a terminal, plain in a pipe, where lines are as long as they are."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDE
    return Console(highlight=False, markup=False, emoji=False, width=width, soft_wrap=width is not None)
