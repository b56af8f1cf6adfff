"""Every method by which an application asks a provider, and the recorded exchanges replayed through each of them.

An exchange was recorded through one method; what the provider answers does not depend on which, so its answers fit every
method of the same endpoint. `parse` and the `.stream()` helpers take fewer arguments than `create`: what one of them
does not take is left out of the request, and so are tools, which they want strict.
"""

import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx2
from anthropic import Anthropic
from openai import AzureOpenAI, OpenAI

from tests.instrumentation.recorded_exchanges import DEPLOYMENT_API, Exchange, all_exchanges

CHAT, RESPONSES, EMBEDDINGS, MESSAGES = "chat.completions", "responses", "embeddings", "messages"
WAYS = ("", "with_raw_response.", "with_streaming_response.")
METHODS = (("create", False), ("create", True), ("parse", False), ("stream", True))
"""A method, and whether its answer is streamed."""

_ALONE: Any = {"api_key": "k", "http_client": httpx2.Client(verify=False, trust_env=False)}
CLIENTS: dict[str, Any] = {
    "openai": OpenAI(**_ALONE),
    "azure": AzureOpenAI(azure_endpoint="http://127.0.0.1:9", api_version=DEPLOYMENT_API, **_ALONE),
    "anthropic": Anthropic(**_ALONE),
}
"""Clients that are asked for their methods and nothing else."""

RESOURCES = (
    ("openai", CHAT, WAYS),
    ("openai", f"beta.{CHAT}", WAYS[:1]),
    ("openai", RESPONSES, WAYS),
    ("openai", f"beta.{RESPONSES}", WAYS),
    ("openai", EMBEDDINGS, WAYS),
    ("azure", CHAT, WAYS[:1]),
    ("azure", RESPONSES, WAYS[:1]),
    ("azure", EMBEDDINGS, WAYS[:1]),
    ("anthropic", MESSAGES, WAYS),
    ("anthropic", f"beta.{MESSAGES}", WAYS),
)
"""Resources of a client and the ways that are tried: Azure's, and the beta of chat, are classes that have been tried."""


@dataclass(frozen=True)
class EntryPoint:
    """One method of one kind of client.

    Attributes:
        client: openai, azure or anthropic.
        call: The method, from the client on.
        streamed: Whether its answer is a stream.
    """

    client: str
    call: str
    streamed: bool

    def __str__(self) -> str:
        return f"{self.client}: {self.call}{', streamed' if self.streamed else ''}"


def _found(client: str, call: str) -> Any:
    """The method, or `None` where the client has none of that name."""
    found = CLIENTS[client]
    for name in call.split("."):
        found = getattr(found, name, None)
    return found


def _entry_points() -> Iterator[EntryPoint]:
    for client, resource, ways in RESOURCES:
        methods = METHODS if resource != EMBEDDINGS else METHODS[:1]
        for way in ways:
            for method, streamed in methods:
                call = f"{resource}.{way}{method}"
                if _found(client, call) is not None:
                    yield EntryPoint(client, call, streamed)


ENTRY_POINTS = tuple(_entry_points())
"""All that the installed SDKs offer."""


def endpoint_of(call: str) -> str:
    """What a method asks, whichever way."""
    return next(name for name in (CHAT, RESPONSES, EMBEDDINGS, MESSAGES) if name in call)


def through(entry: EntryPoint, exchange: Exchange) -> Exchange:
    """The exchange as it goes through another method."""
    taken = inspect.signature(_found(entry.client, entry.call)).parameters
    if entry.call.endswith(".create"):
        kept = {name: value for name, value in exchange.request.items() if name in taken}
    else:
        left_out = ("stream", "tools", "tool_choice")
        kept = {name: value for name, value in exchange.request.items() if name in taken and name not in left_out}
    return replace(exchange, client=entry.client, call=entry.call, request=kept)


RECORDED = tuple(
    exchange for exchange in all_exchanges() if exchange.read == "all" and exchange.call.endswith(".create")
)


@functools.cache
def fitting(entry: EntryPoint) -> tuple[Exchange, ...]:
    """The recorded exchanges of the same endpoint, as they go through `entry`; those of Azure through Azure alone."""
    return tuple(
        through(entry, exchange)
        for exchange in RECORDED
        if endpoint_of(exchange.call) == endpoint_of(entry.call)
        and exchange.streamed == entry.streamed
        and (entry.client == "azure" or exchange.client == entry.client)
    )
