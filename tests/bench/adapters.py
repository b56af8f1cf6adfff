"""What can be measured: this product, nothing at all, and other instrumentations of openai, each one row.

Runs in the environment of the instrumentation that it is asked for, and imports nothing of the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def _environment_of_none(content: bool) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Adapter:
    """One instrumentation.

    Attributes:
        title: What the tables call it.
        instrument: Instruments openai; the global tracer provider is set.
        environment: Variables to set before anything is imported, by whether content is wanted.
        requirements: The file in `peers/` its environment is made from; `None`: the environment we run in.
        own_baseline: Whether it needs an openai that the others do not, so that its "nothing" is measured there.
    """

    title: str
    instrument: Callable[[bool], None]
    environment: Callable[[bool], dict[str, str]] = _environment_of_none
    requirements: str | None = None
    own_baseline: bool = False


def _nothing(content: bool) -> None:
    pass


def _product(content: bool) -> None:
    importlib.import_module("amfs_otel").instrument()


def _instrumentor(module: str) -> Callable[[bool], None]:
    def instrument(content: bool) -> None:
        importlib.import_module(module).OpenAIInstrumentor().instrument()

    return instrument


def _semantic_conventions(content: bool) -> dict[str, str]:
    wanted = "span_only" if content else "no_content"
    return {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental", CONTENT: wanted}


def _boolean(content: bool) -> dict[str, str]:
    return {CONTENT: str(content).lower()}


def _openinference(content: bool) -> dict[str, str]:
    hide = str(not content).lower()
    return {"OPENINFERENCE_HIDE_INPUTS": hide, "OPENINFERENCE_HIDE_OUTPUTS": hide}


def _traceloop(content: bool) -> dict[str, str]:
    return {"TRACELOOP_TRACE_CONTENT": str(content).lower(), "TRACELOOP_METRICS_ENABLED": "false"}


def _logfire(content: bool) -> None:
    logfire = importlib.import_module("logfire")
    sdk = importlib.import_module("tests.bench.pipeline")
    logfire.configure(
        send_to_logfire=False,
        console=False,
        metrics=False,
        inspect_arguments=False,
        additional_span_processors=[sdk.batch_processor()],
    )
    logfire.instrument_openai()


def _logfire_environment(content: bool) -> dict[str, str]:
    return {"LOGFIRE_SEND_TO_LOGFIRE": "false", "LOGFIRE_IGNORE_NO_CONFIG": "1"}


def _openlit(content: bool) -> None:
    import tempfile
    from pathlib import Path

    openlit = importlib.import_module("openlit")
    prices = Path(tempfile.mkdtemp()) / "prices.json"  # without one it fetches a list from the web
    prices.write_text('{"chat": {}, "embeddings": {}}')
    openlit.init(
        capture_message_content=content,
        disable_metrics=True,
        disable_events=True,
        pricing_json=str(prices),
        disabled_instrumentors=["httpx", "requests", "urllib", "urllib3", "aiohttp-client", "litellm", "langchain"],
    )


def _langfuse(content: bool) -> None:
    sdk = importlib.import_module("tests.bench.pipeline")
    langfuse = importlib.import_module("langfuse")

    def nothing(**_: object) -> None:
        return None

    mask = None if content else nothing
    langfuse.Langfuse(
        public_key="pk-bench", secret_key="sk-bench", base_url="http://127.0.0.1:9", mask=mask,
        span_exporter=sdk.exporter,
    )  # fmt: skip
    importlib.import_module("langfuse.openai")


NONE = Adapter("nothing", _nothing)
PRODUCT = Adapter("amfs-otel", _product, lambda content: {CONTENT: "span_only" if content else "no_content"})
PEERS: dict[str, Adapter] = {
    "genai": Adapter(
        "opentelemetry-instrumentation-genai-openai",
        _instrumentor("opentelemetry.instrumentation.genai.openai"),
        _semantic_conventions,
        "genai.in",
    ),
    "openai_v2": Adapter(
        "opentelemetry-instrumentation-openai-v2",
        _instrumentor("opentelemetry.instrumentation.openai_v2"),
        _boolean,
        "openai_v2.in",
    ),
    "openinference": Adapter(
        "openinference-instrumentation-openai",
        _instrumentor("openinference.instrumentation.openai"),
        _openinference,
        "openinference.in",
    ),
    "openllmetry": Adapter(
        "opentelemetry-instrumentation-openai (OpenLLMetry)",
        _instrumentor("opentelemetry.instrumentation.openai"),
        _traceloop,
        "openllmetry.in",
    ),
    "openlit": Adapter("openlit", _openlit, requirements="openlit.in", own_baseline=True),
    "langfuse": Adapter("langfuse", _langfuse, requirements="langfuse.in"),
    "logfire": Adapter("logfire", _logfire, _logfire_environment, "logfire.in"),
}
ADAPTERS: dict[str, Adapter] = {"none": NONE, "amfs_otel": PRODUCT, **PEERS}
