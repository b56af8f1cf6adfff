"""Tool calls seen through the messages.

A plain function that answers a model's tool call is never patched; but the model asked for it in one response, and a
later request holds the answer. Those two make a `tool_call` with `observed: "messages"` and no duration, unless the
call itself was seen. Either way the later request's event names the calls whose answers it brought.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from amfs_otel.assemble.prepare import PreparedEvent, Preparer, evaluated
from amfs_otel.capture.runtime import new_id
from amfs_otel.chain.skeleton import PreparedText
from amfs_otel.model import Event, Kind

REMEMBERED_CALLS = 4096
ANSWERS_NAMED = 256
"""So many of the answers that a request brings are named in its event, the last ones."""


class ToolCallsInMessages:
    """Remembers what models asked for and finds the answers in later requests.

    Messages are of the GenAI shape: `[{"role", "parts": [{"type": "tool_call", "id", "name", "arguments"}]}]`.
    """

    def __init__(self) -> None:
        self._asked: OrderedDict[str, tuple[int, dict[str, Any]]] = OrderedDict()
        self._held: OrderedDict[str, None] = OrderedDict()

    def asked(self, event: Event) -> None:
        """Notes the tool calls that an ended model call asked for."""
        asked_us = (event.end_ns or event.start_ns) // 1000
        for part in _parts(evaluated((event.result or {}).get("output_messages")), ("tool_call",)):
            call_id = part.get("id")
            if isinstance(call_id, str) and call_id:
                self._asked[call_id] = (asked_us, part)
                self._asked.move_to_end(call_id)
        while len(self._asked) > REMEMBERED_CALLS:
            self._asked.popitem(last=False)

    def seen(self, event: Event) -> None:
        """A tool call was seen as a call: its answer in the messages is no second one."""
        call_id = event.fields.get("call_id") or (event.result or {}).get("call_id")
        if isinstance(call_id, str):
            self._asked.pop(call_id, None)

    def answers_in(self, event: Event) -> list[dict[str, Any]]:
        """The parts with answers that the request of model call `event` brings, each id once.

        A request repeats the whole conversation. It brings what stands after the last message that asks for tools, and
        what no request before it held.
        """
        brought: dict[str, dict[str, Any]] = {}
        older: dict[str, dict[str, Any]] = {}
        for part in _parts(evaluated(event.fields.get("input_messages")), ("tool_call", "tool_call_response")):
            call_id = part.get("id")
            if part["type"] == "tool_call":
                older |= brought
                brought = {}
            elif isinstance(call_id, str) and call_id:
                brought[call_id] = part
        answers = [
            part
            for call_id, part in older.items()
            if call_id not in brought and (call_id in self._asked or call_id not in self._held)
        ]
        answers += brought.values()
        for part in answers:
            self._held[part["id"]] = None
            self._held.move_to_end(part["id"])
        while len(self._held) > REMEMBERED_CALLS:
            self._held.popitem(last=False)
        return answers

    @staticmethod
    def named(answers: list[dict[str, Any]], preparer: Preparer) -> list[dict[str, Any]]:
        """Answers as the event that brings them names them."""
        return [{"call_id": preparer.name(part["id"])} for part in answers[-ANSWERS_NAMED:]]

    def answered(self, event: Event, answers: list[dict[str, Any]], preparer: Preparer) -> list[PreparedEvent]:
        """Tool calls that nobody saw running and whose answers model call `event` brings."""
        found: list[PreparedEvent] = []
        for part in answers:
            asked = self._asked.pop(part["id"], None)
            if asked is not None:
                found.append(_tool_call(event, *asked, part.get("response"), preparer))
        return found


def _tool_call(
    answered: Event, asked_us: int, call: dict[str, Any], response: Any, preparer: Preparer
) -> PreparedEvent:
    texts: list[PreparedText] = []
    facts: dict[str, Any] = {
        "id": f"{new_id(64):016x}",
        "kind": str(Kind.TOOL_CALL),
        "seq": answered.seq,
        "start_us": asked_us,
        "source": answered.source,
        "status": "ok",
        "observed": "messages",
    }
    for key, value in (
        ("tool_name", call.get("name")),
        ("call_id", call.get("id")),
        ("arguments", call.get("arguments")),
        ("result", response),
    ):
        if value is not None:
            facts[key] = preparer.value(key, value, texts)
    if answered.parent_id:
        facts["parent"] = f"{answered.parent_id:016x}"
    if answered.agent is not None:
        facts["agent"] = preparer.name(answered.agent)
    return PreparedEvent(facts["id"], answered.seq, facts, texts, synthetic=True)


def _parts(messages: Any, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for message in messages if issubclass(type(messages), list) else ():
        kind = type(message)  # pyright: ignore[reportUnknownVariableType]
        parts: Any = message.get("parts") if issubclass(kind, dict) else None
        for part in parts if issubclass(type(parts), list) else ():
            kind = type(part)  # pyright: ignore[reportUnknownVariableType]
            if issubclass(kind, dict) and part.get("type") in kinds:
                yield part
