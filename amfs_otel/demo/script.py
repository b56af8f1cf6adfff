"""What the demo's model says: replies as data, and the pure choice of one reply for one request.

No model runs anywhere. A :class:`Rule` says "when the conversation holds this text and has come this far, answer so";
a *scenario* is a reply with a name that a program asks for through the model's name, ``gpt-4o-mini+rate-limited``.
Wire bytes are made from these by :mod:`amfs_otel.demo.wire`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

Json: TypeAlias = Mapping[str, Any]
"""A decoded JSON object of the provider's wire format."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the provider reports them.

    Attributes:
        prompt: All input tokens, cached ones included.
        completion: All output tokens, reasoning ones included.
        cached: The part of ``prompt`` that came from the provider's cache.
        reasoning: The part of ``completion`` that was reasoning.
    """

    prompt: int = 143
    completion: int = 58
    cached: int = 64
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function that the model asks for; ``arguments`` is the JSON text, streamed in fragments."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An error body. ``retry_after_s`` becomes the header ``retry-after``."""

    status: int
    message: str
    type: str
    code: str | None = None
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How a stream flows, counted in chunks that carry data.

    Attributes:
        delay_s: Wait before each chunk, in seconds.
        hang_after: Stop after so many chunks until the server's ``resume`` event is set; None never hangs.
        cut_after: Close the connection after so many chunks, without an end; None sends all.
        fail_after: Send an error object in the stream after so many chunks, then end it; None sends all.
    """

    delay_s: float = 0.0
    hang_after: int | None = None
    cut_after: int | None = None
    fail_after: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model, plain or streamed alike.

    Attributes:
        text: The assistant's text; None where it only calls tools or refuses.
        tool_calls: Functions it asks for.
        refusal: The provider's refusal text.
        finish_reason: As the provider names it; None derives ``tool_calls`` or ``stop``.
        usage: Token counts; None leaves ``usage`` out, as some compatible servers do.
        failure: An error instead of an answer; all else is then ignored.
        pace: How the stream flows.
    """

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = Usage()
    failure: Failure | None = None
    pace: Pace = field(default=Pace())

    @property
    def finish(self) -> str:
        """The finish reason that goes on the wire."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


@dataclass(frozen=True, slots=True)
class Rule:
    """Answer ``reply`` in a conversation that holds ``says``, ``turn`` answers after its last user message."""

    says: str
    turn: int
    reply: Reply


LOOK_UP_ORDER = ToolCall("call_look_up_order", "look_up_order", '{"order_id": "48213", "with_history": true}')

SCENARIOS: Mapping[str, Reply] = {
    "tools": Reply(tool_calls=(LOOK_UP_ORDER,)),
    "text-and-tools": Reply(
        text="Let me look that up.",
        tool_calls=(LOOK_UP_ORDER, ToolCall("call_courier", "courier_status", '{"depot": "Leeds"}')),
    ),
    "reasoning": Reply(text="Twelve.", usage=Usage(prompt=1310, completion=402, cached=1024, reasoning=384)),
    "no-usage": Reply(text="This server counts nothing.", usage=None),
    "refusal": Reply(refusal="I cannot help with that."),
    "content-filter": Reply(text="The first words", finish_reason="content_filter"),
    "length": Reply(text="An answer that does not", finish_reason="length"),
    "failed": Reply(text="The first words", finish_reason="failed", usage=None),
    "unauthorized": Reply(
        failure=Failure(401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key")
    ),
    "rate-limited": Reply(
        failure=Failure(429, "Rate limit reached for requests.", "requests", "rate_limit_exceeded", retry_after_s=1)
    ),
    "server-error": Reply(failure=Failure(500, "The server had an error.", "server_error")),
    "slow": Reply(text="one two three four five", pace=Pace(delay_s=0.02)),
    "hang": Reply(text="one two three four five", pace=Pace(hang_after=3)),
    "cut": Reply(text="one two three four five", pace=Pace(cut_after=3)),
    "error-mid-stream": Reply(text="one two three four five", pace=Pace(fail_after=3)),
}
"""Replies by the name that a program appends to the model's, after a plus sign."""


def model_and_scenario(name: str) -> tuple[str, str | None]:
    """Split ``gpt-4o-mini+hang`` into the model and the scenario; the latter is None where none is named."""
    model, plus, scenario = name.partition("+")
    return model, scenario if plus else None


def reply_for(request: Json, rules: Sequence[Rule]) -> Reply:
    """The reply to one ``chat.completions`` request: its scenario, else the first rule that fits, else an echo.

    Args:
        request: The decoded request body, already checked by :func:`amfs_otel.demo.wire.failure_of`.
        rules: Tried in order.

    Returns:
        The same reply for the same request, always.

    Raises:
        KeyError: The model's name asks for a scenario that does not exist.
    """
    _, scenario = model_and_scenario(request["model"])
    if scenario is not None:
        return SCENARIOS[scenario]
    messages = cast("Sequence[Json]", request["messages"])
    last_user = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
    turn = sum(message["role"] == "assistant" for message in messages[last_user + 1 :])
    said = " ".join(text_of(message) for message in messages)
    for rule in rules:
        if rule.turn == turn and rule.says in said:
            return rule.reply
    return Reply(text=f"You said: {text_of(messages[-1])}")


def text_of(message: Json) -> str:
    """The text of a message whose content is a string, a list of typed parts, or absent."""
    content: object = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Json]", content or ())
    return " ".join(str(part.get("text", "")) for part in parts)
