"""The libraries that we know: one row each, and all that must be known of one where its patch is not loaded.

A patch is imported with its target and not before, and records are shown and exported where neither is. So what is said
here is data: what triggers the patch, how spans and metrics look where a library has conventions of its own, and who
else instruments it. What a call means as an event is said by the patch.

Only the standard library is imported: this module is loaded at the start of every instrumented process. Its rows are
named tuples, which are made in half the time of dataclasses.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Duration(NamedTuple):
    """The histogram of how long steps take, in seconds.

    Attributes:
        name: Its name.
        description: One line for the backend.
        buckets: Bucket boundaries, s.
    """

    name: str
    description: str
    buckets: tuple[float, ...]


class Conventions(NamedTuple):
    """How the steps of a library look as spans and in metrics, where that differs from what their kinds look like.

    Attributes:
        attributes: Field → attribute key, beside those of the kind.
        operation: The field that names the operation, and with which the span's name begins.
        genai_kinds: With an `operation`, the kinds that bear `gen_ai.operation.name` nonetheless.
        duration: Takes the place of the kind's metric.
        served_duration: The same for what is done for a client (`served`).
        measured_by: Fields whose attributes are those of the two metrics, beside operation, tool and type of error.
    """

    attributes: Mapping[str, str]
    operation: str | None = None
    genai_kinds: frozenset[str] = frozenset()
    duration: Duration | None = None
    served_duration: Duration | None = None
    measured_by: tuple[str, ...] = ()


class Instrumentor(NamedTuple):
    """An instrumentor of another vendor.

    Attributes:
        module: Its module; the names of its scopes begin with it.
        metrics: Whether it counts tokens in metrics, too.
        afterwards: The API of which it makes spans, of that name, only after the call, and counts no tokens in metrics.
    """

    module: str
    metrics: bool = True
    afterwards: tuple[str, str] | None = None


class Library(NamedTuple):
    """A library that we know.

    Attributes:
        name: Name of the patch module, and `amfs_<name>` in `OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`.
        target: Module whose import triggers the patch.
        distribution: PyPI name, for version checks.
        reports: Whether its patch reports events. One that only marks requests starts nothing: a server that uses no
            library of the others has no pipeline.
        hears: Module that its `listen` needs, where that is imported later than `target`; `None` where it is not.
        framework: Whether its model calls are made by the clients of other libraries.
        conventions: Its own, where it has some.
        beside: Who else makes spans of its model calls; see `capture.foreign`.
    """

    name: str
    target: str
    distribution: str
    reports: bool = True
    hears: str | None = None
    framework: bool = False
    conventions: Conventions | None = None
    beside: tuple[Instrumentor, ...] = ()


_MCP_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

LIBRARIES: tuple[Library, ...] = (
    Library("amfs", "amfs.memory", "amfs"),
    Library(
        "openai",
        "openai",
        "openai",
        beside=(
            Instrumentor("opentelemetry.instrumentation.genai.openai"),
            Instrumentor("opentelemetry.instrumentation.openai_v2"),
            Instrumentor("opentelemetry.instrumentation.openai", afterwards=("responses", "openai.response")),
            Instrumentor("openinference.instrumentation.openai", metrics=False),
        ),
    ),
    Library(
        "anthropic",
        "anthropic",
        "anthropic",
        beside=(
            Instrumentor("opentelemetry.instrumentation.genai.anthropic"),
            Instrumentor("opentelemetry.instrumentation.anthropic"),
            Instrumentor("openinference.instrumentation.anthropic", metrics=False),
        ),
    ),
    Library(
        "langchain",
        "langchain_core.callbacks.manager",
        "langchain-core",
        hears="langchain_core.tracers.context",
        framework=True,
        beside=(
            Instrumentor("opentelemetry.instrumentation.genai.langchain"),
            Instrumentor("opentelemetry.instrumentation.langchain"),
            Instrumentor("openinference.instrumentation.langchain", metrics=False),
        ),
    ),
    Library("langgraph", "langgraph.pregel", "langgraph"),
    Library(
        "mcp",
        "mcp",
        "mcp",
        conventions=Conventions(
            {
                "mcp_method": "mcp.method.name",
                "protocol_version": "mcp.protocol.version",
                "request_id": "jsonrpc.request.id",
                "status_code": "rpc.response.status_code",
            },
            operation="mcp_method",
            genai_kinds=frozenset({"tool_call"}),
            duration=Duration("mcp.client.operation.duration", "Duration of requests to MCP servers", _MCP_BUCKETS_S),
            served_duration=Duration(
                "mcp.server.operation.duration", "Duration of requests that MCP servers handle", _MCP_BUCKETS_S
            ),
            measured_by=("mcp_method", "protocol_version"),
        ),
    ),
    Library("starlette", "starlette.applications", "starlette", reports=False),
    Library("flask", "flask.app", "flask", reports=False),
    Library("django", "django.core.handlers.base", "django", reports=False),
    Library("celery", "celery.signals", "celery", reports=False),
)

CONVENTIONS: Mapping[str, Conventions] = {
    library.name: library.conventions for library in LIBRARIES if library.conventions is not None
}
"""By the library that is the source of an event."""
