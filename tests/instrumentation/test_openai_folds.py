"""What is taken from a chunk by the short way is what the long way would have taken."""

import copy
from collections import OrderedDict
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from amfs_otel.capture.copies import MARSHALLED_CHARACTERS
from amfs_otel_instrumentation import _openai_facts as facts
from amfs_otel_instrumentation._openai_folds import ChatFold

WHERE = {"provider": "openai", "operation": "chat", "model": "gpt-9"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}


def chunk(delta: dict[str, Any], *, index: int = 0, reason: str | None = None, **more: Any) -> Any:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return ChatCompletionChunk.construct(**{"id": "c1", "model": "gpt-9", "choices": [choice], "usage": None, **more})


def folded(*chunks: Any) -> dict[str, Any]:
    fold = ChatFold(WHERE)
    for piece in chunks:
        fold.fold(piece)
    return fold.result()


def said(result: dict[str, Any]) -> list[Any]:
    return [choice["content"] for choice in result["output_messages"].raw]


def test_texts_of_the_only_choice() -> None:
    result = folded(chunk({"role": "assistant", "content": ""}), chunk({"content": "He"}), chunk({"content": "llo"}))
    assert said(result) == ["Hello"]
    assert (result["response_id"], result["response_model"], result["input_tokens"]) == ("c1", "gpt-9", None)


def test_a_second_choice_that_the_request_did_not_name() -> None:
    roles = [chunk({"role": "assistant", "content": ""}, index=index) for index in (0, 1)]
    texts = [chunk({"content": text}, index=index) for index, text in ((0, "a"), (1, "x"), (0, "b"), (1, "y"))]
    assert said(folded(*roles, *texts)) == ["ab", "xy"]
    assert said(folded(roles[0], texts[0], roles[1], *texts[1:])) == ["ab", "xy"]


def test_usage_that_comes_with_each_piece_of_text() -> None:
    pieces = [chunk({"content": "a"}, usage={**USAGE, "completion_tokens": number}) for number in (1, 2, 3)]
    first = chunk({"role": "assistant", "content": ""})
    assert folded(first, *pieces)["output_tokens"] == 3
    assert folded(*pieces)["output_tokens"] == 3


def test_text_beside_a_finish_reason_or_a_tool_call_counts() -> None:
    call = {"index": 0, "id": "t1", "function": {"name": "look", "arguments": "{}"}}
    first = chunk({"role": "assistant", "content": ""})
    result = folded(first, chunk({"content": "a", "tool_calls": [call]}), chunk({"content": "b"}, reason="stop"))
    assert said(result) == ["ab"]
    assert result["finish_reasons"] == ["stop"]
    assert result["requested_tools"] == [{"call_id": "t1", "tool_name": "look"}]


@pytest.mark.parametrize("broken", [None, {}, [], "x", [None], [{}], [{"delta": None, "index": 0}]])
def test_a_chunk_of_another_shape_is_no_error(broken: Any) -> None:
    first = chunk({"role": "assistant", "content": ""})
    assert said(folded(first, chunk({"content": "a"}), chunk({}, choices=broken), chunk({"content": "b"})))[0] == "ab"


@pytest.mark.parametrize(
    "content",
    ["short", "long " * MARSHALLED_CHARACTERS, [{"type": "text", "text": "parts"}]],
    ids=["marshalled", "shared", "parts"],
)
def test_messages_are_recorded_as_they_were(content: Any) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": content}]
    fields = facts.chat_request({"provider": "openai"}, {"model": "m", "messages": messages})
    before = facts.chat_request({"provider": "openai"}, {"model": "m", "messages": copy.deepcopy(messages)})
    messages[1]["role"] = "changed"
    if isinstance(content, list):
        content[0]["text"] = "changed"
    messages.append({"role": "user", "content": "later"})
    made, expected = fields["input_messages"], before["input_messages"]
    assert made.make(made.raw) == expected.make(expected.raw)


def test_a_message_of_no_built_in_type_is_kept_all_the_same() -> None:
    class Content(str):
        __slots__ = ()

    messages = [{"role": "user", "content": Content("mine")}]
    made = facts.chat_request({"provider": "openai"}, {"model": "m", "messages": messages})["input_messages"]
    assert made.make(made.raw) == [{"role": "user", "parts": [{"type": "text", "content": "mine"}]}]


def test_a_second_choice_that_brings_its_role_and_its_text_at_once() -> None:
    result = folded(
        chunk({"role": "assistant", "content": "Yes"}),
        chunk({"role": "assistant", "content": "No"}, index=1),
        chunk({"content": ", do it."}),
        chunk({"content": ", stop."}, index=1),
    )
    assert said(result) == ["Yes, do it.", "No, stop."]


class History(list[Any]):
    """What some applications keep their messages in."""


def test_what_the_caller_changes_later_is_recorded_as_it_was() -> None:
    messages = History([OrderedDict(role="user", content="first")])
    asked = facts.chat_request(WHERE, {"model": "m", "messages": messages})["input_messages"]
    message = {"role": "assistant", "content": [{"type": "text", "text": "I pay"}]}
    call = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": {"amount": 10}}}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {**message, "tool_calls": [call]}}
    reply = ChatCompletion.construct(id="c1", model="m", choices=[choice])
    answered = facts.chat_reply(WHERE, reply)["output_messages"]
    before = [asked.make(asked.raw), answered.make(answered.raw)]
    again = facts.chat_request(WHERE, {"model": "m", "messages": History([OrderedDict(role="user", content="first")])})
    messages[0]["content"] = "redacted"
    messages.append({"role": "assistant", "content": "later"})
    given: Any = reply.choices[0].message
    given.content[0]["text"] = "nothing"
    given.tool_calls[0].function.arguments.pop("amount")
    assert before[0] == again["input_messages"].make(again["input_messages"].raw)
    assert [asked.make(asked.raw), answered.make(answered.raw)] == before
    assert "10" in str(before[1])
    assert "I pay" in str(before[1])


def test_tool_calls_stand_in_the_order_of_their_indexes() -> None:
    later, sooner = ({"index": n, "id": f"t{n}", "function": {"name": f"tool{n}", "arguments": "{}"}} for n in (1, 0))
    result = folded(chunk({"tool_calls": [later]}), chunk({"tool_calls": [sooner]}))
    assert [call["call_id"] for call in result["requested_tools"]] == ["t0", "t1"]
