"""One call seen by two libraries is one event.

Capture sees to that where it can (`capture.announced`). What slips through, a call that a client made out of the
framework's sight, is found here, in the closed window, by: the model's id of the tool call, else the provider's id of
the response, else the same operation and model, or tool, one inside the other. The two differ in where they were seen;
two events of one library are two calls.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from amfs_otel.assemble.prepare import PreparedEvent
from amfs_otel.capture.content import MASK
from amfs_otel.model import Kind

_MODEL_CALLS = frozenset({str(Kind.LLM_CALL), str(Kind.EMBEDDINGS)})


def without_duplicates(events: list[PreparedEvent]) -> list[PreparedEvent]:
    """`events` without those that another one stands for; what lay inside a dropped event lies inside that one.

    Args:
        events: The events of a window, in order.
    """
    stands_for: dict[str, str] = {}
    for first, second in _pairs(events):
        if first.id not in stands_for and second.id not in stands_for:
            kept, dropped = (first, second) if _preferred(first, second) else (second, first)
            stands_for[dropped.id] = kept.id
    if not stands_for:
        return events
    return [_moved(event, stands_for) for event in events if event.id not in stands_for]


def _pairs(events: list[PreparedEvent]) -> Iterator[tuple[PreparedEvent, PreparedEvent]]:
    """Pairs of events that tell of the same call."""
    models = [event for event in events if event.facts["kind"] in _MODEL_CALLS]
    tools = [event for event in events if event.facts["kind"] == str(Kind.TOOL_CALL)]
    yield from _with_same(tools, "call_id", _same_tool_call)
    yield from _with_same(models, "response_id", _seen_by_two)
    yield from _with_same(tools, "tool_name", _inside_its_caller)
    yield from _with_same(models, "model", _same_model_call)


def _with_same(
    events: list[PreparedEvent], name: str, same: Callable[[PreparedEvent, PreparedEvent], bool]
) -> Iterator[tuple[PreparedEvent, PreparedEvent]]:
    groups: dict[str, list[PreparedEvent]] = defaultdict(list)
    for event in events:
        value: Any = event.facts.get(name)
        text = value.get("$n") if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        # What was masked may have differed.
        if isinstance(text, str) and text and MASK not in text:
            groups[text].append(event)
    for group in groups.values():
        if len({event.facts["source"] for event in group}) > 1 or any(event.synthetic for event in group):
            for index, first in enumerate(group):
                yield from ((first, second) for second in group[index + 1 :] if same(first, second))


def _seen_by_two(first: PreparedEvent, second: PreparedEvent) -> bool:
    return first.facts["source"] != second.facts["source"]


def _same_tool_call(first: PreparedEvent, second: PreparedEvent) -> bool:
    return _seen_by_two(first, second) or first.synthetic != second.synthetic


def _inside_its_caller(first: PreparedEvent, second: PreparedEvent) -> bool:
    """A framework's tool that hands on to, say, a client of MCP: the inner call is a part of the outer's doing."""
    return _seen_by_two(first, second) and (
        second.facts.get("parent") == first.id or first.facts.get("parent") == second.id
    )


def _same_model_call(first: PreparedEvent, second: PreparedEvent) -> bool:
    """One lies in the other's time, and at least one has no id of a response that could tell them apart."""
    if _told_again(first, second):
        return True
    if not _seen_by_two(first, second) or ("response_id" in first.facts and "response_id" in second.facts):
        return False
    parents = {first.facts.get("parent"), second.facts.get("parent")} - {None}
    same = first.facts.get("operation") == second.facts.get("operation") and len(parents) < 2
    return same and (_within(first, second) or _within(second, first))


def _told_again(first: PreparedEvent, second: PreparedEvent) -> bool:
    """The agent reported by hand a call that was seen, too: same model and token counts, nearly at once or later."""
    told = [event.facts.get("observed") == "reported" for event in (first, second)]
    counts = ("input_tokens", "output_tokens")
    same = all(first.facts.get(n) == second.facts.get(n) and first.facts.get(n) is not None for n in counts)
    return same and _seen_by_two(first, second) and told[0] != told[1]


def _within(inner: PreparedEvent, outer: PreparedEvent) -> bool:
    if inner.is_open or outer.is_open:
        return False
    starts, ends = (outer.facts["start_us"], inner.facts["start_us"]), (inner.facts["end_us"], outer.facts["end_us"])
    return bool(starts[0] <= starts[1] and ends[0] <= ends[1])


def _preferred(first: PreparedEvent, second: PreparedEvent) -> bool:
    """Whether `first`, the earlier, is the better account: a tool's caller, a model's client, no synthetic one."""
    if first.synthetic != second.synthetic:
        return second.synthetic
    if first.facts["kind"] == str(Kind.TOOL_CALL):
        return True
    if first.facts.get("observed") != second.facts.get("observed"):
        return first.facts.get("observed") != "reported"
    return ("server_address" in first.facts, len(first.facts)) >= ("server_address" in second.facts, len(second.facts))


def _moved(event: PreparedEvent, stands_for: dict[str, str]) -> PreparedEvent:
    parent = stands_for.get(str(event.facts.get("parent")))
    if parent is None:
        return event
    if parent == event.id:
        facts = {key: value for key, value in event.facts.items() if key != "parent"}
        return replace(event, facts=facts)
    return replace(event, facts={**event.facts, "parent": parent})
