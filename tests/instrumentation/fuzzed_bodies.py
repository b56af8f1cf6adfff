"""Bodies as no provider sends them: recorded answers in which members are null, missing or of another type."""

import copy
import random
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel

from tests.instrumentation.entry_points import CHAT, ENTRY_POINTS, MESSAGES, RESPONSES, EntryPoint, endpoint_of, fitting
from tests.instrumentation.recorded_exchanges import Exchange

WRONG: list[Any] = [
    None, 0, -1, 1.5, "text", "\ud800", "\x00", [], {}, [None], [[]], {"a": None}, True, 2**63, "x" * 5000,
]  # fmt: skip

OF_A_BODY, OF_A_FRAME = 0.1, 0.05
"""How often a member is spoiled."""

FORMATS = {CHAT: "response_format", RESPONSES: "text_format", MESSAGES: "output_format"}
"""The argument by which `parse` and `.stream()` are told the type that the answer shall have."""


class Answer(BaseModel):
    """A type that hardly any recorded answer has."""

    said: str


def spoiled(value: Any, chance: random.Random, probability: float) -> Any:
    """A copy of a JSON value in which some members are null, missing or of another type."""
    if chance.random() < probability:
        return copy.deepcopy(chance.choice(WRONG))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {k: spoiled(v, chance, probability) for k, v in members.items() if chance.random() >= probability / 2}
    if isinstance(value, list):
        return [spoiled(item, chance, probability) for item in cast("list[Any]", value)]
    return value


def fuzzed_exchanges(clients: set[str], count: int, seed: int) -> list[Exchange]:
    """A fixed series of exchanges with broken answers, over every entry point of the clients in turn."""
    chance = random.Random(seed)
    entries = [entry for entry in ENTRY_POINTS if entry.client in clients]
    return [_fuzzed(entries[number % len(entries)], chance) for number in range(count)]


def _fuzzed(entry: EntryPoint, chance: random.Random) -> Exchange:
    answered = [exchange for exchange in fitting(entry) if exchange.answers[0]["status"] == 200]
    exchange = chance.choice(answered)
    request = exchange.request
    if not entry.call.endswith(".create") and chance.random() < 0.5:
        kept = {name: value for name, value in request.items() if name not in ("text", "output_config")}
        request = {**kept, FORMATS[endpoint_of(entry.call)]: Answer}
    (answer,) = exchange.answers
    if "frames" in answer:
        frames = [{**f, "data": spoiled(f["data"], chance, OF_A_FRAME)} if "data" in f else f for f in answer["frames"]]
        answer = {**answer, "frames": frames}
    else:
        answer = {**answer, "body": spoiled(answer["body"], chance, OF_A_BODY)}
    return replace(exchange, request=request, answers=[answer])
