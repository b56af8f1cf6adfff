"""How capturing begins: armed by `opentelemetry-instrument`, started when there is something to capture.

`arm` registers post-import hooks and attaches to the tracer provider; it imports next to nothing, so a program that
uses no library of ours pays a few milliseconds. `start` makes the pipeline: at the import of the first library that we
patch, at `amfs_otel.instrument()`, or at the first use of the Python API in an armed process.

Only the standard library is imported at the top. Nothing may leave `pre_instrument`: an error in this hook would abort
every other vendor's instrumentation, too.
"""

import logging
import sys
from typing import Any

_armed = False


def pre_instrument() -> None:
    """The `opentelemetry_pre_instrument` hook: runs after the SDK is configured and before any patch."""
    try:
        arm()
    except Exception:
        logging.getLogger("amfs_otel").warning("amfs-otel: could not start; nothing is captured", exc_info=True)


def arm(tracer_provider: Any = None, names: tuple[str, ...] = ()) -> bool:
    """Registers the patches and attaches to the provider; idempotent.

    Args:
        tracer_provider: Provider to attach to; default: the global one.
        names: Libraries to patch; all when empty.

    Returns:
        Whether anything will be captured (`False` where `AMFS_OTEL_DISABLED` is set).

    Raises:
        ValueError: A library is unknown.
    """
    global _armed  # noqa: PLW0603  one process is armed once
    from amfs_otel import attach, instrumentor
    from amfs_otel.settings import Settings

    settings = Settings.from_env()
    if settings.disabled:
        return False
    _armed = True
    attach.attach(tracer_provider)
    instrumentor.instrument(names, disabled=settings.library_disabled, before_patch=start_if_armed)
    return True


def disarm() -> None:
    """Takes the patches back, closes and signs what is open, and captures no more until `arm` or `start`."""
    global _armed  # noqa: PLW0603  see `arm`
    from amfs_otel import instrumentor

    _armed = False
    instrumentor.uninstrument()
    pipeline = sys.modules.get("amfs_otel.pipeline")
    if pipeline is not None:
        pipeline.stop()


def start(tracer_provider: Any = None, names: tuple[str, ...] = ()) -> bool:
    """`arm`, and starts the pipeline at once.

    Args:
        tracer_provider: Provider for our spans; default: the global one.
        names: Libraries to patch; all when empty.

    Returns:
        Whether anything is captured.

    Raises:
        ValueError: A library is unknown.
    """
    return arm(tracer_provider, names) and _started(tracer_provider)


def start_if_armed() -> None:
    """Starts the pipeline in a process that `opentelemetry-instrument` armed."""
    if _armed:
        _started(None)


def _started(tracer_provider: Any) -> bool:
    from amfs_otel import capture, pipeline

    capture.set_explainer(_explanation)
    return pipeline.start(tracer_provider=tracer_provider) is not None


def _explanation(outcome_ref: str) -> dict[str, Any]:
    """Answers `AgentMemory.explain` where `AMFS_OTEL_ANSWER_EXPLAIN` asks for it."""
    from amfs_otel.answers import explain

    return explain(outcome_ref)
