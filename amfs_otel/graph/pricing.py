"""Money from token counts: one pure function, offline, with the price table that genai-prices carries.

A record holds a price only where a provider reported one. Everything else is derived when somebody looks, from the
signed token counts, and says from which table. The table is the one bundled with the installed package, never one that
the application keeps up to date over the network, so the same package gives the same money.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from importlib import metadata, resources
from typing import Any

from amfs_otel.graph.texts import integer, real, word
from amfs_otel.graph.times import moment

REPORTED = "provider"
UNPRICED = "unpriced"
NO_USAGE = "no_usage"

_PROVIDERS = {"azure.ai.inference": "azure", "x_ai": "x-ai"}
"""Provider names of the GenAI conventions that genai-prices knows only under another one."""

_EMBEDDINGS = "embeddings"


def cost_of(call: Mapping[str, Any]) -> tuple[float | None, str]:
    """Returns the cost of a model call in US dollars, and where it comes from.

    Args:
        call: Facts of an ``llm_call`` or ``embeddings`` event.

    Returns:
        ``(cost, "provider")`` where the provider reported it; ``(cost, "genai-prices/<version> sha256:<12 hex>")``
        where it was derived; ``(None, "no_usage")`` without token counts; ``(None, "unpriced")`` where the table has no
        rate for something that was used. The first derivation in a process costs about 0.5 s: the table is loaded.
    """
    reported = real(call.get("reported_cost_usd"))
    if reported is not None:
        return float(reported), REPORTED
    usage = _usage_of(call)
    model = word(call.get("response_model")) or word(call.get("model"))
    if usage is None:
        return None, NO_USAGE
    if model is None:
        return None, UNPRICED
    cost = None
    for name in dict.fromkeys((model, word(call.get("model")) or model)):
        cost = _priced(usage, name, word(call.get("provider")), moment(call.get("start_us")))
        if cost is not None:
            return float(cost), _table().name
    return None, UNPRICED


@dataclass(frozen=True, slots=True)
class _Usage:
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | None
    cache_write_tokens: int | None


def _usage_of(call: Mapping[str, Any]) -> _Usage | None:
    """The counts that a price needs; None where one of them was not reported, for a partial sum would be a lie."""
    output = integer(call.get("output_tokens"))
    if output is None and _EMBEDDINGS in (call.get("kind"), call.get("operation")):
        output = 0
    given = integer(call.get("input_tokens"))
    read, written = integer(call.get("cached_tokens")), integer(call.get("cache_write_tokens"))
    if given is None or output is None or min(given, output, read or 0, written or 0) < 0:
        return None
    return _Usage(given, output, read, written)


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    snapshot: Any


@cache
def _table() -> _Table:
    from genai_prices import data
    from genai_prices.data_snapshot import DataSnapshot

    content = resources.files("genai_prices").joinpath("data.py").read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:12]
    name = f"genai-prices/{metadata.version('genai-prices')} sha256:{digest}"
    return _Table(name, DataSnapshot(providers=data.providers, from_auto_update=False))


def _priced(usage: _Usage, model: str, provider: str | None, when: datetime | None) -> Decimal | None:
    from genai_prices import Usage

    counts = Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    provider = _PROVIDERS.get(provider or "", provider)
    try:
        price = _table().snapshot.calc(counts, model, provider, None, when)
    except (LookupError, ValueError):  # unknown model or provider; counts that contradict each other
        return None
    rates = price.model_price
    # genai-prices counts a use without a rate as free.
    if (usage.input_tokens and rates.input_mtok is None) or (usage.output_tokens and rates.output_mtok is None):
        return None
    return price.total_price
