"""Anthropic's requests and replies → fields of our events. Runs on the caller's thread: attribute reads and no more.

Replies are the SDK's models, or what a raw body decodes to; every field of them may be missing, null or of another
type, because compatible servers and error bodies send that. What is no plain value of the expected type is left out.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from amfs_otel import capture, semconv
from amfs_otel.capture.copies import messages_later, tree_later
from amfs_otel.capture.nodes import members
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
    if "stop_sequences" in request:
        fields["stop_sequences"] = capture.stop_sequences(request["stop_sequences"])
    if request.get("stream") is True:
        fields["stream"] = True
    if "output_config" in request or "output_format" in request:
        _describe_output(fields, request.get("output_config"), request.get("output_format"))
    metadata = request.get("metadata")
    if isinstance(metadata, dict) and metadata:
        fields["user"] = word(members(metadata).get("user_id"))
        fields["request_metadata"] = capture.snapshot(cast("Fields", metadata))
    conversation, tools = request.get("messages"), request.get("tools")
    if isinstance(conversation, (list, tuple)) and conversation:  # an iterator is the SDK's to consume
        fields["input_messages"] = messages_later(messages.messages_from_request, conversation)
    system = request.get("system")
    if isinstance(system, (str, list, tuple)) and system:
        fields["system_instructions"] = Deferred(messages.instructions_from_system, capture.snapshot(system))
    if isinstance(tools, (list, tuple)) and tools:
        fields["tool_definitions"] = tree_later(messages.definitions_from_tools, tools)
    return fields


def _describe_output(fields: Fields, config: Any, output_format: Any) -> None:
    """How much the model is to think, and whether its answer has to fit a schema."""
    if isinstance(config, dict):
        fields["reasoning_level"] = word(members(config).get("effort"))
    wanted = (members(config).get("format"), output_format)
    if any(members(given).get("type") == "json_schema" for given in wanted if isinstance(given, dict)):
        fields["output_type"] = "json"


# -- replies -------------------------------------------------------------------------------------------------------


def reply_fields(reply: Any) -> Fields:
    """Fields of a whole message."""
    head = members(reply)
    content = head.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    return message_facts(head, blocks, head.get("usage"))


def message_facts(head: Mapping[str, Any], blocks: list[Any], usage: Any) -> Fields:
    """Fields from the parts of a message, whole or folded.

    Args:
        head: Whatever has `id`, `model` and `stop_reason`.
        blocks: Its content.
        usage: The provider's token counts.
    """
    fields: Fields = usage_from_anthropic(usage).facts()
    fields["response_id"] = word(head.get("id"))
    fields["response_model"] = word(head.get("model"))
    reason = word(head.get("stop_reason"))
    if reason is not None:
        fields["finish_reasons"] = [reason]
    found: list[Any] = [members(block) for block in blocks]  # a model's are copied faster than it
    asked = [block for block in found if block.get("type") == "tool_use"]
    if asked:
        fields["requested_tools"] = [
            {"call_id": capture.name(block.get("id")), "tool_name": capture.name(block.get("name"))} for block in asked
        ]
    if blocks or reason is not None:
        plain = found if all(found) else [known or block for known, block in zip(found, blocks, strict=True)]
        fields["output_messages"] = tree_later(messages.message_from_reply, (plain, reason))
    return fields
