"""What can be measured: this product, nothing at all, and other instrumentations, each one row.

Runs in the environment of the instrumentation that it is asked for, and imports nothing of the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

SDKS = ("openai", "anthropic")
"""Libraries that send requests."""
LIBRARIES = (*SDKS, "langchain")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def _environment_of_none(content: bool) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Adapter:
    """One instrumentation.

    Attributes:
        title: What the tables call it.
        instrument: Instruments a library, content wanted or not; the global tracer provider is set.
        environment: Variables to set before anything is imported, by whether content is wanted.
        requirements: The file in `peers/` its environment is made from; `None`: the environment we run in.
        libraries: What it instruments, of `LIBRARIES`.
    """

    title: str
    instrument: Callable[[str, bool], None]
    environment: Callable[[bool], dict[str, str]] = _environment_of_none
    requirements: str | None = None
    libraries: tuple[str, ...] = LIBRARIES


def _nothing(library: str, content: bool) -> None:
    pass


def _product(library: str, content: bool) -> None:
    importlib.import_module("amfs_otel").instrument()


_CLASSES = {"openai": "OpenAIInstrumentor", "anthropic": "AnthropicInstrumentor", "langchain": "LangChainInstrumentor"}


def _instrumentor(package: str, langchain: str = _CLASSES["langchain"]) -> Callable[[str, bool], None]:
    """Instruments by the instrumentor in `package`, which has one module a library."""

    def instrument(library: str, content: bool) -> None:
        module = importlib.import_module(f"{package}.{library}")
        getattr(module, langchain if library == "langchain" else _CLASSES[library])().instrument()

    return instrument


def _openai_v2(library: str, content: bool) -> None:
    importlib.import_module("opentelemetry.instrumentation.openai_v2").OpenAIInstrumentor().instrument()


def _semantic_conventions(content: bool) -> dict[str, str]:
    wanted = "span_only" if content else "no_content"
    return {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental", CONTENT: wanted}


def _openinference(content: bool) -> dict[str, str]:
    hide = str(not content).lower()
    return {"OPENINFERENCE_HIDE_INPUTS": hide, "OPENINFERENCE_HIDE_OUTPUTS": hide}


def _traceloop(content: bool) -> dict[str, str]:
    return {"TRACELOOP_TRACE_CONTENT": str(content).lower(), "TRACELOOP_METRICS_ENABLED": "false"}


def _logfire(library: str, content: bool) -> None:
    logfire = importlib.import_module("logfire")
    sdk = importlib.import_module("tests.bench.pipeline")
    logfire.configure(
        send_to_logfire=False,
        console=False,
        metrics=False,
        inspect_arguments=False,
        additional_span_processors=[sdk.batch_processor()],
    )
    getattr(logfire, f"instrument_{library}")()


def _logfire_environment(content: bool) -> dict[str, str]:
    return {"LOGFIRE_SEND_TO_LOGFIRE": "false", "LOGFIRE_IGNORE_NO_CONFIG": "1"}


def _openlit(library: str, content: bool) -> None:
    import tempfile
    from pathlib import Path

    openlit = importlib.import_module("openlit")
    prices = Path(tempfile.mkdtemp()) / "prices.json"  # without one it fetches a list from the web
    prices.write_text('{"chat": {}, "embeddings": {}}')
    others = [name for name in LIBRARIES if name != library]
    openlit.init(
        capture_message_content=content,
        disable_metrics=True,
        disable_events=True,
        pricing_json=str(prices),
        disabled_instrumentors=["httpx", "requests", "urllib", "urllib3", "aiohttp-client", "litellm", *others],
    )


def _langfuse(library: str, content: bool) -> None:
    sdk = importlib.import_module("tests.bench.pipeline")
    langfuse = importlib.import_module("langfuse")

    def nothing(**_: object) -> None:
        return None

    # A provider of its own: it adds a processor, and the global one has ours.
    provider = importlib.import_module("opentelemetry.sdk.trace").TracerProvider()
    sdk.flushed.append(provider)
    langfuse.Langfuse(
        public_key="pk-bench", secret_key="sk-bench", base_url="http://127.0.0.1:9", mask=None if content else nothing,
        span_exporter=sdk.exporter, tracer_provider=provider,
    )  # fmt: skip
    importlib.import_module("langfuse.openai")


NONE = Adapter("nothing", _nothing)
PRODUCT = Adapter("amfs-otel", _product, lambda content: {CONTENT: "span_only" if content else "no_content"})
PEERS: dict[str, Adapter] = {
    "genai": Adapter(
        "OpenTelemetry genai", _instrumentor("opentelemetry.instrumentation.genai"), _semantic_conventions, "genai.in"
    ),
    "openinference": Adapter(
        "OpenInference", _instrumentor("openinference.instrumentation"), _openinference, "openinference.in"
    ),
    "openllmetry": Adapter(
        "OpenLLMetry",
        _instrumentor("opentelemetry.instrumentation", "LangchainInstrumentor"),
        _traceloop,
        "openllmetry.in",
    ),
    "openai_v2": Adapter(
        "OpenTelemetry openai-v2", _openai_v2, _semantic_conventions, "openai_v2.in", libraries=("openai",)
    ),
    "langfuse": Adapter("Langfuse", _langfuse, requirements="langfuse.in", libraries=("openai",)),
    "logfire": Adapter("Logfire", _logfire, _logfire_environment, "logfire.in", libraries=SDKS),
    "openlit": Adapter("OpenLIT", _openlit, requirements="openlit.in", libraries=SDKS),
}
ADAPTERS: dict[str, Adapter] = {"none": NONE, "amfs_otel": PRODUCT, **PEERS}
