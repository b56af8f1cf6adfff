"""amfs-otel: signed, explainable decision traces of AI agents.

Most programs need no import of this package: `opentelemetry-instrument python agent.py` captures everything. What
stands here is for what no patch sees, and for asking "why did we do that?" from inside a program.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amfs_otel.answers import explain, traces, verify
    from amfs_otel.api import (
        checkpoint,
        flush,
        instrument,
        outcome,
        record_context,
        record_decision,
        session,
        tool,
    )
    from amfs_otel.export.replay import TraceExporter, configure_otel

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

_ELSEWHERE = {
    "TraceExporter": "amfs_otel.export.replay",
    "configure_otel": "amfs_otel.export.replay",
    "explain": "amfs_otel.answers",
    "traces": "amfs_otel.answers",
    "verify": "amfs_otel.answers",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used (PEP 562): importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_ELSEWHERE.get(name, "amfs_otel.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
