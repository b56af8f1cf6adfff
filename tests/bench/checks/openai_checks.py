"""What openai does, and must go on doing."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.bench import traffic
from tests.bench.checks.kit import PIECES, Checks, Kit, cancelled, raises, read
from tests.bench.transport import REQUEST_ID, STREAM_ID

CHECKS = check = Checks()
CHUNKS = PIECES + 3
EVENTS = PIECES + 8


# -- synchronous, plain -----------------------------------------------------------------------------------------------


@check()
def a_plain_call(kit: Kit) -> None:
    from openai.types.chat import ChatCompletion

    reply = kit.create(**kit.arguments())
    assert type(reply) is ChatCompletion
    assert reply.choices[0].message.tool_calls[0].id == traffic.CALL_ID


@check()
def a_parsed_call(kit: Kit) -> None:
    from pydantic import BaseModel

    class Order(BaseModel):
        number: str
        late: bool

    kit.provider.body = traffic.chat_body(json.dumps({"number": "73155", "late": True}), tool=False)
    arguments = {name: value for name, value in kit.arguments().items() if name != "tools"}
    reply = kit.client.chat.completions.parse(response_format=Order, **arguments)
    assert reply.choices[0].message.parsed == Order(number="73155", late=True)


@check()
def a_raw_response(kit: Kit) -> None:
    raw = kit.client.chat.completions.with_raw_response.create(**kit.arguments())
    assert raw.headers["x-request-id"] == REQUEST_ID
    assert raw.parse().choices[0].finish_reason == "tool_calls"


@check()
def a_streaming_response(kit: Kit) -> None:
    with kit.client.chat.completions.with_streaming_response.create(**kit.arguments()) as response:
        assert response.headers["x-request-id"] == REQUEST_ID
        assert json.loads(b"".join(response.iter_bytes()))["id"] == "chatcmpl-Q2v8Rk4d"


@check()
def messages_from_a_generator(kit: Kit) -> None:
    given = kit.arguments()["messages"]
    kit.create(**kit.arguments(messages=(message for message in given)))
    assert kit.provider.sent()["messages"] == given, "the server received other messages"


@check()
def tools_from_a_generator(kit: Kit) -> None:
    given = kit.arguments()["tools"]
    kit.create(**kit.arguments(tools=(tool for tool in given)))
    assert kit.provider.sent()["tools"] == given, "the server received other tools"


@check(spans=2)
def a_reply_sent_back_as_a_message(kit: Kit) -> None:
    said = kit.create(**kit.arguments()).choices[0].message
    result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "with the carrier"}
    kit.create(**kit.arguments(messages=[*kit.arguments()["messages"], said, result]))
    assert [message["role"] for message in kit.provider.sent()["messages"]] == ["system", "user", "assistant", "tool"]


@check()
def content_in_parts_with_an_image(kit: Kit) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 600}}
    parts = [{"type": "text", "text": "What is broken here?"}, image]
    kit.create(**kit.arguments(messages=[{"role": "user", "content": parts}]))
    assert kit.provider.sent()["messages"][0]["content"] == parts


@check()
def a_rate_limit_keeps_its_type(kit: Kit) -> None:
    from openai import RateLimitError

    kit.provider.status = 429
    with raises(RateLimitError) as caught:
        kit.create(**kit.arguments())
    assert getattr(caught[0], "status_code", None) == 429


@check(spans=0)
def a_wrong_argument_is_a_type_error(kit: Kit) -> None:
    with raises(TypeError):
        kit.create(model=traffic.MODEL, mesages=[])


@check()
def arguments_arrive_as_they_were_given(kit: Kit) -> None:
    given = kit.arguments(stream=True)
    before = copy.deepcopy(given)
    kit.create(**given).close()
    assert given == before, "the caller's objects were changed"
    assert kit.provider.sent() == before, "the body is not what was given"


@check(spans=0)
def the_signature_of_create(kit: Kit) -> None:
    named = inspect.signature(type(kit.client.chat.completions).create).parameters
    assert {"self", "messages", "model", "stream"} <= set(named)


@check(spans=0)
def create_is_a_coroutine_function_as_before(kit: Kit) -> None:
    assert inspect.iscoroutinefunction(kit.acreate) is kit.coroutine


@check()
def a_client_with_options(kit: Kit) -> None:
    assert kit.client.with_options(timeout=7).chat.completions.create(**kit.arguments()).choices


@check(spans=6)
def calls_from_threads(kit: Kit) -> None:
    with ThreadPoolExecutor(3) as pool:
        replies = list(pool.map(lambda _: kit.create(**kit.arguments()), range(6)))
    assert {reply.id for reply in replies} == {"chatcmpl-Q2v8Rk4d"}


# -- synchronous streams ----------------------------------------------------------------------------------------------


@check()
def a_stream_is_a_stream(kit: Kit) -> None:
    from openai import Stream

    stream = kit.create(**kit.arguments(stream=True))
    assert isinstance(stream, Stream), f"it is a {type(stream).__name__}"
    assert len(list(stream)) == CHUNKS


@check()
def a_stream_as_context_manager(kit: Kit) -> None:
    with kit.create(**kit.arguments(stream=True)) as stream:
        assert len(list(stream)) == CHUNKS


@check()
def a_stream_by_next(kit: Kit) -> None:
    stream = kit.create(**kit.arguments(stream=True))
    assert next(stream).choices[0].delta.role == "assistant"
    next(stream)
    assert len(list(stream)) == CHUNKS - 2


@check()
def the_response_of_a_stream(kit: Kit) -> None:
    stream = kit.create(**kit.arguments(stream=True))
    assert stream.response.headers["x-request-id"] == STREAM_ID
    list(stream)


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
def a_stream_closed_unread(kit: Kit) -> None:
    stream = kit.create(**kit.arguments(stream=True))
    stream.close()
    del stream
    gc.collect()


@check()
def a_stream_whose_connection_is_lost(kit: Kit) -> None:
    from openai import APIConnectionError

    from tests.bench.transport import http_library

    kit.provider.break_after = 4
    with raises(APIConnectionError, http_library("openai").ReadError):
        list(kit.create(**kit.arguments(stream=True)))


@check()
def an_exception_in_the_loop_over_a_stream(kit: Kit) -> None:
    with raises(LookupError), kit.create(**kit.arguments(stream=True)) as stream:
        for _ in stream:
            raise LookupError


@check()
def the_stream_helper(kit: Kit) -> None:
    arguments = {name: value for name, value in kit.arguments().items() if name != "tools"}
    with kit.client.chat.completions.stream(**arguments) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_completion().choices[0].message.content.startswith("the tubes")
    assert {"chunk", "content.delta", "content.done"} <= kinds


@check()
def a_raw_stream(kit: Kit) -> None:
    raw = kit.client.chat.completions.with_raw_response.create(**kit.arguments(stream=True))
    assert raw.headers["x-request-id"] == STREAM_ID
    assert len(list(raw.parse())) == CHUNKS


@check()
def a_streaming_response_of_a_stream(kit: Kit) -> None:
    with kit.client.chat.completions.with_streaming_response.create(**kit.arguments(stream=True)) as response:
        assert sum(line.startswith("data: ") for line in response.iter_lines()) == CHUNKS + 1


# -- other endpoints --------------------------------------------------------------------------------------------------


@check()
def embeddings(kit: Kit) -> None:
    assert len(kit.client.embeddings.create(**traffic.embedding_arguments()).data[0].embedding) == 256


@check()
def a_response(kit: Kit) -> None:
    assert kit.client.responses.create(**traffic.responses_arguments()).output[1].call_id == traffic.CALL_ID


@check()
def a_response_as_a_stream(kit: Kit) -> None:
    assert len(list(kit.client.responses.create(**traffic.responses_arguments(stream=True)))) == EVENTS


@check()
def the_stream_helper_of_responses(kit: Kit) -> None:
    with kit.client.responses.stream(**traffic.responses_arguments()) as stream:
        assert len(list(stream)) == EVENTS
        assert stream.get_final_response().status == "completed"


@check()
def a_raw_response_of_responses(kit: Kit) -> None:
    raw = kit.client.responses.with_raw_response.create(**traffic.responses_arguments())
    assert raw.headers["x-request-id"] == REQUEST_ID
    assert raw.parse().status == "completed"


# -- asynchronous -----------------------------------------------------------------------------------------------------


@check()
async def an_awaited_call(kit: Kit) -> None:
    assert (await kit.acreate(**kit.arguments())).choices[0].finish_reason == "tool_calls"


@check()
async def an_awaited_stream(kit: Kit) -> None:
    from openai import AsyncStream

    stream = await kit.acreate(**kit.arguments(stream=True))
    assert isinstance(stream, AsyncStream), f"it is a {type(stream).__name__}"
    assert len(await read(stream)) == CHUNKS


@check()
async def an_awaited_stream_as_context_manager(kit: Kit) -> None:
    async with await kit.acreate(**kit.arguments(stream=True)) as stream:
        assert len(await read(stream)) == CHUNKS


@check()
async def an_awaited_stream_closed_early(kit: Kit) -> None:
    stream = await kit.acreate(**kit.arguments(stream=True))
    await anext(stream)
    await stream.close()
    assert stream.response.is_closed


@check()
async def an_awaited_stream_broken_off_and_dropped(kit: Kit) -> None:
    async for _ in await kit.acreate(**kit.arguments(stream=True)):
        break
    await _collected()


@check()
async def a_cancellation_before_the_reply(kit: Kit) -> None:
    kit.provider.delay_s = 30
    await cancelled(kit.acreate(**kit.arguments()), 0.1)


@check()
async def a_cancellation_in_the_middle_of_a_stream(kit: Kit) -> None:
    kit.provider.piece_delay_s = 0.05

    async def reading() -> Any:
        return await read(await kit.acreate(**kit.arguments(stream=True)))

    await cancelled(reading(), 0.25)
    await _collected()


@check()
async def a_timeout_of_the_caller(kit: Kit) -> None:
    kit.provider.delay_s = 30
    with raises(TimeoutError):
        await asyncio.wait_for(kit.acreate(**kit.arguments()), 0.1)


@check()
async def an_awaited_raw_response(kit: Kit) -> None:
    raw = await kit.aclient.chat.completions.with_raw_response.create(**kit.arguments())
    assert raw.headers["x-request-id"] == REQUEST_ID
    assert raw.parse().choices


@check()
async def an_awaited_streaming_response(kit: Kit) -> None:
    async with kit.aclient.chat.completions.with_streaming_response.create(**kit.arguments()) as response:
        assert json.loads(await response.read())["id"] == "chatcmpl-Q2v8Rk4d"


@check()
async def the_awaited_stream_helper(kit: Kit) -> None:
    arguments = {name: value for name, value in kit.arguments().items() if name != "tools"}
    async with kit.aclient.chat.completions.stream(**arguments) as stream:
        assert {event.type for event in await read(stream)} >= {"chunk", "content.done"}


@check()
async def an_awaited_stream_read_by_another_task(kit: Kit) -> None:
    stream = await kit.acreate(**kit.arguments(stream=True))
    assert len(await asyncio.create_task(read(stream))) == CHUNKS


async def _collected() -> None:
    """Garbage is gone, and generators that the loop closes are closed."""
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0)
