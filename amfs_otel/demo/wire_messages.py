"""A reply as the bytes of Anthropic's ``messages``, plain and streamed, and of its errors.

Source: the provider's public API reference for ``POST /v1/messages``, checked against what ``anthropic`` 0.40.0 to
2.14.0 parse. Bedrock's and Vertex's paths for the same request are understood, too; they carry the model in the path.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from amfs_otel.demo.script import Failure, Json, Reply, ToolCall, Usage, model_and_scenario
from amfs_otel.demo.wire import FRAGMENT_CHARS

MESSAGES_PATH = "/v1/messages"
NEEDED: Mapping[str, tuple[type, ...]] = {"model": (str,), "messages": (list,), "max_tokens": (int,)}
OVERLOADED = Failure(529, "Overloaded", "overloaded_error")
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBwcm92aWRlcg=="

_IN_PATH = (
    re.compile(r"/model/(?P<model>[^/]+)/invoke$"),
    re.compile(r"/publishers/anthropic/models/(?P<model>[^/]+):(?:rawPredict|streamRawPredict)$"),
)
_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


@dataclass(frozen=True, slots=True)
class MessageReply(Reply):
    """A reply with what only this provider has.

    Attributes:
        thinking: The model's thoughts, before its text.
        cache_written: The part of ``usage.prompt`` that was written to the cache.
        more: Further content blocks, as they stand on the wire.
    """

    thinking: str | None = None
    cache_written: int = 0
    more: tuple[Json, ...] = ()


def asked_of(path: str, body: object) -> Json | None:
    """A messages request, whichever platform's ``path`` it came by; ``None`` where the path is another.

    Args:
        path: The path asked for, with its query.
        body: The decoded body; what is no object counts as an empty one.
    """
    place = path.partition("?")[0]
    request: Json = cast("Json", body) if isinstance(body, dict) else {}
    if place == MESSAGES_PATH:
        return request
    found = next((match for pattern in _IN_PATH if (match := pattern.search(place))), None)
    return None if found is None else {**request, "model": found["model"]}


def refusal_of(request: Json, headers: Mapping[str, str]) -> Failure | None:
    """What the provider refuses before any model runs: no key, a missing or misplaced parameter."""
    if not headers.get("x-api-key") and not headers.get("authorization", "").startswith("Bearer "):
        return Failure(401, "x-api-key header is required", "authentication_error")
    for name, kinds in NEEDED.items():
        if not isinstance(request.get(name), kinds) or not request[name]:
            return Failure(400, f"{name}: Field required", "invalid_request_error")
    return None


def conversation_of_messages(request: Json) -> Json:
    """The same request as ``chat.completions`` would put it, for the script to choose a reply."""
    said = [_as_chat(message) for message in cast("Sequence[Json]", request["messages"])]
    return {"model": request["model"], "messages": said}


def _as_chat(message: Json) -> Json:
    content = message.get("content")
    blocks = cast("Sequence[Json]", content) if isinstance(content, list) else ()
    answers = [block for block in blocks if block.get("type") == "tool_result"]
    return {**message, "role": "tool", "content": answers[-1].get("content")} if answers else message


def message_error(failure: Failure) -> bytes:
    """The JSON body of an error. Its type follows from the status, as the provider's does."""
    kind = _ERRORS.get(failure.status, "api_error")
    return _json({"type": "error", "error": {"type": kind, "message": failure.message}})


def message_error_event(failure: Failure = OVERLOADED) -> bytes:
    """An error in the middle of a stream, after which the provider ends it."""
    return b"event: error\ndata: " + message_error(failure) + b"\n\n"


def message_body(reply: Reply, request: Json, number: int) -> bytes:
    """The JSON body of a plain answer; ``number`` makes its id."""
    return _json(
        {
            **_envelope(request, number),
            "content": _blocks(reply),
            "stop_reason": _REASONS.get(reply.finish, reply.finish),
            "usage": None if reply.usage is None else _usage_object(reply, reply.usage),
        }
    )


def message_events(reply: Reply, request: Json, number: int) -> Iterator[bytes]:
    """The events of a streamed answer, a ping among them. Usage is split: input at the start, output at the end."""
    usage = None if reply.usage is None else _usage_object(reply, reply.usage)
    begun = None if usage is None else {**usage, "output_tokens": 1}
    if begun is not None:
        begun.pop("output_tokens_details", None)
    yield _event("message_start", message={**_envelope(request, number), "content": [], "usage": begun})
    yield _event("ping")
    for index, block in enumerate(_blocks(reply)):
        empty, deltas = _opened(block)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ended = {"stop_reason": _REASONS.get(reply.finish, reply.finish), "stop_sequence": None}
    final = {} if usage is None else {k: usage[k] for k in ("output_tokens", "output_tokens_details") if k in usage}
    yield _event("message_delta", delta=ended, **({"usage": final} if final else {}))
    yield _event("message_stop")


def _opened(block: Json) -> tuple[Json, list[Json]]:
    """A block as it starts, and the deltas that make it whole."""
    kind = block["type"]
    if kind == "text":
        words = str(block["text"]).split(" ")
        pieces = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
    if kind == "thinking":
        thoughts = {"type": "thinking_delta", "thinking": block["thinking"]}
        signed = {"type": "signature_delta", "signature": SIGNATURE}
        return {**block, "thinking": "", "signature": ""}, [thoughts, signed]
    if kind in ("tool_use", "server_tool_use"):
        text = json.dumps(block["input"])
        starts = range(0, len(text), FRAGMENT_CHARS)
        pieces = ["", *(text[start : start + FRAGMENT_CHARS] for start in starts)]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block, []


def _blocks(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    thinking = reply.thinking if isinstance(reply, MessageReply) else None
    if thinking is not None:
        blocks.append({"type": "thinking", "thinking": thinking, "signature": SIGNATURE})
    said = reply.text if reply.text is not None else reply.refusal
    if said is not None:
        blocks.append({"type": "text", "text": said})
    blocks.extend(_tool_use(call) for call in reply.tool_calls)
    if isinstance(reply, MessageReply):
        blocks.extend(dict(block) for block in reply.more)
    return blocks


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}


def _usage_object(reply: Reply, usage: Usage) -> dict[str, Any]:
    """Token counts: ``input_tokens`` exclude what the cache gave or took."""
    written = reply.cache_written if isinstance(reply, MessageReply) else 0
    found: dict[str, Any] = {
        "input_tokens": usage.prompt - usage.cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
        "service_tier": "standard",
    }
    if usage.reasoning:
        found["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return found


def _envelope(request: Json, number: int) -> dict[str, Any]:
    model, _ = model_and_scenario(request["model"])
    return {
        "id": f"msg_demo{number:06d}",
        "type": "message",
        "role": "assistant",
        "model": f"{model}-20260301" if model == "claude-sonnet-5" else model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _event(kind: str, **members: object) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + _json({"type": kind, **members}) + b"\n\n"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
