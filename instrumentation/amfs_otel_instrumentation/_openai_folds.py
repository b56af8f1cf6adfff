"""OpenAI's streams, folded chunk by chunk into what a whole reply would have said.

`fold` runs once per chunk on the caller's thread: it joins nothing and builds nothing, it only keeps the pieces.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from amfs_otel import semconv
from amfs_otel.capture.nodes import members
from amfs_otel.capture.usage import later_usage, usage_from_openai
from amfs_otel.model import Usage
from amfs_otel_instrumentation._openai_facts import (
    Fields,
    chat_facts,
    response_error,
    response_facts,
    response_reply,
    word,
)


class _Choice:
    __slots__ = ("calls", "finish_reason", "function", "refusals", "role", "spoken", "texts", "thoughts")

    def __init__(self) -> None:
        self.texts: list[Any] = []
        self.refusals: list[Any] = []
        self.thoughts: list[Any] = []
        self.calls: dict[int, Fields] = {}
        self.function: Fields | None = None
        self.spoken: Fields | None = None
        self.role: Any = None
        self.finish_reason: Any = None

    def message(self) -> Fields:
        found: Fields = {
            "role": self.role,
            "content": _joined(self.texts),
            "refusal": _joined(self.refusals),
            "reasoning_content": _joined(self.thoughts),
            "tool_calls": [_joined_call(call) for _, call in sorted(self.calls.items())] or None,
            "finish_reason": self.finish_reason,
        }
        if self.function is not None:
            found["function_call"] = _joined_function(self.function)
        if self.spoken is not None:
            found["audio"] = {"id": self.spoken["id"], "transcript": _joined(self.spoken["texts"])}
        return found


class ChatFold:
    """Folds the chunks of a chat.completions stream."""

    __slots__ = ("_choices", "_head", "_texts", "_usage", "_where")

    def __init__(self, where: Fields) -> None:
        self._where = where
        self._choices: dict[int, _Choice] = {}
        self._head: Fields = {}
        self._texts: list[Any] | None = None  # of the only choice, where there is one
        self._usage = Usage()

    def fold(self, chunk: Any) -> None:
        """Takes one chunk; the usual one, with nothing but a piece of text for the only choice, by the shortest way.

        An attribute of a model is slow to look up, whatever the name; its `__dict__` has them all.
        """
        texts = self._texts
        if texts is not None:
            try:
                given = chunk.__dict__
                (one,) = given["choices"]
                choice = one.__dict__
                piece = choice["delta"]
                delta = piece.__dict__
                text = delta["content"]
                if (
                    text
                    and not choice["index"]
                    and choice["finish_reason"] is None
                    and delta["tool_calls"] is None
                    and given["usage"] is None
                    and not piece.__pydantic_extra__
                ):
                    texts.append(text)
                    return
            except (AttributeError, KeyError, TypeError, ValueError):
                pass
        self._take(chunk)

    def _take(self, chunk: Any) -> None:
        """Takes a chunk of any shape."""
        if not self._head.get("model"):
            self._take_head(chunk)
        choices = getattr(chunk, "choices", None)
        if type(choices) is list:
            for choice in cast("list[Any]", choices):
                self._take_choice(choice)
        self._take_usage(getattr(chunk, "usage", None))
        extra = getattr(chunk, "__pydantic_extra__", None)
        if extra:  # Groq's, if nobody asked for it
            self._take_usage(members(extra.get("x_groq")).get("usage"))
        self._texts = self._choices[0].texts if self._head and self._choices.keys() == {0} else None

    def _take_usage(self, usage: Any) -> None:
        if usage is not None:
            self._usage = later_usage(self._usage, usage_from_openai(usage))

    def _take_head(self, chunk: Any) -> None:
        """From the first chunk with an id and a model: some servers send filter results before they have either."""
        if getattr(chunk, "id", None):
            names = ("id", "model", "service_tier", "system_fingerprint")
            self._head = {name: getattr(chunk, name, None) for name in names}

    def _take_choice(self, choice: Any) -> None:
        index = getattr(choice, "index", None)
        number = index if type(index) is int else 0
        state = self._choices.get(number)
        if state is None:
            state = self._choices[number] = _Choice()
        delta = getattr(choice, "delta", None)
        text = getattr(delta, "content", None)
        if text:
            state.texts.append(text)
        if delta is not None:
            self._take_rest(state, delta)
        calls = getattr(delta, "tool_calls", None)
        if type(calls) is list:
            _take_calls(state.calls, cast("list[Any]", calls))
        reason = getattr(choice, "finish_reason", None)
        if reason is not None:
            state.finish_reason = reason
            self._take_usage(members(choice).get("usage"))  # Moonshot's place for it

    @staticmethod
    def _take_rest(state: _Choice, delta: Any) -> None:
        """What a chunk may hold beside text and tool calls."""
        given = members(delta)
        if state.role is None:
            state.role = given.get("role")
        refusal, function, audio = given.get("refusal"), given.get("function_call"), given.get("audio")
        if refusal:
            state.refusals.append(refusal)
        thought = given.get("reasoning_content") or given.get("reasoning")
        if thought:
            state.thoughts.append(thought)
        if function is not None:
            state.function = _with_piece(state.function, members(function), "name", "arguments")
        if audio is not None:
            state.spoken = _with_piece(state.spoken, members(audio), "id", "transcript")

    def result(self) -> Fields:
        """The event's result, as far as the stream came."""
        choices = [choice.message() for _, choice in sorted(self._choices.items())]
        return chat_facts(self._where, self._head, choices, self._usage)


def _with_piece(state: Fields | None, piece: Mapping[str, Any], name: str, text: str) -> Fields:
    """The state of what comes in pieces, its `name` once and its `text` bit by bit, with one more of them."""
    found: Fields = {name: None, "texts": []} if state is None else state
    found[name] = found[name] or piece.get(name)
    found["texts"].append(piece.get(text))
    return found


def _take_calls(calls: dict[int, Fields], fragments: list[Any]) -> None:
    """Joins fragments of tool calls by index.

    A server without indexes sends whole calls, and so does one that gives all the same index (Gemini).
    """
    for fragment in fragments:
        index, call_id = getattr(fragment, "index", None), getattr(fragment, "id", None)
        function = getattr(fragment, "function", None)
        custom = members(fragment).get("custom") if function is None else None
        name, text = _named(function, "arguments") if custom is None else _named(custom, "input")
        number = index if type(index) is int else len(calls)
        call = calls.get(number)
        if call is not None and call_id and name and call["id"] not in (None, call_id):
            number, call = max(calls) + 1, None
        if call is None:
            call = calls[number] = {"id": None, "name": None, "custom": custom is not None, "texts": []}
        call["id"] = call["id"] or call_id
        call["name"] = call["name"] or name
        call["texts"].append(text)


def _named(tool: Any, text: str) -> tuple[Any, Any]:
    given = members(tool)
    return given.get("name"), given.get(text)


def _joined_call(call: Fields) -> Fields:
    if call["custom"]:
        return {"id": call["id"], "custom": {"name": call["name"], "input": _joined(call["texts"])}}
    return {"id": call["id"], "function": _joined_function(call)}


def _joined_function(call: Fields) -> Fields:
    return {"name": call["name"], "arguments": _joined(call["texts"]) or ""}


def _joined(texts: list[Any]) -> str | None:
    return "".join([text for text in texts if type(text) is str]) if texts else None


class ResponseFold:
    """Folds the events of a responses stream: the last event holds all; what came before counts where it is missing."""

    __slots__ = ("_error", "_head", "_items", "_last", "_texts", "_where")

    def __init__(self, where: Fields) -> None:
        self._where = where
        self._head: Fields = {}
        self._items: dict[int | None, Any] = {}
        self._texts: dict[int | None, list[Any]] = {}
        self._last: Any = None
        self._error: str | None = None

    def fold(self, event: Any) -> None:
        """Takes one event."""
        kind = getattr(event, "type", None)
        if type(kind) is not str:
            return
        if kind in _DELTAS:
            self._texts.setdefault(_index_of(event), []).append(getattr(event, "delta", None))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            index = _index_of(event)
            self._items[index] = getattr(event, "item", None)
            if kind == "response.output_item.done":
                self._texts.pop(index, None)
        elif kind in _ENDS:
            self._last = getattr(event, "response", None)
        elif kind == "error":
            self._error = word(getattr(event, "code", None)) or semconv.ERROR_TYPE_OTHER
        elif not self._head.get("id"):
            response = members(getattr(event, "response", None))
            self._head = {name: response.get(name) for name in ("id", "model", "service_tier")}

    def result(self) -> Fields:
        """The event's result, as far as the stream came."""
        if self._last is not None:
            return response_reply(self._where, self._last)
        items = [self._partial(index, item) for index, item in self._items.items()]
        return response_facts(self._where, self._head, items, Usage())

    def failure(self) -> str | None:
        """The provider's error code, where an event tells of a failure that the SDK does not raise."""
        return self._error or response_error(self._last)

    def _partial(self, index: Any, item: Any) -> Any:
        """An item whose end did not come, with the text that did."""
        text = _joined(self._texts.get(index, []))
        if text is None:
            return item
        kind = getattr(item, "type", None)
        if kind == "message":
            return SimpleNamespace(type=kind, content=[{"type": "output_text", "text": text}])
        names = {"type": kind, "call_id": getattr(item, "call_id", None), "name": getattr(item, "name", None)}
        return SimpleNamespace(**{**names, "arguments": text, "input": text})


def _index_of(event: Any) -> int | None:
    """The number of the item that an event is about; the SDK does not check what a server sends."""
    index = getattr(event, "output_index", None)
    return index if type(index) is int else None


_DELTAS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
