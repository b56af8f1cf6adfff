"""Longer SQL, one statement a file; read once."""

from functools import cache
from importlib.resources import files
from typing import LiteralString, cast


@cache
def query(name: str) -> LiteralString:
    """Return the text of ``queries/<name>.sql``. It is package data, so it counts as literal."""
    return cast("LiteralString", (files(__name__) / f"{name}.sql").read_text(encoding="utf-8"))
