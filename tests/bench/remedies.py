"""What would have to change for a bar that was missed to be met, by what was measured.

Read in profiles of the runs that missed them; a figure without an entry says so on the page.
"""

from __future__ import annotations

REMEDIES: dict[str, str] = {}
"""The beginning of what a figure measures → what would have to change; the longest beginning counts."""


def remedy(what: str) -> str:
    """What would have to change for the figure of `what`."""
    found = max((start for start in REMEDIES if what.startswith(start)), key=len, default=None)
    return REMEDIES[found] if found is not None else "What would have to change has not been looked for."
