"""Token arithmetic, one function per provider dialect.

All give a `Usage` whose `input` includes cached tokens and whose `output` includes reasoning tokens. A count that the
provider did not report stays `None`; sub-counts are never added again.
"""

from collections.abc import Mapping
from typing import Any, cast

from amfs_otel.model import Usage

_NOTHING: Mapping[str, Any] = {}


def usage_from_openai(usage: Any) -> Usage:
    """From `usage` of chat.completions, responses or embeddings (object or mapping); inclusive counts.

    Compatible providers report the same with small differences: the cache hit beside the totals (DeepSeek, Moonshot),
    or reasoning tokens beside the output (xAI), which the total then shows.
    """
    found = _fields(usage)
    chat = "prompt_tokens" in found or "completion_tokens" in found
    given, written = ("prompt_tokens", "completion_tokens") if chat else ("input_tokens", "output_tokens")
    details = _fields(found.get(f"{given}_details"))
    reasoning = _count(_fields(found.get(f"{written}_details")), "reasoning_tokens")
    taken, output = _count(found, given), _count(found, written)
    if reasoning and output is not None and _count(found, "total_tokens") == (taken or 0) + output + reasoning:
        output += reasoning
    read = _first(details, "cached_tokens")
    return Usage(
        input=taken,
        cache_read=read if read is not None else _first(found, "prompt_cache_hit_tokens", "cached_tokens"),
        cache_write=_first(details, "cache_write_tokens", "cache_creation_tokens"),
        output=output,
        reasoning=reasoning,
    )


def usage_from_anthropic(usage: Any) -> Usage:
    """From Anthropic's `usage`, whose `input_tokens` exclude cached ones: the sum is the inclusive count."""
    found = _fields(usage)
    fresh = _count(found, "input_tokens")
    read = _count(found, "cache_read_input_tokens")
    written = _count(found, "cache_creation_input_tokens")
    return Usage(
        input=None if fresh is None else fresh + (read or 0) + (written or 0),
        cache_read=read,
        cache_write=written,
        output=_count(found, "output_tokens"),
        reasoning=_first(_fields(found.get("output_tokens_details")), "thinking_tokens", "reasoning_tokens"),
    )


def usage_from_langchain(usage: Any) -> Usage:
    """From the `usage_metadata` of langchain's messages, into which its integrations convert; inclusive counts."""
    found = _fields(usage)
    given, made = _fields(found.get("input_token_details")), _fields(found.get("output_token_details"))
    return Usage(
        input=_count(found, "input_tokens"),
        cache_read=_count(given, "cache_read"),
        cache_write=_count(given, "cache_creation"),
        output=_count(found, "output_tokens"),
        reasoning=_count(made, "reasoning"),
    )


def later_usage(earlier: Usage, later: Usage) -> Usage:
    """Usage that came in several frames of one stream: what a later frame says wins, what it leaves out stays."""
    return Usage(
        *(
            old if new is None else new
            for old, new in (
                (earlier.input, later.input),
                (earlier.cache_read, later.cache_read),
                (earlier.cache_write, later.cache_write),
                (earlier.output, later.output),
                (earlier.reasoning, later.reasoning),
            )
        )
    )


def _fields(source: Any) -> Mapping[str, Any]:
    """The fields of a mapping or object, read without running its code: a missing attribute of a model is slow."""
    if source is None:
        return _NOTHING
    if isinstance(source, dict):
        return cast("dict[str, Any]", source)
    fields: Mapping[str, Any] | None = getattr(source, "__dict__", None)
    extra: Mapping[str, Any] | None = getattr(source, "__pydantic_extra__", None)
    if fields is None:
        return _NOTHING
    return {**fields, **extra} if extra else fields


def _count(fields: Mapping[str, Any], name: str) -> int | None:
    """A count, if it is one: providers also send null, floats and, in error bodies, texts."""
    value = fields.get(name)
    return value if type(value) is int and value >= 0 else None


def _first(fields: Mapping[str, Any], *names: str) -> int | None:
    return next((count for name in names if (count := _count(fields, name)) is not None), None)
