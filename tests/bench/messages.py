"""What is said to Anthropic, and what it answers: the conversation of `traffic` as messages.

Runs in the environment of every instrumentation: only the standard library is imported.
"""

from __future__ import annotations

import json
from typing import Any

from tests.bench.traffic import ANSWER, QUESTION, SYSTEM, TOOL, WORDS
from tests.bench.transport import Provider, Replies, event

MODEL = "claude-sonnet-5"
TOOL_USE_ID = "toolu_7Kd2"
_USAGE: dict[str, Any] = {
    "input_tokens": 65,
    "output_tokens": 74,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 96,
    "service_tier": "standard",
}


def message_arguments(**more: Any) -> dict[str, Any]:
    """Arguments of a message with a tool; texts of about 0.4 KB."""
    function = TOOL["function"]
    tool = {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}
    messages = [{"role": "user", "content": QUESTION}]
    return {"model": MODEL, "max_tokens": 300, "system": SYSTEM, "messages": messages, "tools": [tool], **more}


def message_body() -> bytes:
    """The reply: a text of about 0.5 KB and one use of the tool."""
    use = {"type": "tool_use", "id": TOOL_USE_ID, "name": "find_order", "input": {"number": "73155", "parcels": True}}
    content = [{"type": "text", "text": ANSWER}, use]
    return json.dumps(_message(content=content, stop_reason="tool_use", usage=_USAGE)).encode()


def message_events(pieces: int) -> list[bytes]:
    """A text as a stream of `pieces`, with six events around them."""
    started = _message(content=[], stop_reason=None, usage={**_USAGE, "output_tokens": 1})
    stopped = {"stop_reason": "end_turn", "stop_sequence": None}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": _delta(number)} for number in range(pieces)),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stopped, "usage": {"output_tokens": pieces}},
        {"type": "message_stop"},
    ]
    return [event(one, named=True) for one in told]


def _delta(number: int) -> dict[str, str]:
    return {"type": "text_delta", "text": WORDS[number % len(WORDS)] + " "}


def _message(**more: Any) -> dict[str, Any]:
    told = {"id": "msg_3Rf9", "type": "message", "role": "assistant", "model": f"{MODEL}-20261001"}
    return {**told, "stop_sequence": None, **more}


def provider(**state: Any) -> Provider:
    """Anthropic in memory."""
    return Provider({"/messages": Replies(message_body, message_events)}, **state)
