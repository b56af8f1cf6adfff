"""Anthropic's requests and replies → fields of our events. Runs on the caller's thread: attribute reads and no more.

Replies are the SDK's models, or what a raw body decodes to; every field of them may be missing, null or of another
type, because compatible servers and error bodies send that. What is no plain value of the expected type is left out.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from amfs_otel import capture, semconv
from amfs_otel.capture.usage import usage_from_anthropic
from amfs_otel.model import Deferred
from amfs_otel_instrumentation import _anthropic_messages as messages

Fields = dict[str, Any]
WORD_CHARACTERS = 256

_PARAMETERS: dict[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": (int,),
}
"""Parameter of a request, which is the event's field, too, and the exact types in which it counts as given."""


def node_from_body(body: bytes) -> Any:
    """The decoded body of a raw response; `None` where it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def member(node: Any, name: str) -> Any:
    """A member of a decoded object or of one of the SDK's models; `None` where it has none."""
    return cast("Fields", node).get(name) if isinstance(node, dict) else getattr(node, name, None)


def word(value: Any) -> str | None:
    """An identifier or model name as a bounded text that is fit for spans; `None` for anything but a text."""
    if type(value) is str and value.isascii() and len(value) <= WORD_CHARACTERS:
        return value
    return capture.name(value[:WORD_CHARACTERS]) if isinstance(value, str) else None


# -- requests ------------------------------------------------------------------------------------------------------


def request_fields(where: Fields, request: Mapping[str, Any]) -> Fields:
    """Fields of a messages request; `where` holds provider and server.

    A parameter that was not given is missing, or a sentinel of the SDK's, which is of no plain type.
    """
    fields: Fields = {"operation": semconv.OPERATION_CHAT, **where, "model": word(request.get("model"))}
    for name, kinds in _PARAMETERS.items():
        value = request.get(name)
        if type(value) in kinds:
            fields[name] = value
    if request.get("stream") is True:
        fields["stream"] = True
    config = request.get("output_config")
    if isinstance(config, dict):
        fields["reasoning_level"] = word(member(config, "effort"))
    wanted = (member(config, "format"), request.get("output_format"))
    if any(member(given, "type") == "json_schema" for given in wanted if isinstance(given, dict)):
        fields["output_type"] = "json"
    metadata = request.get("metadata")
    if isinstance(metadata, dict) and metadata:
        fields["user"] = word(member(metadata, "user_id"))
        fields["request_metadata"] = capture.snapshot(cast("Fields", metadata))
    _deferred(fields, "input_messages", messages.messages_from_request, request.get("messages"))
    _deferred(fields, "system_instructions", messages.instructions_from_system, request.get("system"))
    _deferred(fields, "tool_definitions", messages.definitions_from_tools, request.get("tools"))
    return fields


def _deferred(fields: Fields, name: str, make: Callable[[Any], Any], value: Any) -> None:
    """A text or list of the application's, for the worker to map. An iterator is the SDK's to consume."""
    if isinstance(value, (str, list, tuple)) and value:
        fields[name] = Deferred(make, capture.snapshot(cast("Any", value)))


# -- replies -------------------------------------------------------------------------------------------------------


def reply_fields(reply: Any) -> Fields:
    """Fields of a whole message."""
    content = member(reply, "content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    return message_facts(reply, blocks, member(reply, "usage"))


def message_facts(head: Any, blocks: list[Any], usage: Any) -> Fields:
    """Fields from the parts of a message, whole or folded.

    Args:
        head: Whatever has `id`, `model` and `stop_reason`.
        blocks: Its content.
        usage: The provider's token counts.
    """
    fields: Fields = {
        "response_id": word(member(head, "id")),
        "response_model": word(member(head, "model")),
        **usage_from_anthropic(usage).facts(),
    }
    reason = word(member(head, "stop_reason"))
    if reason is not None:
        fields["finish_reasons"] = [reason]
    asked = [block for block in blocks if member(block, "type") == "tool_use"]
    if asked:
        fields["requested_tools"] = [
            {"call_id": capture.name(member(block, "id")), "tool_name": capture.name(member(block, "name"))}
            for block in asked
        ]
    if blocks or reason is not None:
        fields["output_messages"] = Deferred(messages.message_from_reply, (capture.snapshot(blocks), reason))
    return fields
