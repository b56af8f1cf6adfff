"""Beside the instrumentors of others, loaded before ours or after: one event for a call, and nobody's spans are lost.

They run in an environment of their own, because they pin what the development environment must not be bound to.
"""

import json
import os
import subprocess
from functools import cache
from typing import Any

import pytest

from amfs_otel.demo.model_server import ModelServer
from tests.support.environments import ROOT, python_of

FAMILIES = {
    "genai": "opentelemetry.instrumentation.genai",
    "openinference": "openinference.instrumentation",
    "openllmetry": "opentelemetry.instrumentation",
}
"""Whose instrumentors → the package that holds one for each library."""
CLASSES = {"openai": "OpenAIInstrumentor", "anthropic": "AnthropicInstrumentor", "langchain": "LangChainInstrumentor"}
CLASSES_OF_OPENLLMETRY = {**CLASSES, "langchain": "LangchainInstrumentor"}

PROGRAM = """
import importlib, json, sys
from pathlib import Path
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from amfs_otel import capture, guard, instrumentor
from amfs_otel.capture.content import Masker
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.runtime import Capture
from amfs_otel.settings import Settings
from tests.instrumentation.recording import Captured, MemorySink

order, library, origin, *others = sys.argv[1:]
provider, exporter, sink = TracerProvider(), InMemorySpanExporter(), MemorySink()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
made = Capture(
    Settings(state_dir=Path("unused"), program="p"), sink, Masker(), provider.get_tracer("amfs_otel"), ClientMetrics(None)
)
capture.install(made)

def theirs():
    for other in others:
        module, _, name = other.partition(":")
        getattr(importlib.import_module(module), name)().instrument(tracer_provider=provider, skip_dep_check=True)

for load in (theirs, instrumentor.instrument) if order == "theirs first" else (instrumentor.instrument, theirs):
    load()

hello, more = [{"role": "user", "content": "hello"}], {"stream": True, "stream_options": {"include_usage": True}}
if library == "openai":
    import openai
    create = openai.OpenAI(base_url=origin + "/v1", api_key="k").chat.completions.create
    create(model="gpt-4o-mini", messages=hello)
    list(create(model="gpt-4o-mini", messages=hello, **more))
elif library == "anthropic":
    import anthropic
    create = anthropic.Anthropic(base_url=origin, api_key="k").messages.create
    create(model="claude-sonnet-5", max_tokens=9, messages=hello)
    list(create(model="claude-sonnet-5", max_tokens=9, messages=hello, stream=True))
else:
    import langchain_openai
    model = langchain_openai.ChatOpenAI(base_url=origin + "/v1", api_key="k", model="gpt-4o-mini", stream_usage=True)
    model.invoke("hello")
    list(model.stream("hello"))

found = [e for t in Captured(made, sink, exporter, provider).close() for e in t["events"] if e["kind"] == "llm_call"]
facts = ("source", "status", "input_tokens", "output_tokens")
print(json.dumps({
    "events": [[event[fact] for fact in facts] for event in found],
    "spans": [[span.instrumentation_scope.name, span.name] for span in exporter.get_finished_spans()],
    "states": {state.name: [state.state, state.foreign] for state in instrumentor.states()},
    "errors": guard.counters(),
}))
"""


def instrumentor_of(family: str, library: str) -> str:
    """The "module:class" of an instrumentor."""
    classes = CLASSES_OF_OPENLLMETRY if family == "openllmetry" else CLASSES
    return f"{FAMILIES[family]}.{library}:{classes[library]}"


@cache
def beside(order: str, library: str, families: tuple[str, ...]) -> dict[str, Any]:
    """What two calls leave, one of them streamed, in a process with the instrumentors of `families`."""
    python = python_of("beside-others")
    others = [instrumentor_of(family, library) for family in families]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "instrumentation")]),
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    }
    with ModelServer() as server:
        done = subprocess.run(
            [python, "-c", PROGRAM, order, library, server.origin, *others],
            capture_output=True, text=True, timeout=120, check=False, env=environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("families", [*((name,) for name in FAMILIES), tuple(FAMILIES)], ids="+".join)
@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_a_call_is_one_event_with_one_set_of_counts(order: str, library: str, families: tuple[str, ...]) -> None:
    found = beside(order, library, families)
    source = "anthropic" if library == "anthropic" else "openai"
    assert found["events"] == [[source, "ok", 143, 58]] * 2
    assert found["errors"] == {}
    assert found["states"][library][0] == "patched"
    ours = [name for scope, name in found["spans"] if scope == "amfs_otel"]
    theirs = [scope for scope, _ in found["spans"] if scope != "amfs_otel"]
    assert sum(name.startswith("chat ") for name in ours) == 2
    for family in families:
        mine = [scope for scope in theirs if scope.startswith(f"{FAMILIES[family]}.{library}")]
        assert len(mine) == 2, theirs


@pytest.mark.parametrize("family", ["genai", "openllmetry"])
def test_who_wrapped_our_hooks_before_us_is_named(family: str) -> None:
    state, foreign = beside("theirs first", "openai", (family,))["states"]["openai"]
    assert state == "patched"
    assert f"{FAMILIES[family]}.openai" in dict(line.split(": ") for line in foreign)["Completions.create"]
