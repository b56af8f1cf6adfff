"""What the tests of the openai patch share: calls of every surface, and the facts and spans that come of them."""

import inspect
from typing import Any, NoReturn, cast

import openai
from openai import AsyncOpenAI, OpenAI
from openai.resources.chat.completions import Completions

from tests.instrumentation.recording import Captured
from tests.support.not_run import not_run
from tests.support.oracle import Finding, Rules, check_spans, failures
from tests.support.otlp_decode import Span, span_from_readable

VERSION = tuple(int(part) for part in openai.__version__.split(".")[:3])
HAS_METADATA = "metadata" in inspect.signature(Completions.create).parameters
HAS_RESPONSES = VERSION >= (1, 66)
HAS_PARSE = VERSION >= (1, 92)
HAS_STREAM_HELPER = VERSION >= (1, 92)
HAS_STREAMING_RESPONSE = VERSION >= (1, 8)
TAKES_GENERATORS = VERSION >= (1, 26)
"""1.1.0 itself cannot send a generator, 1.26.0 can."""

INCLUDE_USAGE = {"stream_options": {"include_usage": True}}
STREAM_WITH_USAGE: dict[str, Any] = {
    "stream": True,
    **(INCLUDE_USAGE if VERSION >= (1, 26) else {"extra_body": INCLUDE_USAGE}),
}
"""How a stream is asked for its usage; the parameter is newer than the API's."""

HELLO: Any = [{"role": "user", "content": "hello"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "look_up_order",
            "description": "Finds an order.",
            "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}},
        },
    }
]


def lacking(what: str) -> NoReturn:
    """Ends the test as not run: the release that is installed has no `what`."""
    not_run(f"{what}; openai {openai.__version__} has none")


def model(scenario: str | None = None) -> str:
    """The model's name with which a program asks the server for a scenario."""
    return "gpt-4o-mini" if scenario is None else f"gpt-4o-mini+{scenario}"


def ask(client: OpenAI, scenario: str | None = None, **more: Any) -> Any:
    """chat.completions.create, without the SDK's overloads."""
    create: Any = client.chat.completions.create
    return create(**{"model": model(scenario), "messages": HELLO, **more})


async def aask(client: AsyncOpenAI, scenario: str | None = None, **more: Any) -> Any:
    """`ask`, asynchronous."""
    create: Any = client.chat.completions.create
    return await create(**{"model": model(scenario), "messages": HELLO, **more})


def respond(client: OpenAI, scenario: str | None = None, **more: Any) -> Any:
    """responses.create, without the SDK's overloads."""
    create: Any = cast("Any", client).responses.create
    return create(**{"model": model(scenario), "input": "hello", **more})


def model_events(captured: Captured) -> list[dict[str, Any]]:
    """Closes all windows; their model calls and embeddings."""
    kinds = ("llm_call", "embeddings")
    return [event for trace in captured.close() for event in trace["events"] if event["kind"] in kinds]


def only_event(captured: Captured) -> dict[str, Any]:
    """The one model call."""
    (event,) = model_events(captured)
    return event


def model_spans(captured: Captured) -> list[Span]:
    """Ended spans of model calls and embeddings."""
    wanted = ("chat", "embeddings")
    return [s for s in all_spans(captured) if s.attributes.get("gen_ai.operation.name") in wanted]


def all_spans(captured: Captured) -> list[Span]:
    """All ended spans."""
    return [span_from_readable(span) for span in captured.spans()]


def breaches(captured: Captured, rules: Rules | None = None) -> list[Finding]:
    """What breaks a rule of the conventions, on any span of ours."""
    return failures(check_spans(all_spans(captured), rules))
