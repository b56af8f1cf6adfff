"""Token arithmetic, one function per provider dialect.

All give a `Usage` whose `input` includes cached tokens and whose `output` includes reasoning tokens. A count that the
provider did not report stays `None`; sub-counts are never added again.
"""

from collections.abc import Mapping
from typing import Any, cast

from amfs_otel.model import Usage


def usage_from_openai(usage: Any) -> Usage:
    """From OpenAI's `usage` of chat.completions, responses or embeddings (object or mapping); inclusive counts."""
    if usage is None:
        return Usage()
    input_details = _get(usage, "prompt_tokens_details") or _get(usage, "input_tokens_details")
    output_details = _get(usage, "completion_tokens_details") or _get(usage, "output_tokens_details")
    return Usage(
        input=_first(_count(usage, "prompt_tokens"), _count(usage, "input_tokens")),
        cache_read=_count(input_details, "cached_tokens"),
        cache_write=_first(_count(input_details, "cache_write_tokens"), _count(input_details, "cache_creation_tokens")),
        output=_first(_count(usage, "completion_tokens"), _count(usage, "output_tokens")),
        reasoning=_count(output_details, "reasoning_tokens"),
    )


def usage_from_anthropic(usage: Any) -> Usage:
    """From Anthropic's `usage`, whose `input_tokens` exclude cached ones: the sum is the inclusive count."""
    if usage is None:
        return Usage()
    fresh = _count(usage, "input_tokens")
    read = _count(usage, "cache_read_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    details = _get(usage, "output_tokens_details")
    return Usage(
        input=None if fresh is None else fresh + (read or 0) + (written or 0),
        cache_read=read,
        cache_write=written,
        output=_count(usage, "output_tokens"),
        reasoning=_first(_count(details, "thinking_tokens"), _count(details, "reasoning_tokens")),
    )


def _get(source: Any, name: str) -> Any:
    if source is None:
        return None
    if isinstance(source, Mapping):
        return cast("Mapping[str, Any]", source).get(name)
    return getattr(source, name, None)


def _count(source: Any, name: str) -> int | None:
    """A count, if it is one: providers also send null, floats and, in error bodies, texts."""
    value = _get(source, name)
    return value if type(value) is int and value >= 0 else None


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)
