"""amfs-otel: signed, explainable decision traces of AI agents.

Most programs need no import of this package: `opentelemetry-instrument python agent.py` captures everything. What
stands here is for what no patch sees, and for asking "why did we do that?" from inside a program.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amfs_otel.api import (
        TraceExporter,
        checkpoint,
        configure_otel,
        explain,
        flush,
        instrument,
        outcome,
        record_context,
        record_decision,
        session,
        tool,
        traces,
        verify,
    )

__all__ = [
    "TraceExporter",
    "checkpoint",
    "configure_otel",
    "explain",
    "flush",
    "instrument",
    "outcome",
    "record_context",
    "record_decision",
    "session",
    "tool",
    "traces",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used (PEP 562): importing the package costs nothing."""
    if name in __all__:
        from amfs_otel import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
