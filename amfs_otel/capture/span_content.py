"""Content attributes of spans, made only where `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` allows them.

Values are JSON texts of the shapes that the profile defines. A length limit set by the user shortens the texts inside,
so that an attribute stays valid by its schema, and the span says how many bytes are missing.
"""

import contextlib
import json
import marshal
from collections.abc import Callable, Mapping
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from amfs_otel import semconv
from amfs_otel.capture.content import SPAN_TEXT_LIMIT, Masker, cut_between_words
from amfs_otel.capture.copies import Each
from amfs_otel.capture.plain import texts_of
from amfs_otel.chain.canonical import clean_text, normalised
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

_RECURRING = ("tool_definitions", "system_instructions")
"""Fields that are the same in most calls of an agent."""

_Making = Callable[[Any], Any]

REMEMBERED_BYTES = 1 << 16
ALL_REMEMBERED_BYTES = 1 << 18
"""Of one text and what it was made of, and of all of them."""


class Remembered(dict[tuple[_Making, bytes | str], tuple[str, int]]):
    """Texts made before, of what recurs: what was marshalled, and what makes a value of it → text, bytes missing.

    Tools are the same in most calls, and a conversation repeats all that was said before. When full it begins anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def keep(self, making: _Making, raw: bytes | str, made: tuple[str, int]) -> None:
        """Remembers what was made of `raw`, unless that is large."""
        size = len(raw) + len(made[0])
        if size > REMEMBERED_BYTES:
            return
        self._size += size
        if self._size > ALL_REMEMBERED_BYTES:
            self.clear()
            self._size = size
        self[making, raw] = made


def content_attributes(
    kind: Kind, fields: Mapping[str, Any], masker: Masker, limit: int | None, remembered: Remembered | None = None
) -> dict[str, AttributeValue]:
    """The content attributes of `fields`, masked, each at most `limit` characters where one is set.

    Args:
        kind: What the fields are of.
        fields: The fields.
        masker: Masks secrets.
        limit: Characters.
        remembered: Texts made before with the same masker and limit.
    """
    found: dict[str, AttributeValue] = {}
    missing = 0
    for name, key in _FIELDS.items():
        value = fields.get(name)
        if value is not None:
            found[key], cut = _text_of(name, value, masker, limit, remembered)
            missing += cut
    if kind is Kind.MEMORY_QUERY and fields.get("parameters", {}).get("query"):
        text, cut = _plain_text(_resolved(fields["parameters"]["query"]), masker, limit)
        found[semconv.GEN_AI_MEMORY_QUERY_TEXT] = text
        missing += cut
    if kind in (Kind.MEMORY_READ, Kind.MEMORY_WRITE) and fields.get("value") is not None:
        text, cut = _json_text([{"content": _resolved(fields["value"])}], masker, limit)
        found[semconv.GEN_AI_MEMORY_RECORDS] = text
        missing += cut
    stops: list[str] | None = fields.get("stop_sequences")
    if stops:
        texts = [_plain_text(text, masker, limit) for text in stops]
        found[semconv.GEN_AI_REQUEST_STOP_SEQUENCES] = [text for text, _ in texts]
        missing += sum(cut for _, cut in texts)
    if missing:
        found[semconv.AMFS_CONTENT_SHORTENED_BYTES] = missing
    return found


def _text_of(
    name: str, value: Any, masker: Masker, limit: int | None, remembered: Remembered | None
) -> tuple[str, int]:
    if remembered is None:
        return _json_text(_resolved(value), masker, limit)
    if name == "input_messages":
        return _messages_text(value, masker, limit, remembered)
    raw: Any = value.raw if name in _RECURRING and isinstance(value, Deferred) else None
    if type(raw) is not bytes and type(raw) is not str:
        return _json_text(_resolved(value), masker, limit)
    known = remembered.get((value.make, raw))
    if known is None:
        known = _json_text(_resolved(value), masker, limit)
        remembered.keep(value.make, raw, known)
    return known


def _messages_text(value: Any, masker: Masker, limit: int | None, remembered: Remembered) -> tuple[str, int]:
    """The text of a conversation, put together of those of its messages, most of which were said before."""
    make: Any = value.make if isinstance(value, Deferred) else None  # read once: the worker may replace it
    each = make if type(make) is Each else _AS_THEY_ARE
    said: Any = value.raw if each is make else _resolved(value)
    if type(said) is list:
        messages = cast("list[Any]", said)
        text = f"[{','.join([_message_text(message, each, masker, remembered) for message in messages])}]"
        if limit is None or len(text) <= limit:
            return text, 0
    return _tree_text(_resolved(value), masker, limit)


_AS_THEY_ARE = Each(lambda message: message, lambda message: message)


def _message_text(said: Any, each: Each, masker: Masker, remembered: Remembered) -> str:
    """The text of one message. Only those in which nothing was masked or replaced are remembered."""
    try:
        raw = marshal.dumps(each.shown(said))
    except ValueError:  # not all of it is of built-in types
        return _tree_text(each.one(said), masker, None)[0]
    known = remembered.get((each.one, raw))
    if known is not None:
        return known[0]
    message = each.one(said)
    if not _may_be_shown(message, masker):
        return _tree_text(message, masker, None)[0]
    text = _json(message)
    remembered.keep(each.one, raw, (text, 0))
    return text


def _resolved(value: Any) -> Any:
    return value.make(value.raw) if isinstance(value, Deferred) else value


def _plain_text(value: Any, masker: Masker, limit: int | None) -> tuple[str, int]:
    if not issubclass(type(value), str):
        return _json_text(value, masker, limit)
    clean, _ = clean_text(str.__str__(value))
    within = cut_between_words(clean, SPAN_TEXT_LIMIT)
    text = masker.text(within)
    kept = text if limit is None else text[:limit]
    return kept, len(clean) - len(within) + len(text) - len(kept)


def _json_text(value: Any, masker: Masker, limit: int | None) -> tuple[str, int]:
    if type(value) is str and value[:1] in ("{", "["):
        # Arguments of a tool call are a JSON text already; it would be shortened as one string.
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    return _tree_text(value, masker, limit)


def _tree_text(value: Any, masker: Masker, limit: int | None) -> tuple[str, int]:
    plain = value if _may_be_shown(value, masker) else masker.value(_readable(normalised(value)))
    text = _json(plain)
    return (text, 0) if limit is None or len(text) <= limit else _shortened(plain, len(text), limit)


def _may_be_shown(value: Any, masker: Masker) -> bool:
    """Whether `value` may be shown as it is: plain, of bounded texts, with nothing in them to be masked."""
    texts = texts_of(value)
    return texts is not None and len(texts) <= SPAN_TEXT_LIMIT and masker.leaves(texts)


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
"""For what `texts_of` has walked or `normalised` has made: neither holds itself."""


def _readable(tree: Any) -> Any:
    """A normalised value with bounded texts, and texts where the ledger would tell of replaced characters."""
    if isinstance(tree, str):
        return cut_between_words(tree, SPAN_TEXT_LIMIT)
    if isinstance(tree, list):
        return [_readable(item) for item in cast("list[Any]", tree)]
    if isinstance(tree, dict):
        members = cast("dict[str, Any]", tree)
        if members.keys() == {"$replaced", "$str"}:
            return _readable(members["$str"])
        return {key: _readable(item) for key, item in members.items()}
    return tree


def _shortened(value: Any, length: int, limit: int) -> tuple[str, int]:
    """Cuts the longest strings inside `value` until its JSON text fits `limit`, by bisection on the cap."""
    low, high = 0, limit
    best = _json(_cut(value, 0))
    while low < high:
        cap = (low + high + 1) // 2
        text = _json(_cut(value, cap))
        if len(text) <= limit:
            low, best = cap, text
        else:
            high = cap - 1
    if len(best) > limit:
        return ("[]" if isinstance(value, list) else "{}"), length - 2
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
