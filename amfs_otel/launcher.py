"""Our entry in `opentelemetry_instrumentor`, for launchers that know only that group."""

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from amfs_otel import _bootstrap


class AmfsInstrumentor(BaseInstrumentor):
    """Arms the process as the `opentelemetry_pre_instrument` hook does; idempotent beside it."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """None: each patch checks its own target when that is imported."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        _bootstrap.arm(kwargs.get("tracer_provider"))

    def _uninstrument(self, **_kwargs: Any) -> None:
        _bootstrap.disarm()
