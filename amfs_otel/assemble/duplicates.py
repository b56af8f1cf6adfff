"""One call seen by two libraries is one event.

Capture sees to that where it can (`capture.announced`). What slips through, a call that a client made out of the
framework's sight, is found here, in the closed window, by: the model's id of the tool call, else the provider's id of
the response, else the same operation and model, or tool, one inside the other. The two differ in where they were seen;
two events of one library are two calls.

A client that has a tool called elsewhere (`remote`: one of MCP) knows nothing of the model's id. So a call that the
messages show to have been made, and one through such a client of that tool, in that time and with those arguments, are
one as well; what either knows, the other is given.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from amfs_otel.assemble.prepare import PreparedEvent
from amfs_otel.capture.content import MASK
from amfs_otel.chain.skeleton import PreparedText
from amfs_otel.model import Kind

_MODEL_CALLS = frozenset({str(Kind.LLM_CALL), str(Kind.EMBEDDINGS)})

_GIVEN = ("call_id", "source_name", "source_version")
"""What the event that stays is given of one that goes: no texts."""


def without_duplicates(events: list[PreparedEvent]) -> list[PreparedEvent]:
    """`events` without those that another one stands for; what lay inside a dropped event lies inside that one.

    Args:
        events: The events of a window, in order.
    """
    stands_for: dict[str, str] = {}
    given: dict[str, dict[str, Any]] = {}
    for first, second in _pairs(events):
        if first.id in stands_for or second.id in stands_for:
            continue
        kept, dropped = (first, second) if _preferred(first, second) else (second, first)
        if dropped.synthetic and "call_id" in given.get(kept.id, ()):
            continue  # it is the account of another call of the model's
        stands_for[dropped.id] = kept.id
        more = given.setdefault(kept.id, {})
        more |= {key: dropped.facts[key] for key in _GIVEN if key in dropped.facts and key not in kept.facts}
    if not stands_for:
        return events
    return [_completed(event, stands_for, given) for event in events if event.id not in stands_for]


def _pairs(events: list[PreparedEvent]) -> Iterator[tuple[PreparedEvent, PreparedEvent]]:
    """Pairs of events that tell of the same call."""
    models = [event for event in events if event.facts["kind"] in _MODEL_CALLS]
    tools = [event for event in events if event.facts["kind"] == str(Kind.TOOL_CALL)]
    yield from _with_same(tools, "call_id", _same_tool_call)
    yield from _with_same(models, "response_id", _seen_by_two)
    yield from _with_same(tools, "tool_name", _inside_its_caller)
    yield from _called_elsewhere(tools)
    yield from _with_same(models, "model", _same_model_call)


def _with_same(
    events: list[PreparedEvent], name: str, same: Callable[[PreparedEvent, PreparedEvent], bool]
) -> Iterator[tuple[PreparedEvent, PreparedEvent]]:
    groups: dict[str, list[PreparedEvent]] = defaultdict(list)
    for event in events:
        value: Any = event.facts.get(name)
        text = _reference(event, name, "$n") if isinstance(value, dict) else value
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


def _called_elsewhere(tools: list[PreparedEvent]) -> Iterator[tuple[PreparedEvent, PreparedEvent]]:
    """Calls of tools that are elsewhere, of which another party's account of a tool's call tells, too."""
    calls = [event for event in tools if event.facts.get("remote") is True]
    others = [event for event in tools if event.facts.get("remote") is not True and "served" not in event.facts]
    yield from ((other, call) for call in calls for other in others if _hands_on(other, call))
    answered = [event for event in others if event.synthetic]
    # Without arguments to compare, in the order of the calls.
    yield from ((call, one) for one in answered for call in calls if _shown(call, one) and _same_arguments(call, one))
    for one in answered:
        yield from ((call, one) for call in calls if _shown(call, one) and _same_arguments(call, one) is None)


def _hands_on(outer: PreparedEvent, inner: PreparedEvent) -> bool:
    """A framework's tool that hands its arguments on, maybe under a name to which that of the server has been added.

    Where the framework lost the context, the call lies beside the tool, but in its time.
    """
    added = _word(outer, "tool_name").removesuffix(_word(inner, "tool_name"))
    if added == _word(outer, "tool_name") or (added and added[-1] not in "_-./:"):
        return False
    parent = inner.facts.get("parent")
    beside = parent == outer.facts.get("parent") and not outer.synthetic and _within(inner, outer)
    return (parent == outer.id or beside) and _same_arguments(outer, inner) is True


def _shown(call: PreparedEvent, answered: PreparedEvent) -> bool:
    """Whether `call` lies between the model's asking for its tool and the request that holds the answer."""
    in_time = call.facts["start_us"] >= answered.facts["start_us"] and call.seq < answered.seq
    return in_time and "call_id" not in call.facts and _word(call, "tool_name") == _word(answered, "tool_name")


def _same_arguments(first: PreparedEvent, second: PreparedEvent) -> bool | None:
    """Whether the arguments are the same; `None` where that cannot be told."""
    one, other = _text(first, "arguments"), _text(second, "arguments")
    if one is None or other is None:
        return None
    for values in ((one.data, other.data), (one.digest, other.digest)):
        if None not in values:
            return values[0] == values[1]
    return None


def _text(event: PreparedEvent, name: str) -> PreparedText | None:
    index: int | None = _reference(event, name, "$t")
    return event.texts[index] if index is not None else None


def _word(event: PreparedEvent, name: str) -> str:
    return str(_reference(event, name, "$n"))


def _reference(event: PreparedEvent, name: str, kind: str) -> Any:
    """What the reference of a fact to a text or a name refers to."""
    value: Any = event.facts.get(name)
    return cast("dict[str, Any]", value).get(kind) if isinstance(value, dict) else None


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


def _completed(event: PreparedEvent, stands_for: dict[str, str], given: dict[str, dict[str, Any]]) -> PreparedEvent:
    """`event` with what those that it stands for know, inside the event that stands for its parent."""
    parent, more = stands_for.get(str(event.facts.get("parent"))), given.get(event.id)
    if parent is None:
        return replace(event, facts={**event.facts, **more}) if more else event
    facts = {**event.facts, **(more or {}), "parent": parent}
    if parent == event.id:
        del facts["parent"]
    return replace(event, facts=facts)
