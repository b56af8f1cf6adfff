"""A reply as the bytes of OpenAI's ``responses``, plain and streamed, and of ``embeddings``.

Source: the provider's public API reference for ``POST /v1/responses`` and ``POST /v1/embeddings``, checked against what
``openai`` 1.1.0 (embeddings) and 3.57.0 parse.
"""

import base64
import itertools
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from amfs_otel.demo.script import Json, Reply, Usage
from amfs_otel.demo.wire import CREATED, FRAGMENT_CHARS, model_of

DIMENSIONS = 8
"""Length of the vectors, where the request asks for no other."""

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def conversation_of(request: Json) -> Json:
    """The same request as ``chat.completions`` would put it, for the script to choose a reply."""
    given = request["input"]
    if isinstance(given, str):
        return {"model": request["model"], "messages": [{"role": "user", "content": given}]}
    items = cast("Sequence[Json]", given)
    return {"model": request["model"], "messages": [{"role": "assistant", **item} for item in items]}


def response_body(reply: Reply, request: Json, number: int) -> bytes:
    """The JSON body of a plain answer; ``number`` makes its ids."""
    return _json(_response(reply, request, number))


def response_events(reply: Reply, request: Json, number: int) -> Iterator[bytes]:
    """The events of a streamed answer, the closing one included; there is no ``[DONE]``."""
    whole = _response(reply, request, number)
    numbers = itertools.count()
    begun: dict[str, Any] = {
        **whole,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "incomplete_details": None,
        "error": None,
    }
    yield _event("response.created", next(numbers), response=begun)
    yield _event("response.in_progress", next(numbers), response=begun)
    for index, item in enumerate(cast("list[Json]", whole["output"])):
        for kind, members in _item_events(item, index):
            yield _event(kind, next(numbers), **members)
    yield _event(f"response.{whole['status']}", next(numbers), response=whole)


def _item_events(item: Json, index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events that build one item of the output: opened, its text in fragments, done."""
    is_message = item["type"] == "message"
    empty: dict[str, Any] = {"content": []} if is_message else {"arguments": ""}
    place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    opened = {**item, "status": "in_progress", **empty}
    yield "response.output_item.added", {"output_index": index, "item": opened}
    if is_message:
        place["content_index"] = 0
        part: Json = item["content"][0]
        blank = {**part, ("text" if "text" in part else "refusal"): ""}
        yield "response.content_part.added", {**place, "part": blank}
    for fragment in _fragments(item):
        yield _delta_kind(item), {**place, "delta": fragment}
    if is_message:
        yield "response.content_part.done", {**place, "part": item["content"][0]}
    yield "response.output_item.done", {"output_index": index, "item": item}


def embeddings_body(request: Json) -> bytes:
    """The JSON body of an ``embeddings`` answer: one vector per text, the same for the same text."""
    given = request["input"]
    texts = [given] if isinstance(given, str) else list(cast("Sequence[Any]", given))
    length = int(request.get("dimensions") or DIMENSIONS)
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(text, length, request.get("encoding_format"))}
        for index, text in enumerate(texts)
    ]
    count = sum(len(str(text).split()) for text in texts)
    usage = {"prompt_tokens": count, "total_tokens": count}
    return _json({"object": "list", "model": model_of(request), "data": data, "usage": usage})


def _vector(text: object, length: int, encoding: object) -> list[float] | str:
    values = [((sum(str(text).encode()) + place) % 97) / 97 for place in range(length)]
    return base64.b64encode(struct.pack(f"<{length}f", *values)).decode() if encoding == "base64" else values


def _response(reply: Reply, request: Json, number: int) -> dict[str, Any]:
    reason = _INCOMPLETE.get(reply.finish)
    status = "failed" if reply.finish == "failed" else "completed" if reason is None else "incomplete"
    return {
        "id": f"resp_demo{number:06d}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": {"code": "server_error", "message": "The model failed."} if status == "failed" else None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": request.get("instructions"),
        "metadata": request.get("metadata") or {},
        "model": model_of(request),
        "output": _output(reply, number),
        "parallel_tool_calls": True,
        "previous_response_id": request.get("previous_response_id"),
        "service_tier": "default",
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None if reply.usage is None else _usage_object(reply.usage),
    }


def _output(reply: Reply, number: int) -> list[dict[str, Any]]:
    content: list[Mapping[str, Any]] = []
    if reply.text is not None:
        content.append({"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []})
    if reply.refusal is not None:
        content.append({"type": "refusal", "refusal": reply.refusal})
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    calls = [
        {
            "type": "function_call",
            "id": f"fc_demo{number:06d}_{place}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for place, call in enumerate(reply.tool_calls)
    ]
    return [*([{"id": f"msg_demo{number:06d}", **message}] if content else []), *calls]


def _delta_kind(item: Json) -> str:
    if item["type"] != "message":
        return "response.function_call_arguments.delta"
    refused = item["content"][0]["type"] == "refusal"
    return "response.refusal.delta" if refused else "response.output_text.delta"


def _fragments(item: Json) -> list[str]:
    if item["type"] == "message":
        part = item["content"][0]
        words = str(part.get("text", part.get("refusal"))).split(" ")
        return [word if place == 0 else f" {word}" for place, word in enumerate(words)]
    text = str(item["arguments"])
    return [text[start : start + FRAGMENT_CHARS] for start in range(0, len(text), FRAGMENT_CHARS)]


def _usage_object(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


def _event(kind: str, number: int, **members: object) -> bytes:
    body = _json({"type": kind, "sequence_number": number, **members})
    return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
