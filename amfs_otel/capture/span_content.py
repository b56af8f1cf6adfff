"""Content attributes of spans, made only where `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` allows them.

Values are JSON texts of the shapes that the profile defines. A length limit set by the user shortens the texts inside,
so that an attribute stays valid by its schema, and the span says how many bytes are missing.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from amfs_otel import semconv
from amfs_otel.capture.content import SPAN_TEXT_LIMIT, Masker
from amfs_otel.chain.canonical import normalised
from amfs_otel.model import Deferred, Kind

_FIELDS: dict[str, str] = {
    "input_messages": semconv.GEN_AI_INPUT_MESSAGES,
    "output_messages": semconv.GEN_AI_OUTPUT_MESSAGES,
    "system_instructions": semconv.GEN_AI_SYSTEM_INSTRUCTIONS,
    "tool_definitions": semconv.GEN_AI_TOOL_DEFINITIONS,
    "arguments": semconv.GEN_AI_TOOL_CALL_ARGUMENTS,
    "result": semconv.GEN_AI_TOOL_CALL_RESULT,
    "documents": semconv.GEN_AI_RETRIEVAL_DOCUMENTS,
}


def content_attributes(
    kind: Kind, fields: Mapping[str, Any], masker: Masker, limit: int | None
) -> dict[str, AttributeValue]:
    """The content attributes of `fields`, masked, each at most `limit` characters where one is set."""
    found: dict[str, AttributeValue] = {}
    missing = 0
    for name, key in _FIELDS.items():
        value = fields.get(name)
        if value is not None:
            found[key], cut = _text(value, masker, limit)
            missing += cut
    if kind is Kind.MEMORY_QUERY and fields.get("parameters", {}).get("query"):
        text, cut = _text(fields["parameters"]["query"], masker, limit)
        found[semconv.GEN_AI_MEMORY_QUERY_TEXT] = text
        missing += cut
    if kind in (Kind.MEMORY_READ, Kind.MEMORY_WRITE) and fields.get("value") is not None:
        text, cut = _text([{"content": _resolved(fields["value"])}], masker, limit)
        found[semconv.GEN_AI_MEMORY_RECORDS] = text
        missing += cut
    if missing:
        found[semconv.AMFS_CONTENT_SHORTENED_BYTES] = missing
    return found


def _resolved(value: Any) -> Any:
    return value.make(value.raw) if isinstance(value, Deferred) else value


def _text(value: Any, masker: Masker, limit: int | None) -> tuple[str, int]:
    value = _resolved(value)
    if isinstance(value, str):
        text = masker.text(value[:SPAN_TEXT_LIMIT])
        kept = text if limit is None else text[:limit]
        return kept, len(value) - len(kept) if len(value) > len(kept) else 0
    plain = masker.value(_cut(normalised(value), SPAN_TEXT_LIMIT))
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return (text, 0) if limit is None or len(text) <= limit else _shortened(plain, len(text), limit)


def _shortened(value: Any, length: int, limit: int) -> tuple[str, int]:
    """Cuts the longest strings inside `value` until its JSON text fits `limit`, by bisection on the cap."""
    low, high = 0, limit
    best = json.dumps(_cut(value, 0), ensure_ascii=False, separators=(",", ":"))
    while low < high:
        cap = (low + high + 1) // 2
        text = json.dumps(_cut(value, cap), ensure_ascii=False, separators=(",", ":"))
        if len(text) <= limit:
            low, best = cap, text
        else:
            high = cap - 1
    if len(best) > limit:
        return "[]", length
    return best, length - len(best)


def _cut(value: Any, cap: int) -> Any:
    if isinstance(value, str):
        return value[:cap]
    if isinstance(value, list):
        return [_cut(item, cap) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        # A role or type is a word of the schema: cut, it would make the message invalid.
        keep: Callable[[str], bool] = lambda key: key in ("role", "type", "name", "id", "finish_reason")  # noqa: E731
        return {key: item if keep(key) and isinstance(item, str) else _cut(item, cap) for key, item in mapping.items()}
    return value
