"""Anthropic's streams, folded event by event into what a whole message would have said.

`MessageFold.fold` runs once per event on the caller's thread: it joins nothing and builds nothing, it only keeps the
pieces. The fields of the SDK's models are read from their `__dict__`: asking a model for one that it lacks is slow.
"""

from collections.abc import Mapping
from typing import Any

from amfs_otel import capture
from amfs_otel.capture.nodes import members
from amfs_otel_instrumentation._anthropic_facts import Fields, message_facts

_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
    "compaction_delta": ("content", "content"),
}
"""Type of a delta → its member that holds a piece, and the member of the block that the pieces make."""

_TOTALS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_FINAL = ("output_tokens", "output_tokens_details")
"""Counts that the first event fills with placeholders: they count once the event with the stop reason has come."""


class _Block:
    __slots__ = ("member", "pieces", "start")

    def __init__(self, start: Any) -> None:
        self.start = start
        self.member = ""
        self.pieces: list[Any] = []

    def take(self, member: str, piece: Any) -> None:
        self.member = member
        self.pieces.append(piece)

    def whole(self) -> Any:
        """The block as the provider began it, with the pieces that came since."""
        joined = "".join([piece for piece in self.pieces if type(piece) is str])
        if not joined:
            return self.start
        begun = members(self.start)
        before = begun.get(self.member)
        return {**begun, self.member: before + joined if isinstance(before, str) else joined}


class MessageFold:
    """Folds the events of a stream of messages."""

    __slots__ = ("_blocks", "_final", "_head", "_usage")

    def __init__(self) -> None:
        self._blocks: dict[Any, _Block] = {}
        self._head: Fields = {}
        self._usage: Fields = {}
        self._final = False

    def fold(self, event: Any) -> None:
        """Takes one event. Most are pieces of a known block, in the shape that the SDK's models have."""
        try:
            own = event.__dict__
            if own["type"] == "content_block_delta":
                delta = own["delta"].__dict__
                name, member = _PIECES[delta["type"]]
                self._blocks[own["index"]].take(member, delta[name])
                return
        except (AttributeError, KeyError, TypeError):
            pass  # of another shape, or with members that the model's class does not know
        found = members(event)
        if found.get("type") == "content_block_delta":
            self._take_piece(found)
        else:
            self._take_rest(found)

    def _take_piece(self, event: Mapping[str, Any]) -> None:
        delta = members(event.get("delta"))
        kind, index = delta.get("type"), event.get("index")
        names = _PIECES.get(kind) if type(kind) is str else None
        block = self._blocks.get(index) if type(index) is int else None
        if names is not None and block is not None:
            block.take(names[1], delta.get(names[0]))

    def _take_rest(self, event: Mapping[str, Any]) -> None:
        kind, index = event.get("type"), event.get("index")
        if kind == "content_block_start" and type(index) is int:
            block = capture.snapshot(event.get("content_block"))
            self._blocks[index] = _Block(block)
            if members(block).get("type") == "fallback":  # another model goes on, and the message is said to be its
                self._head["model"] = members(members(block).get("to")).get("model") or self._head.get("model")
        elif kind == "message_start":
            message = members(event.get("message"))
            self._head = {name: message.get(name) for name in ("id", "model", "stop_reason")}
            self._take_usage(message.get("usage"))
        elif kind == "message_delta":
            self._final = True
            reason = members(event.get("delta")).get("stop_reason")
            if reason is not None:
                self._head["stop_reason"] = reason
            self._take_usage(event.get("usage"))

    def _take_usage(self, usage: Any) -> None:
        """Counts are cumulative: what a later event says wins, what it leaves out stays."""
        found = members(usage)
        self._usage.update({n: found[n] for n in (*_TOTALS, *_FINAL) if found.get(n) is not None})

    def result(self) -> Fields:
        """The event's result, as far as the stream came."""
        usage = self._usage if self._final else {name: self._usage.get(name) for name in _TOTALS}
        return message_facts(self._head, [block.whole() for _, block in sorted(self._blocks.items())], usage)
