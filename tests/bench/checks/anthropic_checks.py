"""What anthropic does, and must go on doing."""

from __future__ import annotations

import gc
import json
from typing import Any

from tests.bench import messages
from tests.bench.checks.kit import PIECES, Checks, Kit, cancelled, raises
from tests.bench.transport import REQUEST_ID

CHECKS = check = Checks()
EVENTS = PIECES + 5


@check()
def a_plain_message(kit: Kit) -> None:
    from anthropic.types import Message

    reply = kit.create(**kit.arguments())
    assert type(reply) is Message
    assert reply.content[1].id == messages.TOOL_USE_ID


@check()
def a_stream_is_a_stream(kit: Kit) -> None:
    from anthropic import Stream

    stream = kit.create(**kit.arguments(stream=True))
    assert isinstance(stream, Stream), f"it is a {type(stream).__name__}"
    assert len(list(stream)) == EVENTS


@check()
def a_stream_as_context_manager(kit: Kit) -> None:
    with kit.create(**kit.arguments(stream=True)) as stream:
        assert len(list(stream)) == EVENTS


@check()
def a_stream_closed_early(kit: Kit) -> None:
    stream = kit.create(**kit.arguments(stream=True))
    next(iter(stream))
    stream.close()
    assert stream.response.is_closed


@check()
def a_stream_broken_off_and_dropped(kit: Kit) -> None:
    for _ in kit.create(**kit.arguments(stream=True)):
        break
    gc.collect()


@check()
def the_text_of_the_stream_helper(kit: Kit) -> None:
    with kit.client.messages.stream(**kit.arguments()) as stream:
        assert "".join(stream.text_stream).startswith("the tubes")
        assert stream.get_final_message().stop_reason == "end_turn"


@check()
def the_stream_helper_until_it_is_done(kit: Kit) -> None:
    with kit.client.messages.stream(**kit.arguments()) as stream:
        stream.until_done()
        assert stream.current_message_snapshot.usage.output_tokens == PIECES


@check()
def a_raw_response(kit: Kit) -> None:
    raw = kit.client.messages.with_raw_response.create(**kit.arguments())
    assert raw.headers["x-request-id"] == REQUEST_ID
    assert raw.parse().stop_reason == "tool_use"


@check()
def a_streaming_response(kit: Kit) -> None:
    with kit.client.messages.with_streaming_response.create(**kit.arguments()) as response:
        assert json.loads(b"".join(response.iter_bytes()))["id"] == "msg_3Rf9"


@check()
def messages_from_a_generator(kit: Kit) -> None:
    given = kit.arguments()["messages"]
    kit.create(**kit.arguments(messages=(message for message in given)))
    assert kit.provider.sent()["messages"] == given, "the server received other messages"


@check(spans=2)
def a_reply_sent_back_as_a_message(kit: Kit) -> None:
    said = kit.create(**kit.arguments())
    result = {"type": "tool_result", "tool_use_id": said.content[1].id, "content": "with the carrier"}
    turns: list[Any] = [{"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
    kit.create(**kit.arguments(messages=[*kit.arguments()["messages"], *turns]))
    assert [message["role"] for message in kit.provider.sent()["messages"]] == ["user", "assistant", "user"]


@check()
def a_rate_limit_keeps_its_type(kit: Kit) -> None:
    from anthropic import RateLimitError

    kit.provider.status = 429
    with raises(RateLimitError) as caught:
        kit.create(**kit.arguments())
    assert getattr(caught[0], "status_code", None) == 429


@check()
async def an_awaited_message(kit: Kit) -> None:
    assert (await kit.acreate(**kit.arguments())).stop_reason == "tool_use"


@check()
async def the_awaited_text_of_the_stream_helper(kit: Kit) -> None:
    async with kit.aclient.messages.stream(**kit.arguments()) as stream:
        assert "".join([text async for text in stream.text_stream]).startswith("the tubes")


@check()
async def a_cancellation_before_the_reply(kit: Kit) -> None:
    kit.provider.delay_s = 30
    await cancelled(kit.acreate(**kit.arguments()), 0.1)
