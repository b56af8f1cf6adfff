"""What would have to change for a bar that was missed to be met, by what was measured.

Read in profiles of runs that missed them, and tried by leaving parts of a call out. A figure without an entry says so on
the page.
"""

from __future__ import annotations

_CALLER = (
    "The SDK's span alone is 0.9 to 1.4 floors of it; ending the span on the worker's thread would save up to 0.8 (off) and "
    "3.4 (on), and is not done, since `force_flush` would then miss spans and processors would see another thread. Mapping "
    "the reply there (0.5) would record what the caller has changed meanwhile. What is left in the patch is mapping the "
    "request (0.3) and the attributes (0.2)."
)
_CHUNK = (
    "Most of a chunk is its fold: three `__dict__` look-ups on pydantic's models and one call. Folding inside the loop's own "
    "frame would take a sixth off, for a copy of each loop a library; more needs a fold in C."
)
_BACKLOG = (
    "It is backlog: calls without a pause between them leave our thread two fifths of the CPU, and each waiting call holds "
    "about 3 KiB. The worker would have to cost a third less a call, by preparing an event in one pass and not two, or leave "
    "the process; holding up the agent, or less room and counted gaps, would be worse."
)
_LANGCHAIN = (
    "Our callbacks take about 3 ms of it (off) and 4 (on) on a quiet machine: a third is the SDK's span for each step, a "
    "quarter (on) the texts on spans, nothing else that was told apart is above a tenth. The rest is the agent's own code, slower beside ours "
    "than in a run alone; in no function was it found. One `start_span` with all attributes would save a twentieth."
)

REMEDIES: dict[str, str] = {
    "chat, content": _CALLER,
    "chat, suppressed": (
        "A bare wrapt wrapper is 1.4 µs of it; the bar needs a plain function in its place, and one frame for the guard and "
        "the wrapper."
    ),
    "per chunk": _CHUNK,
    "50 at once": "It differs from run to run by more than it misses the bar by: the same calls in a row cost as much.",
    "message, the span being ours": _CALLER
    + " The bar is in µs of a machine whose floor takes 41 µs: the figure there stands beside it.",
    "message, content": _CALLER,
    "content off": _LANGCHAIN,
    "content on": _LANGCHAIN,
    "growth": _BACKLOG,
    "append": "Half of what is above plain tables are casts of the header to `jsonb` for generated columns, 40 µs a record.",
    "full verify": "Reading and hashing go by turns in one thread; they would have to overlap, or the hashes be made in C.",
}
"""The beginning of what a figure measures → what would have to change; the longest beginning counts."""


def remedy(what: str) -> str:
    """What would have to change for the figure of `what`."""
    found = max((start for start in REMEDIES if what.startswith(start)), key=len, default=None)
    return REMEDIES[found] if found is not None else "What would have to change has not been looked for."
