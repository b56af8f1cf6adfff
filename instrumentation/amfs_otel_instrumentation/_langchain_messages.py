"""langchain's messages, results and documents → fields of events and messages of the GenAI profile. Pure functions.

What runs on the worker takes what `capture.snapshot` made of the library's models: dicts of their fields. What runs on
the caller's thread reads attributes and no more; anything of an unexpected shape is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from amfs_otel import capture, semconv
from amfs_otel.capture import Deferred
from amfs_otel.capture.copies import Each
from amfs_otel.capture.media import bounded_base64
from amfs_otel.capture.usage import usage_from_langchain, usage_from_openai
from amfs_otel.model import Usage

Json = dict[str, Any]

DOCUMENT_LIMIT = 100
"""Documents of a retrieval that are named; all are counted."""

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool"}
_CALLS = ("tool_calls", "invalid_tool_calls")
"""Fields of a message that hold lists of calls that a model asks for."""
_SHOWN = ("type", "role", "content", "tool_call_id", "name", *_CALLS)
"""Fields of a message that its text is made of."""

_FINISH = {"tool_calls": "tool_call", "tool_use": "tool_call", "function_call": "tool_call", "end_turn": "stop"}
_OWN_IDS = ("run-", "run--", "lc_", "lc_run--")
"""Beginnings of the ids that langchain itself gives to messages without one."""

_PROVIDERS = {
    "amazon_bedrock": "aws.bedrock",
    "azure": semconv.PROVIDER_AZURE_OPENAI,
    "azure_ai": "azure.ai.inference",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "ibm": "ibm.watsonx.ai",
    "mistralai": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
"""langchain's name of a provider → the profile's, where they differ."""

_SETTINGS = {
    "temperature": "temperature",
    "ls_temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "ls_max_tokens": "max_tokens",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "n": "choice_count",
}
"""A provider's or langchain's name of a setting → ours."""

_NUMBERS = frozenset({int, float})
_TEXTS: frozenset[type] = frozenset({str})


# -- requests and results, on the caller's thread ------------------------------------------------------------------


def request_from_start(
    messages: Sequence[Any], params: Mapping[str, Any], metadata: Mapping[str, Any], *, streamed: bool
) -> Json:
    """Fields of a model call that are known at its start.

    Args:
        messages: Messages of a chat, or the one text of a completion.
        params: langchain's `invocation_params`.
        metadata: The run's metadata, in which langchain names model and provider.
        streamed: Whether the answer came in chunks.
    """
    texts = len(messages) == 1 and isinstance(messages[0], str)
    provider = metadata.get("ls_provider")
    provider = provider if isinstance(provider, str) else "langchain"
    fields: Json = {
        "operation": semconv.OPERATION_TEXT_COMPLETION if texts else semconv.OPERATION_CHAT,
        "provider": _PROVIDERS.get(provider, provider),
        "model": _word(params.get("model"), params.get("model_name"), metadata.get("ls_model_name")),
        "input_messages": Deferred(MESSAGES, [_snapshot_from_message(one) for one in messages]),
        **_settings(params, metadata),
    }
    stops = capture.stop_sequences(params.get("stop") or metadata.get("ls_stop"))
    if stops is not None:
        fields["stop_sequences"] = stops
    if streamed:
        fields["stream"] = True
    if params.get("tools"):
        fields["tool_definitions"] = Deferred(definitions_from_tools, capture.snapshot(params["tools"]))
    return fields


def _settings(*sources: Mapping[str, Any]) -> Json:
    """The settings that `sources` hold; the first that has one wins."""
    found: Json = {}
    for source in sources:
        for key, value in source.items():
            name = _SETTINGS.get(key)
            if name is not None and type(value) in _NUMBERS:
                found.setdefault(name, value)
    if found.get("choice_count") == 1:
        del found["choice_count"]
    return found


def _snapshot_from_message(message: Any) -> Any:
    """The fields of a message. Only what is shown and may change is copied: that is where the time goes."""
    if isinstance(message, str):
        return message
    own = getattr(message, "__dict__", None)
    if type(own) is not dict:
        return {}
    fields: Json = own.copy()  # pyright: ignore[reportUnknownVariableType]
    if type(fields.get("content")) is not str:
        fields["content"] = capture.snapshot(fields.get("content"))
    for name in _CALLS:
        calls = fields.get(name)
        if calls:
            fields[name] = [_snapshot_from_call(call) for call in calls]
    return fields


def _snapshot_from_call(call: Any) -> Any:
    if type(call) is not dict:
        return capture.snapshot(call)
    asked: Json = call.copy()  # pyright: ignore[reportUnknownVariableType]
    given = asked.get("args")
    if type(given) is dict and _TEXTS.issuperset(map(type, cast("Json", given).values())):
        asked["args"] = cast("Json", given).copy()
    else:
        asked["args"] = capture.snapshot(given)
    return asked


def reply_from_result(result: Any) -> Json:
    """Fields of a model call that are known at its end, from an `LLMResult`."""
    raw: list[Json] = []
    known: list[str] = []
    calls: list[Json] = []
    first: Any = None
    for several in getattr(result, "generations", None) or ():
        for one in several:
            answer = getattr(one, "message", None)
            first = answer if first is None else first
            reason = _finish_reason(one, answer)
            if reason is not None:
                known.append(reason)
            calls += getattr(answer, "tool_calls", None) or ()
            raw.append({"message": one.text if answer is None else _snapshot_from_message(answer), "reason": reason})
    output, about = _object(getattr(result, "llm_output", None)), _object(getattr(first, "response_metadata", None))
    usage = getattr(first, "usage_metadata", None)
    reported = about.get("token_usage") or output.get("token_usage") or output.get("usage")
    fields: Json = {
        "response_id": capture.name(_response_id(first, about, output)),
        "response_model": _word(about.get("model_name"), about.get("model"), output.get("model_name")),
        **_usage(usage, reported).facts(),
    }
    if known:
        fields["finish_reasons"] = known
    if calls:
        fields["requested_tools"] = [
            {"call_id": capture.name(call.get("id")), "tool_name": capture.name(call.get("name"))} for call in calls
        ]
    if raw:
        fields["output_messages"] = Deferred(messages_from_answers, raw)
    return fields


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _usage(told: Any, reported: Any) -> Usage:
    """The counts of a reply; none of one from langchain's cache, which repeats those of the call that was made."""
    if _object(told).get("total_cost") == 0:
        return Usage()
    return usage_from_langchain(told) if told else usage_from_openai(reported)


def _response_id(message: Any, about: Json, output: Json) -> str | None:
    """The provider's id of the response; langchain gives messages ids of its own where there is none."""
    given = getattr(message, "id", None)
    own = isinstance(given, str) and given.startswith(_OWN_IDS)
    return _word(about.get("id"), output.get("id"), None if own else given)


def _finish_reason(generation: Any, message: Any) -> str | None:
    for found in (getattr(message, "response_metadata", None), getattr(generation, "generation_info", None)):
        if isinstance(found, dict):
            told = cast("Json", found)
            reason = _word(told.get("finish_reason"), told.get("stop_reason"), told.get("done_reason"))
            if reason is not None:
                return reason
    return None


def call_id_from_output(output: Any) -> str | None:
    """The model's id of the tool call that `output` answers."""
    return capture.name(_word(getattr(output, "tool_call_id", None)))


def documents_from_result(documents: Any) -> Json:
    """Fields of a retrieval's result: ids, and the texts apart."""
    found = cast("list[Any]", documents) if isinstance(documents, list) else []
    named = [_document_facts(document) for document in found[:DOCUMENT_LIMIT]]
    return {
        "result_count": len(found),
        "results": [{key: value for key, value in one.items() if value is not None} for one in named],
        "documents": Deferred(documents_from_snapshot, capture.snapshot(found[:DOCUMENT_LIMIT])),
    }


def _document_facts(document: Any) -> Json:
    about = _object(getattr(document, "metadata", None))
    return {"document_id": capture.name(_document_id(getattr(document, "id", None), about)), "score": _score(about)}


def _document_id(given: Any, about: Json) -> str | None:
    return _word(given, about.get("id"), about.get("document_id"), about.get("key"), about.get("source"))


def _score(about: Json) -> float | None:
    return _number(about.get("score"), about.get("relevance_score"))


def _word(*values: Any) -> str | None:
    for value in values:
        if isinstance(value, str) and value:
            return value
    return None


def _number(*values: Any) -> Any:
    return next((value for value in values if type(value) in _NUMBERS), None)


# -- texts, on the worker ------------------------------------------------------------------------------------------


def messages_from_answers(raw: Any) -> Any:
    """Messages of a reply, `{message, reason}` each."""
    found: list[Json] = []
    for answer in raw:
        message = {**_message(answer["message"]), "role": "assistant"}
        reason = answer["reason"]
        found.append(message if reason is None else {**message, "finish_reason": _FINISH.get(reason, reason)})
    return found


def definitions_from_tools(raw: Any) -> Any:
    """`tools` as they were bound, in the provider's shape."""
    found: list[Json] = []
    for tool in raw:
        inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        parameters = inner.get("parameters") or inner.get("input_schema")
        shown = {"name": inner.get("name"), "description": inner.get("description"), "parameters": parameters}
        found.append({"type": "function", **{key: value for key, value in shown.items() if value is not None}})
    return found


def documents_from_snapshot(raw: Any) -> Any:
    """Documents with id, score and text."""
    found: list[Json] = []
    for item in raw:
        if not isinstance(item, dict):
            continue
        document = cast("Json", item)
        about = _object(document.get("metadata"))
        shown = {"id": _document_id(document.get("id"), about), "score": _score(about)}
        shown["content"] = document.get("page_content")
        found.append({key: value for key, value in shown.items() if value is not None})
    return found


def result_from_output(raw: Any) -> Any:
    """What a tool gave: the content of its message; of a `Command`, the messages or the update that it carries."""
    if not isinstance(raw, dict):
        return raw
    output = cast("Json", raw)
    if "tool_call_id" in output:
        return output.get("content")
    update: Any = output.get("update")
    if "goto" not in output or not isinstance(update, dict):
        return output
    messages: Any = cast("Json", update).get("messages")
    if isinstance(messages, list):
        return [cast("Json", one).get("content") for one in cast("list[Any]", messages) if isinstance(one, dict)]
    return cast("Json", update)


def _message(raw: Any) -> Json:
    if not isinstance(raw, dict):
        return {"role": "user", "parts": [_text(raw)]}
    message = cast("Json", raw)
    kind = str(message.get("type"))
    role = message.get("role") if kind == "chat" else _ROLES.get(kind, kind)
    if role == "tool":
        parts: list[Json] = [{"type": "tool_call_response", "response": message.get("content")}]
        if message.get("tool_call_id") is not None:
            parts[0]["id"] = message["tool_call_id"]
    else:
        calls = [*(message.get("tool_calls") or ()), *(message.get("invalid_tool_calls") or ())]
        parts = [*_content_parts(message.get("content"), asked=bool(calls)), *(_tool_call(call) for call in calls)]
    found: Json = {"role": role, "parts": parts}
    if isinstance(message.get("name"), str):
        found["name"] = message["name"]
    return found


def _shown(raw: Any) -> Any:
    return [*map(cast("Json", raw).get, _SHOWN)] if type(raw) is dict else raw


MESSAGES = Each(_message, _shown)
"""Messages of a request."""


def _tool_call(call: Json) -> Json:
    found: Json = {"type": "tool_call", "name": str(call.get("name") or "")}
    if call.get("id") is not None:
        found["id"] = call["id"]
    found["arguments"] = call.get("args")
    return found


def _content_parts(content: Any, *, asked: bool) -> Iterable[Json]:
    """Parts of a message's content; `asked`: the blocks that ask for tools stand beside, already parsed."""
    if isinstance(content, str):
        return [_text(content)] if content else []
    if not isinstance(content, list):
        return []
    blocks = cast("list[Any]", content)
    return [part for block in blocks if (part := _content_part(block, asked=asked)) is not None]


def _content_part(block: Any, *, asked: bool) -> Json | None:
    if not isinstance(block, dict):
        return _text(block)
    part = cast("Json", block)
    kind = str(part.get("type"))
    if kind in ("text", "input_text", "output_text"):
        return _text(part.get("text"))
    if kind in ("thinking", "reasoning"):
        return {"type": "reasoning", "content": _word(part.get("thinking"), part.get("reasoning")) or ""}
    if kind in ("tool_use", "tool_call", "function_call", "input_json_delta"):
        return None if asked else {**part, "type": kind}
    if kind in ("image_url", "image", "audio", "input_audio", "file", "video"):
        return _media(kind, part)
    return {**part, "type": kind}


def _media(kind: str, part: Json) -> Json:
    """Images and other media: where they are, else their bytes."""
    inner: Any = part.get("image_url") or part.get("source") or part
    inner = cast("Json", inner) if isinstance(inner, dict) else {"url": inner}
    modality = (
        "image" if "image" in kind else "audio" if "audio" in kind else "video" if kind == "video" else "document"
    )
    url = _word(inner.get("url"))
    if url is not None and not url.startswith("data:"):
        return {"type": "uri", "modality": modality, "uri": url}
    data = url.partition(",")[2] if url is not None else _word(inner.get("base64"), inner.get("data"))
    found: Json = {"type": "blob", "modality": modality, "content": bounded_base64(data)}
    mime_type = _word(inner.get("mime_type"), inner.get("media_type"))
    return found if mime_type is None else {**found, "mime_type": mime_type}


def _text(text: Any) -> Json:
    return {"type": "text", "content": text if isinstance(text, str) else ""}
