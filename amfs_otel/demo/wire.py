"""A :class:`~amfs_otel.demo.script.Reply` as the bytes of OpenAI's ``chat.completions``: JSON bodies and event streams.

Source: the provider's public API reference for ``POST /v1/chat/completions``, checked against what ``openai`` 1.1.0 to
3.57.0 parse. Ids and times are fixed or counted, so that the same conversation gives the same bytes.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from amfs_otel.demo.script import Failure, Json, Reply, ToolCall, Usage, model_and_scenario

CREATED = 1_773_585_000
"""Seconds since the epoch in every reply: 2026-03-15 14:30 UTC, the seed's moment of decision."""

DONE = b"data: [DONE]\n\n"
"""The last event of a stream that ended well."""

NEEDED_BY_CHAT: Mapping[str, tuple[type, ...]] = {"model": (str,), "messages": (list,)}
NEEDED_WITH_INPUT: Mapping[str, tuple[type, ...]] = {"model": (str,), "input": (str, list)}
"""Required parameters of ``responses`` and ``embeddings``."""

FRAGMENT_CHARS = 9
"""How many characters of a tool call's arguments one chunk carries."""


def failure_of(
    request: object, authorization: str | None, needed: Mapping[str, tuple[type, ...]] = NEEDED_BY_CHAT
) -> Failure | None:
    """What the provider refuses before any model runs: no key, no JSON object, a missing or misplaced parameter.

    Args:
        request: The decoded body.
        authorization: That header.
        needed: The endpoint's required parameters and their types.
    """
    if not (authorization or "").startswith("Bearer "):
        return Failure(401, "You didn't provide an API key.", "invalid_request_error")
    if not isinstance(request, dict):
        return _invalid("We could not parse the JSON body of your request.")
    body = cast("Json", request)
    for name, kinds in needed.items():
        if not isinstance(body.get(name), kinds) or not body[name]:
            return _invalid(f"Missing required parameter: '{name}'.")
    if body.get("stream_options") is not None and not body.get("stream"):
        return _invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    return None


def _invalid(message: str) -> Failure:
    return Failure(400, message, "invalid_request_error")


def error_body(failure: Failure) -> bytes:
    """The JSON body of an error."""
    return _json({"error": _error(failure)})


def _error(failure: Failure) -> dict[str, object]:
    return {"message": failure.message, "type": failure.type, "param": None, "code": failure.code}


def completion_body(reply: Reply, request: Json, number: int) -> bytes:
    """The JSON body of a plain answer; ``number`` makes its id."""
    message: dict[str, object] = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    if reply.tool_calls:
        message["tool_calls"] = [_tool_call(call) for call in reply.tool_calls]
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": reply.finish}
        for index in range(_choice_count(request))
    ]
    body = {**_envelope(request, number, "chat.completion"), "choices": choices}
    if reply.usage is not None:
        body["usage"] = usage_object(reply.usage)
    return _json(body)


def completion_chunks(reply: Reply, request: Json, number: int) -> Iterator[bytes]:
    """The events of a streamed answer, without :data:`DONE`.

    First the role, then text word by word, tool calls (name first, then argument fragments), the finish reason, and,
    where the request asked with ``stream_options.include_usage``, one event with usage and no choices.
    """
    options: Json = request.get("stream_options") or {}
    wants_usage = bool(options.get("include_usage")) and reply.usage is not None
    envelope = _envelope(request, number, "chat.completion.chunk")
    if wants_usage:
        envelope["usage"] = None
    choices = range(_choice_count(request))

    def event(delta: Json, finish: str | None = None) -> Iterator[bytes]:
        for index in choices:
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield _event({**envelope, "choices": [choice]})

    yield from event({"role": "assistant", "content": None if reply.text is None else "", "refusal": None})
    for delta in _deltas(reply):
        yield from event(delta)
    yield from event({}, reply.finish)
    if wants_usage and reply.usage is not None:
        yield _event({**envelope, "choices": [], "usage": usage_object(reply.usage)})


def _deltas(reply: Reply) -> Iterator[dict[str, object]]:
    for key, text in (("content", reply.text), ("refusal", reply.refusal)):
        for position, word in enumerate((text or "").split(" ") if text else ()):
            yield {key: word if position == 0 else f" {word}"}
    for index, call in enumerate(reply.tool_calls):
        head = _tool_call(ToolCall(call.id, call.name, ""))
        yield {"tool_calls": [{"index": index, **head}]}
        for start in range(0, len(call.arguments), FRAGMENT_CHARS):
            fragment = call.arguments[start : start + FRAGMENT_CHARS]
            yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def error_event(failure: Failure) -> bytes:
    """An error in the middle of a stream, after which the provider ends it."""
    return _event({"error": _error(failure)})


def usage_object(usage: Usage) -> dict[str, object]:
    """The ``usage`` object: totals include what the details name again."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def model_of(request: Json) -> str:
    """The model that the provider says answered: a dated one where the request names none."""
    model, _ = model_and_scenario(request["model"])
    return f"{model}-2024-07-18" if model == "gpt-4o-mini" else model


def _envelope(request: Json, number: int, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-demo{number:06d}",
        "object": kind,
        "created": CREATED,
        "model": model_of(request),
        "service_tier": "default",
        "system_fingerprint": "fp_demo",
    }


def _choice_count(request: Json) -> int:
    return int(request.get("n") or 1)


def _tool_call(call: ToolCall) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _event(value: object) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
