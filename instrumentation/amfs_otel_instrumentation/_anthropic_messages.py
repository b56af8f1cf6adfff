"""Anthropic's wire shapes → messages of the GenAI profile. Pure functions, called on the worker.

Input is what `capture.snapshot` made of the request or reply, or what `_anthropic_folds` joined: lists, dicts, strings.
Anything of another shape is left out or passed on as it is; nothing here raises for a shape it does not know.
"""

import json
from typing import Any, cast

from amfs_otel.capture.media import bounded_base64

Json = dict[str, Any]

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_call",
    "refusal": "content_filter",
}
"""The provider's stop reasons under the names that messages use; others are passed on."""

_OPAQUE = ("data", "encrypted_content", "encrypted_index", "encrypted_stdout", "signature")
"""Members that only the provider can read."""


def messages_from_request(raw: Any) -> Any:
    """`messages` of a request."""
    return [_message(message) for message in _dicts(raw)]


def instructions_from_system(raw: Any) -> Any:
    """`system` of a request: a text or a list of blocks."""
    return _parts(raw)


def definitions_from_tools(raw: Any) -> Any:
    """`tools` of a request, those that the provider runs by itself among them."""
    return [_definition(tool) for tool in _dicts(raw)]


def message_from_reply(raw: tuple[list[Any], str | None]) -> Any:
    """Content and stop reason of a reply."""
    content, reason = raw
    message: Json = {"role": "assistant", "parts": _parts(content)}
    if reason is not None:
        message["finish_reason"] = _FINISH.get(reason, reason)
    return [message]


def _message(message: Json) -> Json:
    """A message; one that only hands over results of tools is a tool's, as everywhere else."""
    parts, role = _parts(message.get("content")), message.get("role")
    if role == "user" and parts and all(part["type"] == "tool_call_response" for part in parts):
        role = "tool"
    return {"role": role if isinstance(role, str) else "user", "parts": parts}


def _parts(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [_text(content)] if content else []
    return [_part(block) for block in _dicts(content)]


def _part(block: Json) -> Json:
    kind = block.get("type")
    if kind == "text":
        return _text(block.get("text"))
    if kind == "thinking":
        return {"type": "reasoning", "content": _string(block.get("thinking"))}
    if kind == "tool_use":
        return _call(block)
    if kind == "tool_result":
        return _answer(block)
    if kind in ("image", "document"):
        return _media(kind, block)
    if kind == "container_upload":
        return {"type": "file", "modality": "document", "file_id": block.get("file_id")}
    if kind == "compaction":
        return {"type": "compaction", "content": block.get("content")}
    if kind in ("server_tool_use", "mcp_tool_use"):
        return _server_call(block)
    if isinstance(kind, str) and kind.endswith("_tool_result"):
        return _server_answer(kind, block)
    return {**_readable(block), "type": kind if isinstance(kind, str) else "unknown"}


def _call(block: Json) -> Json:
    found: Json = {"type": "tool_call", "name": _string(block.get("name"))}
    if block.get("id") is not None:
        found["id"] = block["id"]
    if block.get("input") is not None:
        found["arguments"] = _arguments(block["input"])
    return found


def _answer(block: Json) -> Json:
    """A tool's result. Blocks keep their media bounded, as messages do; a lone text is that text."""
    found: Json = {"type": "tool_call_response"}
    if block.get("tool_use_id") is not None:
        found["id"] = block["tool_use_id"]
    content = block.get("content")
    response: Any = content
    if isinstance(content, (list, tuple)):
        parts = _parts(content)
        response = parts[0]["content"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    found["response"] = {"is_error": True, "content": response} if block.get("is_error") is True else response
    return found


def _server_call(block: Json) -> Json:
    shown = {"type": block.get("name"), "input": _arguments(block.get("input"))}
    if block.get("server_name") is not None:
        shown["server_name"] = block["server_name"]
    found: Json = {"type": "server_tool_call", "name": _string(block.get("name")), "server_tool_call": shown}
    return {**found, "id": block["id"]} if block.get("id") is not None else found


def _server_answer(kind: str, block: Json) -> Json:
    shown: Json = {"type": kind.removesuffix("_tool_result"), "content": _readable(block.get("content"))}
    if block.get("is_error") is True:
        shown["is_error"] = True
    found: Json = {"type": "server_tool_call_response", "server_tool_call_response": shown}
    return {**found, "id": block["tool_use_id"]} if block.get("tool_use_id") is not None else found


def _media(kind: str, block: Json) -> Json:
    """An image or a document, by its source: the bytes, a text, blocks, an address or a file of the provider's."""
    given = block.get("source")
    source = cast("Json", given) if isinstance(given, dict) else {}
    if isinstance(source.get("url"), str):
        return {"type": "uri", "modality": kind, "uri": source["url"]}
    if source.get("file_id") is not None:
        return {"type": "file", "modality": kind, "file_id": source["file_id"]}
    if source.get("type") == "text":
        return _text(source.get("data"))
    if source.get("type") == "content":
        return {"type": kind, "content": _parts(source.get("content"))}
    found: Json = {"type": "blob", "modality": kind, "content": bounded_base64(source.get("data"))}
    if isinstance(source.get("media_type"), str):
        found["mime_type"] = source["media_type"]
    return found


def _readable(value: Any) -> Any:
    """A value without long members that only the provider can read."""
    if isinstance(value, (list, tuple)):
        return [_readable(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("Json", value)
        return {k: bounded_base64(item) if k in _OPAQUE else _readable(item) for k, item in members.items()}
    return value


def _arguments(given: Any) -> Any:
    """Arguments, which a stream brings as a JSON text; a text that is no JSON, as fragments are, stays a text."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given


def _definition(tool: Json) -> Json:
    kind, name = tool.get("type"), tool.get("name")
    found: Json = {"type": kind if isinstance(kind, str) and kind != "custom" else "function"}
    found["name"] = name if isinstance(name, str) else found["type"]
    if tool.get("description") is not None:
        found["description"] = tool["description"]
    if tool.get("input_schema") is not None:
        found["parameters"] = tool["input_schema"]
    return found


def _text(text: Any) -> Json:
    return {"type": "text", "content": _string(text)}


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else f"<{value.__class__.__name__}>"


def _dicts(value: Any) -> list[Json]:
    if not isinstance(value, (list, tuple)):
        return []
    return [cast("Json", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
