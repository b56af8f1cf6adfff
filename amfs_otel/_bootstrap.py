"""What `opentelemetry-instrument` runs before the program: registers patches and attaches to the provider.

Only the standard library is imported at the top. Nothing here may raise: an error in this hook would abort every other
vendor's instrumentation, too.
"""

import logging
from typing import Any


def pre_instrument() -> None:
    """The `opentelemetry_pre_instrument` hook: runs after the SDK is configured and before any patch."""
    try:
        start()
    except Exception:
        logging.getLogger("amfs_otel").warning("amfs-otel: could not start; nothing is captured", exc_info=True)


def start(tracer_provider: Any = None, names: tuple[str, ...] = ()) -> bool:
    """Starts capturing; idempotent beside itself and `amfs_otel.instrument()`.

    Args:
        tracer_provider: Provider for our spans; default: the global one.
        names: Libraries to patch; all when empty.

    Returns:
        Whether anything is captured (`False` where `AMFS_OTEL_DISABLED` is set).
    """
    from amfs_otel import instrumentor, pipeline
    from amfs_otel.pipeline import attach

    running = pipeline.start(tracer_provider=tracer_provider)
    if running is None:
        return False
    attach.attach(tracer_provider)
    instrumentor.instrument(names, disabled=running.settings.library_disabled)
    return True
