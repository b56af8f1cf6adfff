"""The model server against the real `openai` client: what the client reads is what `exchanges` says was sent."""

import asyncio
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Failure, Reply, ToolCall, Usage

HELLO: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
def client(model_server: ModelServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=model_server.base_url, api_key="test", max_retries=0) as openai_client:
        yield openai_client


def ask(client: OpenAI, model: str = "gpt-4o-mini", **more: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(model=model, messages=HELLO, **more)


def test_a_plain_answer_is_the_body_that_was_sent(model_server: ModelServer, client: OpenAI) -> None:
    completion = ask(client)
    (exchange,) = model_server.exchanges
    assert completion.choices[0].message.content == "You said: hello"
    assert completion.model == "gpt-4o-mini-2024-07-18"
    assert completion.id == exchange.json["id"] == "chatcmpl-demo000001"
    assert completion.usage.prompt_tokens_details.cached_tokens == 64
    assert completion.usage.total_tokens == exchange.json["usage"]["total_tokens"] == 201
    assert (exchange.status, exchange.number, exchange.path) == (200, 1, "/v1/chat/completions")
    assert exchange.request["messages"] == HELLO
    assert exchange.headers["authorization"] == "Bearer test"


def test_the_same_conversation_gives_the_same_bytes() -> None:
    bodies: list[bytes] = []
    for _ in range(2):
        with ModelServer() as server, OpenAI(base_url=server.base_url, api_key="k") as openai_client:
            ask(openai_client, "m+text-and-tools")
            ask(openai_client, "m+text-and-tools", stream=True).close()
            bodies.append(server.exchanges[0].body)
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_arrive_whole_plain_or_in_fragments(client: OpenAI, stream: bool) -> None:
    calls: dict[str, str] = {}
    if stream:
        names: dict[int, str] = {}
        for chunk in ask(client, "gpt-4o-mini+text-and-tools", stream=True):
            for call in chunk.choices[0].delta.tool_calls or ():
                names.setdefault(call.index, call.function.name)
                calls[names[call.index]] = calls.get(names[call.index], "") + (call.function.arguments or "")
    else:
        message = ask(client, "gpt-4o-mini+text-and-tools").choices[0].message
        calls = {call.function.name: call.function.arguments for call in message.tool_calls}
    assert json.loads(calls["look_up_order"]) == {"order_id": "48213", "with_history": True}
    assert json.loads(calls["courier_status"]) == {"depot": "Leeds"}


def test_a_stream_counts_tokens_only_where_asked(model_server: ModelServer, client: OpenAI) -> None:
    silent = list(ask(client, stream=True))
    counted = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert all(chunk.choices and chunk.usage is None for chunk in silent)
    assert counted[-1].choices == []
    assert counted[-1].usage.prompt_tokens_details.cached_tokens == 64
    assert all(chunk.usage is None for chunk in counted[:-1])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in counted[:-1]) == "You said: hello"
    first, second = model_server.exchanges
    assert [len(silent), len(counted)] == [len(first.events), len(second.events)]
    assert second.body.endswith(b"data: [DONE]\n\n")


def test_several_choices(client: OpenAI) -> None:
    assert [choice.index for choice in ask(client, n=2).choices] == [0, 1]
    assert {chunk.choices[0].index for chunk in ask(client, n=2, stream=True)} == {0, 1}


def test_reasoning_tokens_and_missing_usage(client: OpenAI) -> None:
    usage = ask(client, "o4-mini+reasoning").usage
    assert (usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens) == (402, 384)
    assert ask(client, "m+no-usage").usage is None
    assert all(c.usage is None for c in ask(client, "m+no-usage", stream=True, stream_options={"include_usage": True}))


def test_refusal_filter_and_length(client: OpenAI) -> None:
    refused = ask(client, "m+refusal").choices[0]
    assert (refused.message.content, refused.message.refusal) == (None, "I cannot help with that.")
    streamed = [chunk.choices[0] for chunk in ask(client, "m+refusal", stream=True)]
    assert "".join(choice.delta.refusal or "" for choice in streamed) == "I cannot help with that."
    assert ask(client, "m+content-filter").choices[0].finish_reason == "content_filter"
    assert [c.choices[0].finish_reason for c in ask(client, "m+length", stream=True)][-1] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("scenario", "kind", "code"),
    [
        ("unauthorized", openai.AuthenticationError, "invalid_api_key"),
        ("rate-limited", openai.RateLimitError, "rate_limit_exceeded"),
        ("server-error", openai.InternalServerError, None),
        ("nonsense", openai.NotFoundError, "model_not_found"),
    ],
)
def test_errors_have_the_providers_shape(
    client: OpenAI, scenario: str, kind: type[openai.APIStatusError], code: str | None, stream: bool
) -> None:
    with pytest.raises(kind) as raised:
        ask(client, f"m+{scenario}", stream=stream)
    assert raised.value.code == code
    assert raised.value.response.headers.get("retry-after") == ("1" if scenario == "rate-limited" else None)


def test_a_queued_failure_is_retried_by_the_client(model_server: ModelServer) -> None:
    model_server.queue(Reply(failure=Failure(429, "wait", "requests", retry_after_s=0)), Reply(text="now"))
    with OpenAI(base_url=model_server.base_url, api_key="k", max_retries=1) as openai_client:
        assert ask(openai_client).choices[0].message.content == "now"
    assert [exchange.status for exchange in model_server.exchanges] == [429, 200]


def test_a_queued_reply_ignores_the_script(model_server: ModelServer, client: OpenAI) -> None:
    model_server.queue(Reply(tool_calls=(ToolCall("c", "f", "{}"),), usage=Usage(1, 2, 0)))
    completion = ask(client)
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage.total_tokens == 3
    assert ask(client).choices[0].finish_reason == "stop"


def test_what_the_provider_refuses_is_refused(model_server: ModelServer, client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="stream_options"):
        ask(client, stream_options={"include_usage": True})
    with pytest.raises(openai.NotFoundError, match="Unknown path"):
        client.post("/completions", cast_to=object, body={})
    for body, headers, status in (
        (b"not json", {"authorization": "Bearer k"}, 400),
        (b'{"model": "m", "messages": []}', {"authorization": "Bearer k"}, 400),
        (b"{}", {}, 401),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", model_server.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", body, headers)
        assert connection.getresponse().status == status
        connection.close()


def test_a_stream_hangs_until_it_may_go_on(model_server: ModelServer, client: OpenAI) -> None:
    chunks = ask(client, "m+hang", stream=True)
    text = "".join(next(chunks).choices[0].delta.content or "" for _ in range(3))
    assert model_server.hanging.wait(60)
    assert text == "one two"
    assert len(model_server.exchanges[0].events) == 3
    model_server.resume.set()
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == " three four five"


def test_a_client_that_leaves_is_noticed(model_server: ModelServer, client: OpenAI) -> None:
    model_server.queue(Reply(text=" ".join(["word"] * 40_000)))
    ask(client, stream=True).close()
    (exchange,) = model_server.exchanges
    assert exchange.done.wait(30)
    assert exchange.broken
    assert ask(client).choices[0].message.content == "You said: hello"


def test_a_stream_that_is_cut_and_one_that_fails(client: OpenAI) -> None:
    with pytest.raises(openai.APIConnectionError):
        list(ask(client, "m+cut", stream=True))
    with pytest.raises(openai.APIError, match="error while processing"):
        list(ask(client, "m+error-mid-stream", stream=True))


def test_the_async_client_and_many_at_once(model_server: ModelServer) -> None:
    async def all_of_them() -> list[str]:
        async with AsyncOpenAI(base_url=model_server.base_url, api_key="k") as async_client:

            async def one(number: int) -> str:
                chunks: Any = await async_client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": str(number)}], stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

            return list(await asyncio.gather(*(one(number) for number in range(8))))

    assert asyncio.run(all_of_them()) == [f"You said: {number}" for number in range(8)]
    assert sorted(exchange.number for exchange in model_server.exchanges) == list(range(1, 9))


def test_closing_the_server_frees_a_hanging_stream() -> None:
    server = ModelServer()
    with OpenAI(base_url=server.base_url, api_key="k") as openai_client:
        reader = threading.Thread(target=lambda: list(ask(openai_client, "m+hang", stream=True)))
        with server:
            reader.start()
            assert server.hanging.wait(60)
        reader.join(10)
    assert not reader.is_alive()
    assert server.exchanges[0].body.endswith(b"[DONE]\n\n")


def test_it_runs_as_a_program() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "amfs_otel.demo.model_server", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with OpenAI(base_url=url, api_key="k") as openai_client:
                assert ask(openai_client).choices[0].message.content == "You said: hello"
        finally:
            process.terminate()
