"""What each patch is tested in: a capture of its own; what was patched is restored afterwards."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture.ambient import current_run, explicit_session, last_memory
from amfs_otel.capture.content import Masker
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.requests import open_request
from amfs_otel.capture.runtime import Capture
from amfs_otel.settings import Settings
from tests.instrumentation.recording import Captured, MemorySink


@pytest.fixture
def captured_with(tmp_path: Path) -> Iterator[Callable[..., Captured]]:
    """Makes and installs a capture with the given settings; what it patched is restored at the end."""
    for variable in (explicit_session, current_run, last_memory):
        variable.set(None)
    guard.reset()

    def made(**settings: Any) -> Captured:
        exporter, sink, provider = InMemorySpanExporter(), MemorySink(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        chosen = replace(Settings(state_dir=tmp_path / "state", program="test-program"), **settings)
        new = Capture(chosen, sink, Masker(), provider.get_tracer("amfs_otel"), ClientMetrics(None))
        capture.install(new)
        return Captured(new, sink, exporter, provider)

    yield made
    instrumentor.uninstrument()
    capture.uninstall()
    capture.set_explainer(None)
    guard.reset()
    assert open_request() is None, "this request would take in the events of the next tests: run it in a context"


@pytest.fixture
def captured(captured_with: Callable[..., Captured]) -> Captured:
    """A capture with default settings."""
    return captured_with()


@pytest.fixture(scope="session")
def django_views() -> dict[str, Callable[..., Any]]:
    """Views by name, filled in by each test; Django can be configured only once in a process."""
    import django
    from django.conf import settings
    from django.urls import path

    views: dict[str, Callable[..., Any]] = {}

    def sync(request: Any, number: int) -> Any:
        return views["sync"](number)

    async def asynchronous(request: Any, number: int) -> Any:
        return await views["async"](number)

    urls = (path("sync/<int:number>", sync), path("async/<int:number>", asynchronous))
    settings.configure(
        ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"], SECRET_KEY="of-tests", MIDDLEWARE=[], LOGGING_CONFIG=None
    )
    django.setup()
    return views
