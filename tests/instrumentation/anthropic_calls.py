"""What the tests of the anthropic patch share: calls of every surface, and the facts and spans that come of them."""

import importlib.util
import inspect
from typing import Any, NoReturn

import anthropic
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.bedrock import AnthropicBedrock
from anthropic.lib.streaming import MessageStream
from anthropic.resources.messages import Messages

from amfs_otel.demo.script import LOOK_UP_ORDER, Failure, Usage
from amfs_otel.demo.wire_messages import MessageReply
from tests.instrumentation.recording import Captured
from tests.support.not_run import not_run
from tests.support.oracle import Finding, Rules, check_spans, failures
from tests.support.otlp_decode import Span, span_from_readable

VERSION = tuple(int(part) for part in anthropic.__version__.split(".")[:2])
HAS_PARSE = hasattr(Messages, "parse")
HAS_BEDROCK_KEYS = "api_key" in inspect.signature(AnthropicBedrock.__init__).parameters
HAS_NATIVE_SPANS = importlib.util.find_spec("anthropic._tracing") is not None
HELPERS_MAKE_STREAMS = "raw_stream" not in inspect.signature(MessageStream.__init__).parameters

MODEL = "claude-sonnet-5"
HELLO: Any = [{"role": "user", "content": "hello"}]
TOOLS: Any = [
    {
        "name": "look_up_order",
        "description": "Finds an order.",
        "input_schema": {"type": "object", "properties": {"order_id": {"type": "string"}}},
    }
]
EVERYTHING = MessageReply(
    text="Let me look that up.",
    thinking="The user wants an order.",
    tool_calls=(LOOK_UP_ORDER,),
    usage=Usage(prompt=622, completion=58, cached=512, reasoning=12),
    cache_written=100,
)
OVERLOADED = MessageReply(failure=Failure(529, "Overloaded secret-1", "overloaded_error"))


def lacking(what: str) -> NoReturn:
    """Ends the test as not run: the release that is installed has no `what`."""
    not_run(f"{what}; anthropic {anthropic.__version__} has none")


def request(scenario: str | None = None, **more: Any) -> dict[str, Any]:
    """The arguments of a call; the server is asked for a scenario by the model's name."""
    model = MODEL if scenario is None else f"{MODEL}+{scenario}"
    return {"model": model, "max_tokens": 100, "messages": HELLO, **more}


def ask(client: Anthropic, scenario: str | None = None, **more: Any) -> Any:
    """messages.create, without the SDK's overloads."""
    create: Any = client.messages.create
    return create(**request(scenario, **more))


def raw(client: Anthropic, **more: Any) -> Any:
    """messages.with_raw_response.create, without the SDK's overloads."""
    create: Any = client.messages.with_raw_response.create
    return create(**request(**more))


async def aask(client: AsyncAnthropic, scenario: str | None = None, **more: Any) -> Any:
    """`ask`, asynchronous."""
    create: Any = client.messages.create
    return await create(**request(scenario, **more))


def model_events(captured: Captured) -> list[dict[str, Any]]:
    """Closes all windows; their model calls."""
    return [event for trace in captured.close() for event in trace["events"] if event["kind"] == "llm_call"]


def only_event(captured: Captured) -> dict[str, Any]:
    """The one model call."""
    (event,) = model_events(captured)
    return event


def model_spans(captured: Captured) -> list[Span]:
    """Ended spans of model calls, whoever made them."""
    return [s for s in all_spans(captured) if s.attributes.get("gen_ai.operation.name") == "chat"]


def all_spans(captured: Captured) -> list[Span]:
    """All ended spans."""
    return [span_from_readable(span) for span in captured.spans()]


def breaches(captured: Captured, rules: Rules | None = None) -> list[Finding]:
    """What breaks a rule of the conventions, on any span."""
    return failures(check_spans(all_spans(captured), rules))


def text_of(event: dict[str, Any]) -> str:
    """The first text that the model said."""
    return next(part["content"] for part in event["output_messages"][0]["parts"] if part["type"] == "text")
