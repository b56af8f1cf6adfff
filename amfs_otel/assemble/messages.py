"""Tool calls seen through the messages.

A plain function that answers a model's tool call is never patched; but the model asked for it in one response, and a
later request holds the answer. Those two make a `tool_call` with `observed: "messages"` and no duration, unless the
call itself was seen.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, cast

from amfs_otel.assemble.prepare import PreparedEvent, Preparer, evaluated
from amfs_otel.capture.runtime import new_id
from amfs_otel.chain.skeleton import PreparedText
from amfs_otel.model import Event, Kind

REMEMBERED_CALLS = 4096


class ToolCallsInMessages:
    """Remembers what models asked for and finds the answers in later requests.

    Messages are of the GenAI shape: `[{"role", "parts": [{"type": "tool_call", "id", "name", "arguments"}]}]`.
    """

    def __init__(self) -> None:
        self._asked: OrderedDict[str, tuple[Event, dict[str, Any]]] = OrderedDict()

    def asked(self, event: Event) -> None:
        """Notes the tool calls that an ended model call asked for."""
        for part in _parts(evaluated((event.result or {}).get("output_messages")), "tool_call"):
            call_id = part.get("id")
            if isinstance(call_id, str) and call_id:
                self._asked[call_id] = (event, part)
                self._asked.move_to_end(call_id)
        while len(self._asked) > REMEMBERED_CALLS:
            self._asked.popitem(last=False)

    def seen(self, event: Event) -> None:
        """A tool call was seen as a call: its answer in the messages is no second one."""
        call_id = event.fields.get("call_id") or (event.result or {}).get("call_id")
        if isinstance(call_id, str):
            self._asked.pop(call_id, None)

    def answered(self, event: Event, preparer: Preparer) -> list[PreparedEvent]:
        """Tool calls whose answers the request of model call `event` holds for the first time."""
        found: list[PreparedEvent] = []
        if not self._asked:
            return found
        for part in _parts(evaluated(event.fields.get("input_messages")), "tool_call_response"):
            call_id = part.get("id")
            asked = self._asked.pop(call_id, None) if isinstance(call_id, str) else None
            if asked is not None:
                found.append(_tool_call(event, *asked, part.get("response"), preparer))
        return found


def _tool_call(answered: Event, asked: Event, call: dict[str, Any], response: Any, preparer: Preparer) -> PreparedEvent:
    texts: list[PreparedText] = []
    facts: dict[str, Any] = {
        "id": f"{new_id(64):016x}",
        "kind": str(Kind.TOOL_CALL),
        "seq": answered.seq,
        "start_us": (asked.end_ns or asked.start_ns) // 1000,
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


def _parts(messages: Any, kind: str) -> Iterator[dict[str, Any]]:
    if not isinstance(messages, list):
        return
    for message in cast("list[Any]", messages):
        parts: Any = cast("dict[str, Any]", message).get("parts") if isinstance(message, dict) else None
        if not isinstance(parts, list):
            continue
        for part in cast("list[Any]", parts):
            if isinstance(part, dict) and cast("dict[str, Any]", part).get("type") == kind:
                yield cast("dict[str, Any]", part)
