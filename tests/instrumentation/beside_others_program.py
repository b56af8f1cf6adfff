"""Calls of models beside the instrumentors of others; run by the interpreter of the environment `beside-others`.

    python beside_others_program.py CASES

`CASES` is a JSON list of objects with the members of `Case`; what each left is printed as one JSON line. What takes long
is to import everything, so that is done once, and each case runs in a fork.
"""

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from amfs_otel import attach, capture, guard, instrumentor
from amfs_otel.capture import foreign
from amfs_otel.capture.content import Masker
from amfs_otel.capture.metrics import ClientMetrics
from amfs_otel.capture.runtime import Capture
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Failure, Reply
from amfs_otel.settings import Settings, SpanContent
from tests.instrumentation.recording import Captured, MemorySink

HELLO: Any = [{"role": "user", "content": "hello"}]
USAGE = ("gen_ai.usage.input_tokens", "llm.token_count.prompt")
"""Where a span says how many tokens were read."""
MANY = 4
WITH_CONTENT = frozenset({"create", "invoke", "stream", "async stream", "error"})
"""What is tried with content, too."""
RUNNER = asyncio.Runner()
"""One loop for all calls: the clients keep their connections."""


@dataclass(frozen=True)
class Case:
    """Whose instrumentors are loaded, and in which order.

    Attributes:
        order: `theirs first`, `ours first`, or `theirs alone`.
        library: What is called.
        others: Theirs, "module:class" each.
        ours: The patches of ours; all where none is named.
        contents: Where content may go, one pass each.
        elsewhere: Whether theirs have a tracer provider of their own.
    """

    order: str
    library: str
    others: list[str]
    ours: list[str] = field(default_factory=list[str])
    contents: list[str] = field(default_factory=lambda: ["NO_CONTENT"])
    elsewhere: bool = False


async def at_once(call: Callable[[], Any]) -> None:
    """Makes a call many times at once."""
    await asyncio.gather(*(call() for _ in range(MANY)))


def calls_of_openai(server: ModelServer) -> dict[str, Callable[[], Any]]:
    """What can be asked of openai."""
    import openai

    given: Any = {"base_url": f"{server.origin}/v1", "api_key": "k", "max_retries": 0}
    client, aclient = openai.OpenAI(**given), openai.AsyncOpenAI(**given)
    ask: Any = {"model": "gpt-4o-mini", "messages": HELLO}
    streamed: Any = {**ask, "stream": True, "stream_options": {"include_usage": True}}

    async def astream() -> None:
        async for _ in await aclient.chat.completions.create(**streamed):
            pass

    return {
        "create": lambda: client.chat.completions.create(**ask),
        "many": lambda: RUNNER.run(at_once(lambda: aclient.chat.completions.create(**ask))),
        "stream": lambda: list(client.chat.completions.create(**streamed)),
        "async": lambda: RUNNER.run(aclient.chat.completions.create(**ask)),
        "async stream": lambda: RUNNER.run(astream()),
        "parse": lambda: client.chat.completions.parse(**ask),
        "raw": lambda: client.chat.completions.with_raw_response.create(**ask).parse(),
        "error": lambda: client.chat.completions.create(**ask),
        "embeddings": lambda: client.embeddings.create(model="text-embedding-3-small", input="hello"),
        "responses": lambda: client.responses.create(model="gpt-4o-mini", input="hello"),
        "responses stream": lambda: list(client.responses.create(model="gpt-4o-mini", input="hello", stream=True)),
    }


def calls_of_anthropic(server: ModelServer) -> dict[str, Callable[[], Any]]:
    """What can be asked of anthropic."""
    import anthropic

    given: Any = {"base_url": server.origin, "api_key": "k", "max_retries": 0}
    client, aclient = anthropic.Anthropic(**given), anthropic.AsyncAnthropic(**given)
    ask: Any = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": HELLO}

    async def astream() -> None:
        async for _ in await aclient.messages.create(**ask, stream=True):
            pass

    def helper() -> None:
        with client.messages.stream(**ask) as stream:
            stream.get_final_message()

    return {
        "create": lambda: client.messages.create(**ask),
        "many": lambda: RUNNER.run(at_once(lambda: aclient.messages.create(**ask))),
        "stream": lambda: list(client.messages.create(**ask, stream=True)),
        "helper": helper,
        "async": lambda: RUNNER.run(aclient.messages.create(**ask)),
        "async stream": lambda: RUNNER.run(astream()),
        "error": lambda: client.messages.create(**ask),
    }


def calls_of_langchain(server: ModelServer) -> dict[str, Callable[[], Any]]:
    """What can be asked of a model of langchain, with the client of openai below."""
    import langchain_openai
    from langchain_core.runnables import RunnableLambda

    made: Any = langchain_openai.ChatOpenAI
    model = made(base_url=f"{server.origin}/v1", api_key="k", model="gpt-4o-mini", stream_usage=True, max_retries=0)

    async def astream() -> None:
        async for _ in model.astream("hello"):
            pass

    return {
        "invoke": lambda: model.invoke("hello"),
        "many": lambda: RUNNER.run(at_once(lambda: model.ainvoke("hello"))),
        "many in threads": lambda: model.batch(["hello"] * MANY),
        "stream": lambda: list(model.stream("hello")),
        "async": lambda: RUNNER.run(model.ainvoke("hello")),
        "async stream": lambda: RUNNER.run(astream()),
        "chain": lambda: (RunnableLambda(lambda text: text) | model).invoke("hello"),
        "async chain": lambda: RUNNER.run((RunnableLambda(lambda text: text) | model).ainvoke("hello")),
        "error": lambda: model.invoke("hello"),
    }


CALLS = {"openai": calls_of_openai, "anthropic": calls_of_anthropic, "langchain": calls_of_langchain}


def span_facts(span: ReadableSpan) -> dict[str, Any]:
    """What the test looks at."""
    shown, scope = span.attributes or {}, span.instrumentation_scope
    return {
        "scope": scope.name if scope is not None else None,
        "name": span.name,
        "ids": [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"] if span.context else None,
        "usage": next((shown[key] for key in USAGE if key in shown), None),
        "record": shown.get("amfs.record.id"),
        "response": shown.get("gen_ai.response.id"),
        "error": span.status.status_code.name == "ERROR",
    }


def event_facts(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What the test looks at, of each model call of a trace."""
    return [
        {
            **{name: event.get(name) for name in ("source", "status", "input_tokens", "output_tokens", "response_id")},
            "ids": [event.get("trace"), event.get("span")],
            "record": found["record_id"],
        }
        for event in found["events"]
        if event["kind"] in ("llm_call", "embeddings")
    ]


def counted(reader: InMemoryMetricReader) -> dict[str, float]:
    """The sums of all metrics that count tokens read: "scope metric" → tokens."""
    sums: dict[str, float] = {}
    data = reader.get_metrics_data()
    for scoped in [one for resource in data.resource_metrics for one in resource.scope_metrics] if data else []:
        for metric in scoped.metrics:
            for point in metric.data.data_points:
                kind = (point.attributes or {}).get("gen_ai.token.type", "input")
                if "token" in metric.name and "output" not in metric.name and kind == "input":
                    key = f"{scoped.scope.name} {metric.name}"
                    sums[key] = sums.get(key, 0) + getattr(point, "sum", getattr(point, "value", 0))
    return sums


def played(case: Case) -> dict[str, Any]:
    """Makes every call, with content and without, and says what each left."""
    provider, exporter, reader = TracerProvider(), InMemorySpanExporter(), InMemoryMetricReader()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    attach.attach(provider)

    def captured(content: SpanContent) -> Captured:
        settings, sink = Settings(state_dir=Path("unused"), program="p", span_content=content), MemorySink()
        meter = ClientMetrics(metrics.get_meter("amfs_otel"))
        return Captured(
            Capture(settings, sink, Masker(), provider.get_tracer("amfs_otel"), meter), sink, exporter, provider
        )

    apart = TracerProvider()
    apart.add_span_processor(SimpleSpanProcessor(exporter))
    more = {"tracer_provider": apart} if case.elsewhere else {}

    def theirs() -> None:
        for other in case.others:
            module, _, name = other.partition(":")
            getattr(importlib.import_module(module), name)().instrument(skip_dep_check=True, **more)

    def ours() -> None:
        if case.order != "theirs alone":
            instrumentor.instrument(case.ours)

    for load in (ours, theirs) if case.order == "ours first" else (theirs, ours):
        load()
    made: list[dict[str, Any]] = []
    with ModelServer() as server:
        calls = CALLS[case.library](server)
        for content in case.contents:
            os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = content
            for name in calls if content == "NO_CONTENT" else WITH_CONTENT & calls.keys():
                mine = captured(SpanContent(content))
                capture.install(mine.capture)
                if name == "error":
                    server.queue(Reply(failure=Failure(429, "No.", "requests")))
                exporter.clear()
                try:
                    calls[name]()
                except Exception:
                    if name != "error":
                        raise
                found = mine.close()
                made.append(
                    {
                        "call": name,
                        "content": content,
                        "events": [event for one in found for event in event_facts(one)],
                        "records": len(found),
                        "spans": [span_facts(span) for span in exporter.get_finished_spans()],
                        "owners": foreign.owners(),
                    }
                )
    return {
        "calls": made,
        "counted": counted(reader),
        "states": {state.name: asdict(state) for state in instrumentor.states()},
        "errors": guard.counters(),
    }


def main() -> None:
    """Runs the cases, each in a fork."""
    cases = [Case(**given) for given in json.loads(sys.argv[1])]
    for name in ("openai", "anthropic", "langchain_openai"):
        importlib.import_module(name)
    for case in cases:
        for other in case.others:
            importlib.import_module(other.partition(":")[0])
    for case in cases:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            print(json.dumps(played(case)), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"failed: {case}")


if __name__ == "__main__":
    main()
