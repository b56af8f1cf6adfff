"""OpenAI's requests and replies → fields of our events. Runs on the caller's thread: attribute reads and no more.

Replies are the SDK's models, or namespaces made from a raw body; every field of them may be missing, null or of another
type, because compatible servers and error bodies send that. What is no plain value of the expected type is left out.
"""

import json
import marshal
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from amfs_otel import capture, semconv
from amfs_otel.capture.usage import usage_from_openai
from amfs_otel.model import Deferred, Usage
from amfs_otel_instrumentation import _openai_messages as messages

Fields = dict[str, Any]
WORD_CHARACTERS = 256

_NUMBER = (int, float)
_PARAMETERS: dict[str, tuple[str, tuple[type, ...]]] = {
    "temperature": ("temperature", _NUMBER),
    "top_p": ("top_p", _NUMBER),
    "max_tokens": ("max_tokens", (int,)),
    "max_completion_tokens": ("max_tokens", (int,)),
    "max_output_tokens": ("max_tokens", (int,)),
    "seed": ("seed", (int,)),
    "frequency_penalty": ("frequency_penalty", _NUMBER),
    "presence_penalty": ("presence_penalty", _NUMBER),
    "dimensions": ("dimension_count", (int,)),
}
"""Parameter of a request → field of the event, and the exact types in which it counts as given."""


def node_from_body(body: bytes) -> Any:
    """The decoded body of a raw response, its objects read as the SDK's models are; `None` where it is no JSON."""
    try:
        return json.loads(body, object_hook=lambda members: SimpleNamespace(**members))
    except ValueError:
        return None


def word(value: Any) -> str | None:
    """An identifier or model name as a bounded text that is fit for spans; `None` for anything but a text."""
    if type(value) is str and value.isascii() and len(value) <= WORD_CHARACTERS:
        return value
    return capture.name(value[:WORD_CHARACTERS]) if isinstance(value, str) else None


# -- requests ------------------------------------------------------------------------------------------------------


def chat_request(where: Fields, request: Mapping[str, Any]) -> Fields:
    """Fields of a chat.completions request; `where` holds provider and server."""
    fields = _request(semconv.OPERATION_CHAT, "chat_completions", where, request)
    _count_choices(fields, request.get("n"))
    if "reasoning_effort" in request:
        fields["reasoning_level"] = word(request["reasoning_effort"])
    if "response_format" in request or "modalities" in request:
        fields["output_type"] = _output_type(request.get("response_format"), request.get("modalities"))
    _deferred(fields, "input_messages", messages.messages_from_chat, request.get("messages"))
    _definitions(fields, request.get("tools") if "tools" in request else request.get("functions"))
    return fields


def response_request(where: Fields, request: Mapping[str, Any]) -> Fields:
    """Fields of a responses request."""
    fields = _request(semconv.OPERATION_CHAT, "responses", where, request)
    fields["reasoning_level"] = word(_member(request.get("reasoning"), "effort"))
    wanted = request.get("text_format") or _member(request.get("text"), "format")
    fields["output_type"] = _output_type(wanted, None)
    fields["previous_response_id"] = word(request.get("previous_response_id"))
    conversation = request.get("conversation")
    fields["conversation_id"] = word(_member(conversation, "id")) or word(conversation)
    given = request.get("input")
    if isinstance(given, str):
        fields["input_messages"] = Deferred(messages.messages_from_input, given)
    else:
        _deferred(fields, "input_messages", messages.messages_from_input, given)
    instructions = request.get("instructions")
    if isinstance(instructions, str):
        fields["system_instructions"] = Deferred(messages.instructions_from_text, instructions)
    _definitions(fields, request.get("tools"))
    return fields


def embeddings_request(where: Fields, request: Mapping[str, Any]) -> Fields:
    """Fields of an embeddings request."""
    fields = _request(semconv.OPERATION_EMBEDDINGS, None, where, request)
    encoding = word(request.get("encoding_format"))
    if encoding is not None:
        fields["encoding_formats"] = [encoding]
    given = request.get("input")
    if isinstance(given, (str, list, tuple)):
        fields["input_text"] = capture.snapshot(given)
    return fields


def _request(operation: str, api_type: str | None, where: Fields, request: Mapping[str, Any]) -> Fields:
    """What all requests have in common. A parameter that was not given is a sentinel of the SDK's, of no plain type."""
    fields: Fields = {"operation": operation, **where, "model": word(request.get("model"))}
    for name, value in request.items():
        entry = _PARAMETERS.get(name)
        if entry is not None and type(value) in entry[1]:
            fields[entry[0]] = value
    if request.get("stream") is True:
        fields["stream"] = True
    if where["provider"] == semconv.PROVIDER_OPENAI and api_type is not None:
        fields["api_type"] = api_type
        if request.get("service_tier", "auto") != "auto":
            fields["request_service_tier"] = word(request["service_tier"])
    user = request.get("safety_identifier") or request.get("user")
    if user:
        fields["user"] = word(user)
    metadata = request.get("metadata")
    if isinstance(metadata, dict) and metadata:
        fields["request_metadata"] = capture.snapshot(cast("Fields", metadata))
    return fields


def _count_choices(fields: Fields, count: Any) -> None:
    if type(count) is int and count != 1:
        fields["choice_count"] = count


def _output_type(wanted: Any, modalities: Any) -> str | None:
    if isinstance(modalities, (list, tuple)) and "audio" in modalities:
        return "speech"
    if isinstance(wanted, type):
        return "json"
    kind = _member(wanted, "type")
    if kind in ("json_object", "json_schema"):
        return "json"
    return "text" if kind == "text" else None


def _member(value: Any, name: str) -> Any:
    return cast("Fields", value).get(name) if isinstance(value, dict) else None


def _deferred(fields: Fields, name: str, make: Callable[[Any], Any], value: Any) -> None:
    """A list of the application's, to be made into messages by the worker. An iterator is the SDK's to consume."""
    if isinstance(value, (list, tuple)) and value:
        fields[name] = Deferred(make, capture.snapshot(cast("list[Any]", value)))


def _definitions(fields: Fields, tools: Any) -> None:
    """Tool definitions are the same deep, plain tree in every call: marshal copies one at a tenth of the cost."""
    try:
        if isinstance(tools, (list, tuple)) and tools:
            fields["tool_definitions"] = Deferred(
                messages.definitions_from_marshal, marshal.dumps(cast("list[Any]", tools))
            )
    except ValueError:
        _deferred(fields, "tool_definitions", messages.definitions_from_tools, tools)


# -- replies -------------------------------------------------------------------------------------------------------


def chat_reply(where: Fields, reply: Any) -> Fields:
    """Fields of a whole chat.completions reply."""
    given = getattr(reply, "choices", None)
    choices = [_choice_from(choice) for choice in cast("list[Any]", given)] if isinstance(given, list) else []
    return chat_facts(where, reply, choices, usage_from_openai(getattr(reply, "usage", None)))


def _choice_from(choice: Any) -> Fields:
    message = getattr(choice, "message", None)
    found: Fields = {
        "role": getattr(message, "role", None),
        "content": getattr(message, "content", None),
        "refusal": getattr(message, "refusal", None),
        "finish_reason": getattr(choice, "finish_reason", None),
        "tool_calls": None,
    }
    calls = getattr(message, "tool_calls", None)
    if isinstance(calls, list):
        found["tool_calls"] = [_call_from(call) for call in cast("list[Any]", calls)]
    function_call = getattr(message, "function_call", None)
    if function_call is not None:
        found["function_call"] = capture.snapshot(function_call)
    audio = getattr(message, "audio", None)
    if audio is not None:
        found["audio"] = {"id": getattr(audio, "id", None)}
    extra = getattr(message, "__pydantic_extra__", None)
    if extra:
        found["reasoning_content"] = extra.get("reasoning_content") or extra.get("reasoning")
    return found


def _call_from(call: Any) -> Fields:
    function = getattr(call, "function", None)
    if function is not None:
        inner = {"name": getattr(function, "name", None), "arguments": getattr(function, "arguments", None)}
        return {"id": getattr(call, "id", None), "function": inner}
    custom = getattr(call, "custom", None)
    inner = {"name": getattr(custom, "name", None), "input": getattr(custom, "input", None)}
    return {"id": getattr(call, "id", None), "custom": inner}


def chat_facts(where: Fields, head: Any, choices: list[Fields], usage: Usage) -> Fields:
    """Fields from the parts of a reply, whole or folded.

    Args:
        where: The request's fields.
        head: Whatever has `id`, `model`, `service_tier` and `system_fingerprint`.
        choices: Messages with their finish reasons.
        usage: The token counts.
    """
    fields: Fields = {
        "response_id": word(getattr(head, "id", None)),
        "response_model": word(getattr(head, "model", None)),
        **usage.facts(),
    }
    if where["provider"] == semconv.PROVIDER_OPENAI:
        fields["service_tier"] = word(getattr(head, "service_tier", None))
        fields["system_fingerprint"] = word(getattr(head, "system_fingerprint", None))
    reasons = [reason for choice in choices if (reason := word(choice["finish_reason"])) is not None]
    if reasons:
        fields["finish_reasons"] = reasons
    calls = [call for choice in choices for call in choice["tool_calls"] or ()]
    if calls:
        fields["requested_tools"] = [_requested(call["id"], call.get("function") or call["custom"]) for call in calls]
    if choices:
        fields["output_messages"] = Deferred(messages.messages_from_choices, choices)
    return fields


def _requested(call_id: Any, named: Any) -> Fields:
    return {"call_id": capture.name(call_id), "tool_name": capture.name(named.get("name"))}


def response_reply(where: Fields, reply: Any) -> Fields:
    """Fields of a whole response of the responses API. Its finish reason is why it is incomplete, else its status."""
    output = getattr(reply, "output", None)
    items = cast("list[Any]", output) if isinstance(output, list) else []
    fields = response_facts(where, reply, items, usage_from_openai(getattr(reply, "usage", None)))
    incomplete = getattr(getattr(reply, "incomplete_details", None), "reason", None)
    reason = word(incomplete) or word(getattr(reply, "status", None))
    if reason is not None:
        fields["finish_reasons"] = [reason]
    conversation = getattr(reply, "conversation", None)
    if conversation is not None:
        fields["conversation_id"] = word(getattr(conversation, "id", None))
    return fields


def response_facts(where: Fields, head: Any, items: list[Any], usage: Usage) -> Fields:
    """`chat_facts` for the output items of a response."""
    fields: Fields = {
        "response_id": word(getattr(head, "id", None)),
        "response_model": word(getattr(head, "model", None)),
        **usage.facts(),
    }
    if where["provider"] == semconv.PROVIDER_OPENAI:
        fields["service_tier"] = word(getattr(head, "service_tier", None))
    asked = [item for item in items if getattr(item, "type", None) in ("function_call", "custom_tool_call")]
    if asked:
        fields["requested_tools"] = [
            {
                "call_id": capture.name(getattr(item, "call_id", None)),
                "tool_name": capture.name(getattr(item, "name", None)),
            }
            for item in asked
        ]
    if items:
        fields["output_messages"] = Deferred(messages.message_from_output, capture.snapshot(items))
    return fields


def response_error(reply: Any) -> str | None:
    """The provider's error code of a response that failed without an exception."""
    if getattr(reply, "status", None) != "failed":
        return None
    return word(getattr(getattr(reply, "error", None), "code", None)) or semconv.ERROR_TYPE_OTHER


def embeddings_reply(where: Fields, reply: Any) -> Fields:
    """Fields of an embeddings reply; the vectors themselves are nobody's reason for a decision."""
    usage = usage_from_openai(getattr(reply, "usage", None))
    fields: Fields = {"response_model": word(getattr(reply, "model", None)), "input_tokens": usage.input}
    data = getattr(reply, "data", None)
    first = cast("list[Any]", data)[0] if isinstance(data, list) and data else None
    vector = getattr(first, "embedding", None)
    if isinstance(vector, list) and "dimension_count" not in where:
        fields["dimension_count"] = len(cast("list[Any]", vector))
    return fields
