"""OpenAI's wire shapes → messages of the GenAI profile. Pure functions, called on the worker.

Input is a copy of the request's values, or what `_openai_facts` took from a reply: lists, dicts, strings.
Anything of another shape is left out or passed on as it is; nothing here raises for a shape it does not know.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from amfs_otel.capture.media import bounded_base64
from amfs_otel.capture.nodes import members

Json = dict[str, Any]

_FINISH = {"tool_calls": "tool_call", "function_call": "tool_call"}
"""The provider's finish reasons under the names that messages use."""


def messages_from_chat(raw: Any) -> Any:
    """`messages` of chat.completions."""
    return [_chat_message(message) for message in _dicts(raw)]


def messages_from_input(raw: Any) -> Any:
    """`input` of responses: a text or a list of items."""
    if isinstance(raw, str):
        return [{"role": "user", "parts": [_text(raw)]}]
    return [_item_message(item) for item in _dicts(raw)]


def instructions_from_text(raw: Any) -> Any:
    """`instructions` of responses: a text, or, in replies, items."""
    return [_text(raw)] if isinstance(raw, str) else [part for item in _dicts(raw) for part in _item_parts(item)]


def definitions_from_tools(raw: Any) -> Any:
    """`tools` of either API, `functions` of the oldest."""
    return [_definition(tool) for tool in _dicts(raw)]


def messages_from_choices(raw: list[Json]) -> Any:
    """Choices of a chat reply, plain or folded from a stream: `{message…, finish_reason}`."""
    found: list[Json] = []
    for choice in raw:
        message = _chat_message(choice)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            message["finish_reason"] = _FINISH.get(reason, reason)
        found.append(message)
    return found


def message_from_output(raw: Any) -> Any:
    """Output items of a response: together they are one message of the model's."""
    parts = [part for item in _dicts(raw) for part in _item_parts(item)]
    return [{"role": "assistant", "parts": parts}] if parts else []


# -- chat.completions ----------------------------------------------------------------------------------------------


def _chat_message(message: Json) -> Json:
    role, content, name = message.get("role"), message.get("content"), message.get("name")
    role = role if isinstance(role, str) else "assistant"
    if role in ("tool", "function"):
        parts = [_answer(message.get("tool_call_id"), content)]
    elif isinstance(content, str) and message.keys() <= _PLAIN:
        parts = _content_parts(content)
    else:
        parts = [*_thoughts(message), *_content_parts(content)]
        if isinstance(message.get("refusal"), str):
            parts.append(_text(message["refusal"]))
        parts.extend(_tool_call(call) for call in _dicts(message.get("tool_calls")))
        if isinstance(message.get("function_call"), dict):
            parts.append(_tool_call({"function": message["function_call"]}))
        if isinstance(message.get("audio"), dict):
            parts.extend(_audio_reply(message["audio"]))
    found: Json = {"role": role, "parts": parts}
    if isinstance(name, str):
        found["name"] = name
    return found


_PLAIN = frozenset({"role", "content", "name"})
"""The members of a message that is nothing but a text."""


def _thoughts(message: Json) -> list[Json]:
    """Reasoning text, which compatible providers send beside the content."""
    for name in ("reasoning_content", "reasoning"):
        text = message.get(name)
        if isinstance(text, str) and text:
            return [{"type": "reasoning", "content": text}]
    return []


def _content_parts(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [_text(content)] if content else []
    return [_content_part(part) for part in _dicts(content)]


def _content_part(part: Json) -> Json:
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text"):
        return _text(part.get("text"))
    if kind == "refusal":
        return _text(part.get("refusal"))
    if kind in ("image_url", "input_image"):
        return _image(part)
    if kind == "input_audio":
        audio = part.get("input_audio")
        audio = cast("Json", audio) if isinstance(audio, dict) else {}
        return _blob("audio", audio.get("data"), f"audio/{audio.get('format')}")
    if kind in ("file", "input_file"):
        return _file(part)
    return _other(part)


def _image(part: Json) -> Json:
    url = part.get("image_url")
    if isinstance(url, dict):
        url = cast("Json", url).get("url")
    if isinstance(url, str) and url.startswith("data:"):
        return _data_url("image", url)
    if url is None and part.get("file_id"):
        return {"type": "file", "modality": "image", "file_id": part["file_id"]}
    return {"type": "uri", "modality": "image", "uri": url}


def _file(part: Json) -> Json:
    inner = part.get("file")
    file = cast("Json", inner) if isinstance(inner, dict) else part
    data = file.get("file_data")
    if isinstance(data, str):
        return _data_url("document", data) if data.startswith("data:") else _blob("document", data, None)
    if file.get("file_url"):
        return {"type": "uri", "modality": "document", "uri": file["file_url"]}
    return {"type": "file", "modality": "document", "file_id": file.get("file_id")}


def _data_url(modality: str, url: str) -> Json:
    head, _, data = url.partition(",")
    return _blob(modality, data, head.removeprefix("data:").partition(";")[0] or None)


def _blob(modality: str, data: Any, mime_type: str | None) -> Json:
    found: Json = {"type": "blob", "modality": modality, "content": bounded_base64(data)}
    if mime_type is not None:
        found["mime_type"] = mime_type
    return found


def _audio_reply(audio: Json) -> list[Json]:
    """What was spoken: the sound, or the provider's id of it, and its words."""
    sound: Json = {"type": "file", "modality": "audio", "file_id": audio.get("id")}
    if isinstance(audio.get("data"), str):
        sound = _blob("audio", audio["data"], None)
    return [sound, _text(audio["transcript"])] if isinstance(audio.get("transcript"), str) else [sound]


def _tool_call(call: Json) -> Json:
    function = call.get("function")
    custom = call.get("custom")
    if isinstance(function, dict):
        inner = cast("Json", function)
        return _call(call.get("id"), inner.get("name"), _arguments(inner.get("arguments")))
    inner = cast("Json", custom) if isinstance(custom, dict) else {}
    return _call(call.get("id"), inner.get("name"), inner.get("input"))


def _call(call_id: Any, name: Any, arguments: Any) -> Json:
    found: Json = {"type": "tool_call", "name": name if isinstance(name, str) else ""}
    if call_id is not None:
        found["id"] = call_id
    if arguments is not None:
        found["arguments"] = arguments
    return found


def _answer(call_id: Any, response: Any) -> Json:
    """A tool's result; one made of content parts keeps its media bounded, as messages do."""
    found: Json = {"type": "tool_call_response"}
    if call_id is not None:
        found["id"] = call_id
    found["response"] = _content_parts(response) if isinstance(response, (list, tuple)) else response
    return found


def _arguments(text: Any) -> Any:
    """Arguments as the JSON value that they are; a text that is no JSON, as fragments are, stays a text."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _definition(tool: Json) -> Json:
    kind = tool.get("type")
    inner = next((tool[key] for key in ("function", "custom") if isinstance(tool.get(key), dict)), tool)
    found: Json = {"type": kind if isinstance(kind, str) else "function"}
    name = inner.get("name")
    found["name"] = name if isinstance(name, str) else found["type"]
    for key in ("description", "parameters"):
        if inner.get(key) is not None:
            found[key] = inner[key]
    return found


# -- responses -----------------------------------------------------------------------------------------------------


_ACTIONS: dict[Any, tuple[str, ...]] = {
    "computer_call": ("action", "actions", "pending_safety_checks"),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
    "tool_search_call": ("arguments",),
}
"""Types of the items that ask the application for one of the provider's own tools → the members that say for what."""

_DONE = ("computer_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output")
"""Types of the items by which the application says what came of them."""


def action_asked_for(item: Mapping[str, Any]) -> str | None:
    """The name of the provider's tool that the application shall run for an output item; `None` for any other item.

    A shell in a container, and a search that the provider makes, are run by the provider.
    """
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in _ACTIONS or item.get("execution") == "server":
        return None
    hosted = members(item.get("environment")).get("type") == "container_reference"
    return None if hosted else kind.removesuffix("_call")


def _action(item: Json, name: str) -> Json:
    given = {key: item[key] for key in _ACTIONS[item["type"]] if item.get(key)}
    return _call(item.get("call_id"), name, given)


def _done(item: Json) -> Json:
    """What came of an action: a picture of a screen, what a shell wrote, or how a patch went."""
    output = item.get("output", item.get("status"))
    if isinstance(output, dict) and "image_url" in output:
        output = [_image(cast("Json", output))]
    answer = _answer(item.get("call_id") or item.get("id"), None)
    return {**answer, "response": output}


def _item_message(item: Json) -> Json:
    role = item.get("role")
    if isinstance(role, str):
        return {"role": role, "parts": _item_parts(item)}
    kind = str(item.get("type"))
    return {"role": "tool" if kind.endswith("_output") else "assistant", "parts": _item_parts(item)}


def _item_parts(item: Json) -> list[Json]:
    """The parts that one item of a response's input or output contributes."""
    kind = item.get("type")
    if kind == "message" or (kind is None and "content" in item):
        return _content_parts(item.get("content"))
    if kind == "function_call":
        return [_call(item.get("call_id"), item.get("name"), _arguments(item.get("arguments")))]
    if kind == "custom_tool_call":
        return [_call(item.get("call_id"), item.get("name"), item.get("input"))]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return [_answer(item.get("call_id"), item.get("output"))]
    if kind == "reasoning":
        texts = [part.get("text") for key in ("summary", "content") for part in _dicts(item.get(key))]
        return [{"type": "reasoning", "content": text} for text in texts if isinstance(text, str)]
    if kind in _DONE:
        return [_done(item)]
    action = action_asked_for(item)
    if action is not None:
        return [_action(item, action)]
    if isinstance(kind, str) and kind.endswith("_call"):
        shown = {key: bounded_base64(value) if key == "result" else value for key, value in item.items()}
        name = item["name"] if isinstance(item.get("name"), str) else kind.removesuffix("_call")
        found: Json = {"type": "server_tool_call", "name": name, "server_tool_call": shown}
        return [{**found, "id": item["id"]}] if item.get("id") else [found]
    return [_other(item)]


# -- parts ---------------------------------------------------------------------------------------------------------


def _text(text: Any) -> Json:
    if not isinstance(text, str):
        text = "" if text is None else f"<{text.__class__.__name__}>"
    return {"type": "text", "content": text}


def _other(part: Json) -> Json:
    """A part that the profile has no name for, as it is."""
    kind = part.get("type")
    return {**part, "type": kind if isinstance(kind, str) else "unknown"}


def _dicts(value: Any) -> list[Json]:
    if not isinstance(value, (list, tuple)):
        return []
    return [cast("Json", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
