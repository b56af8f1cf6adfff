"""OpenAI's requests and replies → fields of our events. Runs on the caller's thread: attribute reads and no more.

Replies are the SDK's models, or namespaces made from a raw body; every field of them may be missing, null or of another
type, because compatible servers and error bodies send that. What is no plain value of the expected type is left out.
"""

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from amfs_otel import capture, semconv
from amfs_otel.capture.copies import messages_later, tree_later
from amfs_otel.capture.nodes import members
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
    if "stop" in request:
        fields["stop_sequences"] = capture.stop_sequences(request["stop"])
    if "reasoning_effort" in request:
        fields["reasoning_level"] = word(request["reasoning_effort"])
    if "response_format" in request or "modalities" in request:
        fields["output_type"] = _output_type(request.get("response_format"), request.get("modalities"))
    conversation = request.get("messages")
    if isinstance(conversation, (list, tuple)) and conversation:  # an iterator is the SDK's to consume
        fields["input_messages"] = messages_later(messages.messages_from_chat, conversation)
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
    if isinstance(tools, (list, tuple)) and tools:
        fields["tool_definitions"] = tree_later(messages.definitions_from_tools, tools)


# -- replies -------------------------------------------------------------------------------------------------------


def chat_reply(where: Fields, reply: Any) -> Fields:
    """Fields of a whole chat.completions reply."""
    head = members(reply)
    given = head.get("choices")
    choices = [_choice_from(members(choice)) for choice in cast("list[Any]", given)] if isinstance(given, list) else []
    return chat_facts(where, head, choices, usage_from_openai(head.get("usage")))


def _choice_from(choice: Mapping[str, Any]) -> Fields:
    message = members(choice.get("message"))
    found: Fields = {
        "role": message.get("role"),
        "content": capture.snapshot(message.get("content")),
        "refusal": message.get("refusal"),
        "reasoning_content": message.get("reasoning_content") or message.get("reasoning"),
        "tool_calls": None,
        "finish_reason": choice.get("finish_reason"),
    }
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        found["tool_calls"] = [_call_from(members(call)) for call in cast("list[Any]", calls)]
    function_call = message.get("function_call")
    if function_call is not None:
        found["function_call"] = capture.snapshot(function_call)
    audio = message.get("audio")
    if audio is not None:
        spoken = members(audio)
        found["audio"] = {"id": spoken.get("id"), "transcript": spoken.get("transcript")}
    return found


def _call_from(call: Mapping[str, Any]) -> Fields:
    function = call.get("function")
    if function is not None:
        named = members(function)
        return {
            "id": call.get("id"),
            "function": {"name": named.get("name"), "arguments": capture.snapshot(named.get("arguments"))},
        }
    named = members(call.get("custom"))
    return {"id": call.get("id"), "custom": {"name": named.get("name"), "input": named.get("input")}}


def chat_facts(where: Fields, head: Mapping[str, Any], choices: list[Fields], usage: Usage) -> Fields:
    """Fields from the parts of a reply, whole or folded.

    Args:
        where: The request's fields.
        head: Whatever has `id`, `model`, `service_tier` and `system_fingerprint`.
        choices: Messages with their finish reasons.
        usage: The token counts.
    """
    fields: Fields = usage.facts()
    fields["response_id"] = word(head.get("id"))
    fields["response_model"] = word(head.get("model"))
    if where["provider"] == semconv.PROVIDER_OPENAI:
        fields["service_tier"] = word(head.get("service_tier"))
        fields["system_fingerprint"] = word(head.get("system_fingerprint"))
    reasons = [reason for choice in choices if (reason := word(choice["finish_reason"])) is not None]
    if reasons:
        fields["finish_reasons"] = reasons
    calls = [call for choice in choices for call in choice["tool_calls"] or ()]
    if calls:
        fields["requested_tools"] = [_requested(call["id"], call.get("function") or call["custom"]) for call in calls]
    if choices:
        fields["output_messages"] = Deferred(messages.messages_from_choices, choices)
    return fields


def _requested(call_id: Any, named: Mapping[str, Any]) -> Fields:
    return {"call_id": capture.name(call_id), "tool_name": capture.name(named.get("name"))}


def response_reply(where: Fields, reply: Any) -> Fields:
    """Fields of a whole response of the responses API. Its finish reason is why it is incomplete, else its status."""
    head = members(reply)
    output = head.get("output")
    items = cast("list[Any]", output) if isinstance(output, list) else []
    fields = response_facts(where, head, items, usage_from_openai(head.get("usage")))
    reason = word(members(head.get("incomplete_details")).get("reason")) or word(head.get("status"))
    if reason is not None:
        fields["finish_reasons"] = [reason]
    conversation = head.get("conversation")
    if conversation is not None:
        fields["conversation_id"] = word(members(conversation).get("id"))
    return fields


def response_facts(where: Fields, head: Mapping[str, Any], items: list[Any], usage: Usage) -> Fields:
    """`chat_facts` for the output items of a response."""
    fields: Fields = usage.facts()
    fields["response_id"] = word(head.get("id"))
    fields["response_model"] = word(head.get("model"))
    if where["provider"] == semconv.PROVIDER_OPENAI:
        fields["service_tier"] = word(head.get("service_tier"))
    asked = [call for call in map(_asked, items) if call is not None]
    if asked:
        fields["requested_tools"] = asked
    if items:
        fields["output_messages"] = Deferred(messages.message_from_output, capture.snapshot(items))
    return fields


def _asked(item: Any) -> Fields | None:
    """The tool of the application's that an output item asks for; `None` where it asks for none."""
    given = members(item)
    action = messages.action_asked_for(given)
    if action is not None:
        return _requested(given.get("call_id"), {"name": action})
    return _requested(given.get("call_id"), given) if given.get("type") in _CALLS else None


_CALLS = ("function_call", "custom_tool_call")
"""Types of the items that call a tool by the name that the application gave it."""


def response_error(reply: Any) -> str | None:
    """The provider's error code of a response that failed without an exception."""
    head = members(reply)
    if head.get("status") != "failed":
        return None
    return word(members(head.get("error")).get("code")) or semconv.ERROR_TYPE_OTHER


def embeddings_reply(where: Fields, reply: Any) -> Fields:
    """Fields of an embeddings reply; the vectors themselves are nobody's reason for a decision."""
    head = members(reply)
    usage = usage_from_openai(head.get("usage"))
    fields: Fields = {"response_model": word(head.get("model")), "input_tokens": usage.input}
    data = head.get("data")
    if isinstance(data, list) and data and "dimension_count" not in where:
        vector = members(cast("list[Any]", data)[0]).get("embedding")
        if isinstance(vector, list):
            fields["dimension_count"] = len(cast("list[Any]", vector))
    return fields
