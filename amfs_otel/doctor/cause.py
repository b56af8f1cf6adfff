"""What `doctor` says of one thing that is ill."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["problem", "warning", "note"]
"""How much it matters; see `Cause.level`."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that a person can act upon.

    Attributes:
        code: Its name, stable.
        level: `problem`: evidence or telemetry is missing. `warning`: it may be. `note`: good to know.
        message: What is so.
        hint: What to do.
    """

    code: str
    level: Level
    message: str
    hint: str = ""
