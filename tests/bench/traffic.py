"""What is said to OpenAI, and what it answers: one support conversation on every endpoint that is measured or checked.

Runs in the environment of every instrumentation: only the standard library is imported.
"""

from __future__ import annotations

import json
from typing import Any

from tests.bench.transport import Provider, Replies, event

MODEL = "gpt-4o-mini"
SYSTEM = (
    "You answer customers of a bicycle shop. Look an order up before you say anything about it, never guess a delivery "
    "date, and keep it to three sentences. If the customer wants a refund, hand over to a colleague at once."
)
QUESTION = (
    "Good morning, my order 73155 has two inner tubes and a saddle in it. The saddle came on Friday, the tubes did not. "
    "Are they on their way, or must I order them anew? I would need them before the weekend if that is possible at all."
)
ANSWER = (
    "Let me see what became of the inner tubes of order 73155. " + "They left our store and are with the carrier. " * 9
)
WORDS = ("the", "tubes", "left", "our", "store", "and", "should", "be", "with", "you", "on", "Thursday", "morning")
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Find an order, what it holds, and where each of its parcels is.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "string"}, "parcels": {"type": "boolean"}},
            "required": ["number"],
        },
    },
}
CALL_ID = "call_Wq81LmNz"
_TOOL_ARGUMENTS = json.dumps({"number": "73155", "parcels": True})
_USAGE: dict[str, Any] = {
    "prompt_tokens": 161,
    "completion_tokens": 74,
    "total_tokens": 235,
    "prompt_tokens_details": {"cached_tokens": 96, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}


def chat_arguments(**more: Any) -> dict[str, Any]:
    """Arguments of a chat completion with a tool; message texts of about 0.4 KB."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    chosen = {"temperature": 0.3, "max_tokens": 300, "top_p": 0.95, "seed": 11}
    return {"model": MODEL, "messages": messages, "tools": [TOOL], **chosen, **more}


def embedding_arguments() -> dict[str, Any]:
    """Arguments of an embedding of one text."""
    return {"model": "text-embedding-3-small", "input": [QUESTION], "encoding_format": "float"}


def responses_arguments(**more: Any) -> dict[str, Any]:
    """`chat_arguments` as the Responses API takes them."""
    tool = {"type": "function", "strict": False, **TOOL["function"]}
    asked = {"instructions": SYSTEM, "input": [{"role": "user", "content": QUESTION}], "max_output_tokens": 300}
    return {"model": MODEL, "temperature": 0.3, "tools": [tool], **asked, **more}


def chat_body(answer: str = ANSWER, *, tool: bool = True) -> bytes:
    """The provider's reply to `chat_arguments`: a text of about 0.5 KB and one tool call."""
    call = {"id": CALL_ID, "type": "function", "function": {"name": "find_order", "arguments": _TOOL_ARGUMENTS}}
    message: dict[str, Any] = {"role": "assistant", "content": answer, "refusal": None, "annotations": []}
    if tool:
        message["tool_calls"] = [call]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if tool else "stop"}
    return json.dumps({**_head("chat.completion"), "choices": [choice], "usage": _USAGE}).encode()


def chat_events(pieces: int) -> list[bytes]:
    """The same as a stream: `pieces` of text between a role, a finish reason, the usage and the end mark."""
    head = _head("chat.completion.chunk")

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event({**head, "choices": [choice], "usage": None})

    texts = [chunk({"content": _word(number)}) for number in range(pieces)]
    usage = event({**head, "choices": [], "usage": _USAGE})
    return [chunk({"role": "assistant", "content": ""}), *texts, chunk({}, "stop"), usage, b"data: [DONE]\n\n"]


def _word(number: int) -> str:
    return WORDS[number % len(WORDS)] + " "


def _head(kind: str) -> dict[str, Any]:
    told = {"id": "chatcmpl-Q2v8Rk4d", "object": kind, "created": 1790000000, "model": f"{MODEL}-2024-07-18"}
    return {**told, "service_tier": "default", "system_fingerprint": "fp_51c0aa9e7b"}


def embedding_body() -> bytes:
    """256 numbers."""
    vector = [round((number * 29 % 251) / 251 - 0.5, 6) for number in range(256)]
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    usage = {"prompt_tokens": 44, "total_tokens": 44}
    return json.dumps({"object": "list", "model": "text-embedding-3-small", "data": data, "usage": usage}).encode()


def responses_body() -> bytes:
    """The reply of the Responses API: the text and the tool call."""
    arguments = {"name": "find_order", "arguments": _TOOL_ARGUMENTS}
    call = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": CALL_ID, **arguments}
    return json.dumps(_response([_text_item(ANSWER), call])).encode()


def responses_events(pieces: int) -> list[bytes]:
    """A reply of the Responses API as a stream of `pieces` and eight events around them."""
    words = [_word(number) for number in range(pieces)]
    item, text = _text_item("".join(words)), {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    started = _response([], status="in_progress")
    empty = {"type": "output_text", "text": "", "annotations": []}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **text, "part": empty},
        *({"type": "response.output_text.delta", **text, "delta": word, "logprobs": []} for word in words),
        {"type": "response.output_text.done", **text, "text": "".join(words), "logprobs": []},
        {"type": "response.content_part.done", **text, "part": item["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": _response([item])},
    ]
    return [event({**one, "sequence_number": number}, named=True) for number, one in enumerate(told)]


def _text_item(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": content}


def _response(output: list[dict[str, Any]], status: str = "completed") -> dict[str, Any]:
    usage = {
        "input_tokens": 161,
        "input_tokens_details": {"cached_tokens": 96},
        "output_tokens": 74,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 235,
    }
    chosen = {"parallel_tool_calls": True, "temperature": 0.3, "tool_choice": "auto", "top_p": 1.0, "tools": []}
    told = {"id": "resp_1", "object": "response", "created_at": 1790000000, "model": f"{MODEL}-2024-07-18"}
    nothing: dict[str, Any] = {"error": None, "incomplete_details": None, "instructions": None, "metadata": {}}
    return {**told, **chosen, **nothing, "status": status, "output": output, "usage": usage if output else None}


def provider(**state: Any) -> Provider:
    """OpenAI in memory."""
    endpoints = {
        "/chat/completions": Replies(chat_body, chat_events),
        "/embeddings": Replies(embedding_body),
        "/responses": Replies(responses_body, responses_events),
    }
    return Provider(endpoints, **state)


def client(*, pieces: int = 200, asynchronous: bool = False) -> Any:
    """A client of OpenAI in memory, whose streams have `pieces`."""
    return provider(pieces=pieces).client("openai", asynchronous=asynchronous)
