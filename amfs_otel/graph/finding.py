"""What a person typed -> the pieces of ids that it may be, and the errors where it is none or several."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amfs_otel.errors import AmfsOtelError

LIMIT = 20
NAMED = 5
"""So many of several records that fit are named in the message."""


class NothingFound(AmfsOtelError):
    """Nothing fits what was asked for. `nearest` names what looks like it."""

    def __init__(self, what: str, asked: str, nearest: Sequence[str] = ()) -> None:
        self.asked = asked
        self.nearest = list(nearest)
        hint = f"Did you mean {', '.join(nearest)}?" if nearest else "See `amfs-otel list`."
        super().__init__(what, where=asked, hint=hint)


class Ambiguous(AmfsOtelError):
    """Several records fit what was asked for. `candidates` are their ids, newest first.

    Args:
        asked: What was typed.
        candidates: The ids.
        named: How the message names the first of them; default: by their ends.
    """

    def __init__(self, asked: str, candidates: Sequence[str], named: Sequence[str] = ()) -> None:
        self.asked = asked
        self.candidates = list(candidates)
        shown = ", ".join((named or [described(one) for one in candidates])[:NAMED])
        more = ", …" if len(candidates) > NAMED else ""
        super().__init__("several records fit", where=asked, got=shown + more, hint="Type one of these ends.")


def described(record_id: str, row: Mapping[str, Any] | None = None) -> str:
    """A record as messages name it: the end of its id, as `list` shows it; with its row also the agent and the time."""
    end = f"…{record_id[-8:]}"
    if row is None:
        return end
    return f"{end} ({row['agent_id'] or 'name erased'}, {(row['started_at'] or '')[:19].replace('T', ' ')})"


@dataclass(frozen=True, slots=True)
class Pieces:
    """A piece of a record id or OpenTelemetry trace id: hex digits."""

    digits: str

    @classmethod
    def of(cls, text: str) -> "Pieces | None":
        """The digits of `text`, None where it cannot be a piece of an id (other characters, or too short)."""
        digits = text.strip().lower().replace("-", "")
        return cls(digits) if re.fullmatch(r"[0-9a-f]{4,32}", digits) else None

    def fit(self, record_id: str, trace_id: str | None) -> bool:
        """Whether one of the ids begins or ends with them."""
        ids = (record_id.replace("-", ""), trace_id or "")
        return any(one.startswith(self.digits) or one.endswith(self.digits) for one in ids)

    def parameters(self) -> dict[str, Any]:
        """Parameters of ``reading_ids``."""
        backwards = self.digits[::-1]
        return {
            "lowest": self.digits.ljust(32, "0"),
            "highest": self.digits.ljust(32, "f"),
            "suffix": f"{_hyphened(backwards)}%",
            "trace_prefix": f"{self.digits}%",
            "trace_suffix": f"{backwards}%",
            "limit": LIMIT,
        }


def _hyphened(backwards: str) -> str:
    """The digits of a reversed id with hyphens where a reversed UUID has them."""
    lengths = (12, 4, 4, 4, 8)
    groups: list[str] = []
    for length in lengths:
        if backwards:
            groups.append(backwards[:length])
            backwards = backwards[length:]
    return "-".join(groups)
