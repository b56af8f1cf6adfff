"""Token arithmetic, one function per provider dialect.

All give a `Usage` whose `input` includes cached tokens and whose `output` includes reasoning tokens. A count that the
provider did not report stays `None`; sub-counts are never added again.
"""

from collections.abc import Mapping
from typing import Any

from amfs_otel.capture.nodes import members
from amfs_otel.model import Usage

_LARGEST = 1 << 40
"""No reply has more; the sums that metrics keep of such counts do not outgrow the 64 bits that OTLP has for them."""


def usage_from_openai(usage: Any) -> Usage:
    """From `usage` of chat.completions, responses or embeddings (object or mapping); inclusive counts.

    Compatible providers report the same with small differences: the cache hit beside the totals (DeepSeek, Moonshot),
    or reasoning tokens beside the output (xAI), which the total then shows.
    """
    found = members(usage)
    if "prompt_tokens" in found or "completion_tokens" in found:
        taken, output = _count(found, "prompt_tokens"), _count(found, "completion_tokens")
        given, made = found.get("prompt_tokens_details"), found.get("completion_tokens_details")
    else:
        taken, output = _count(found, "input_tokens"), _count(found, "output_tokens")
        given, made = found.get("input_tokens_details"), found.get("output_tokens_details")
    details = members(given)
    reasoning = _count(members(made), "reasoning_tokens")
    if reasoning and output is not None and _count(found, "total_tokens") == (taken or 0) + output + reasoning:
        output += reasoning
    read = _count(details, "cached_tokens")
    if read is None:
        read = _first(found, "prompt_cache_hit_tokens", "cached_tokens")
    written = _first(details, "cache_write_tokens", "cache_creation_tokens")
    return Usage(taken, read, written, output, reasoning)


def usage_from_anthropic(usage: Any) -> Usage:
    """From Anthropic's `usage`, whose `input_tokens` exclude cached ones: the sum is the inclusive count."""
    found = members(usage)
    fresh = _count(found, "input_tokens")
    read = _count(found, "cache_read_input_tokens")
    written = _count(found, "cache_creation_input_tokens")
    return Usage(
        input=None if fresh is None else fresh + (read or 0) + (written or 0),
        cache_read=read,
        cache_write=written,
        output=_count(found, "output_tokens"),
        reasoning=_first(members(found.get("output_tokens_details")), "thinking_tokens", "reasoning_tokens"),
    )


def usage_from_langchain(usage: Any) -> Usage:
    """From the `usage_metadata` of langchain's messages, into which its integrations convert; inclusive counts."""
    found = members(usage)
    given, made = members(found.get("input_token_details")), members(found.get("output_token_details"))
    if not given and not made:
        return Usage(input=_count(found, "input_tokens"), output=_count(found, "output_tokens"))
    return Usage(
        input=_count(found, "input_tokens"),
        cache_read=_of_any_tier(given, "cache_read"),
        cache_write=_of_any_tier(given, "cache_creation") or _by_lifetime(given),
        output=_count(found, "output_tokens"),
        reasoning=_of_any_tier(made, "reasoning"),
    )


def _of_any_tier(details: Mapping[str, Any], name: str) -> int | None:
    """A count of langchain's, which puts OpenAI's tier before the name where it was not the default one."""
    counts = (_count(details, f"{tier}{name}") for tier in ("", "flex_", "priority_"))
    return next((count for count in counts if count is not None), None)


def _by_lifetime(details: Mapping[str, Any]) -> int | None:
    """The sum of Anthropic's two counts, beside which langchain tells a total of zero."""
    counts = [_count(details, f"ephemeral_{lifetime}_input_tokens") for lifetime in ("5m", "1h")]
    told = [count for count in (*counts, _count(details, "cache_creation")) if count is not None]
    return sum(told) if told else None


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


def _count(fields: Mapping[str, Any], name: str) -> int | None:
    """A count, if it is one: providers also send null, floats and, in error bodies, texts."""
    value = fields.get(name)
    return value if type(value) is int and 0 <= value <= _LARGEST else None


def _first(fields: Mapping[str, Any], name: str, other: str) -> int | None:
    count = _count(fields, name)
    return count if count is not None else _count(fields, other)
