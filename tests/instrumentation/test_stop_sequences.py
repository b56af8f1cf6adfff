"""Where a model is told to stop: the application's own text, so it goes where messages go and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from openai import OpenAI

from amfs_otel import capture, instrumentor
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.settings import LedgerContent, SpanContent
from tests.instrumentation.openai_calls import HELLO, ask, breaches, model_spans
from tests.instrumentation.recording import Captured
from tests.support.oracle import Rules

CANARY = "stop-canary-7"
KEY = "gen_ai.request.stop_sequences"


def openai_call(server: ModelServer, stop: Any) -> None:
    with OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
        ask(client, stop=stop)


def anthropic_call(server: ModelServer, stop: Any) -> None:
    with Anthropic(base_url=server.origin, api_key="k", max_retries=0) as client:
        client.messages.create(model="claude-sonnet-5", max_tokens=9, messages=HELLO, stop_sequences=stop)


def langchain_call(_server: ModelServer, stop: Any) -> None:
    GenericFakeChatModel(messages=iter([AIMessage("hello")])).invoke("hello", stop=stop)


CALLS = {"openai": openai_call, "anthropic": anthropic_call, "langchain": langchain_call}


@pytest.mark.parametrize("content", [SpanContent.NO_CONTENT, SpanContent.SPAN_ONLY])
@pytest.mark.parametrize("library", CALLS)
def test_they_go_where_messages_go(
    captured_with: Callable[..., Captured], model_server: ModelServer, library: str, content: SpanContent
) -> None:
    captured = captured_with(span_content=content)
    instrumentor.instrument([library])
    CALLS[library](model_server, [CANARY, "END"])
    (found,) = captured.close()
    (event,) = found["events"]
    assert event["stop_sequences"] == [CANARY, "END"]
    (span,) = model_spans(captured)
    assert span.attributes.get(KEY) == ([CANARY, "END"] if content.on_spans else None)
    assert breaches(captured, Rules(content=content.on_spans)) == []
    (withheld,) = captured.traces(LedgerContent.DECISION)
    assert withheld["events"][0]["stop_sequences"] is None
    assert CANARY not in repr(withheld)


def test_one_text_is_one_sequence_and_none_is_none(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["openai"])
    openai_call(model_server, CANARY)
    openai_call(model_server, None)
    (found,) = captured.close()
    assert [event.get("stop_sequences") for event in found["events"]] == [[CANARY], None]


@pytest.mark.parametrize(
    ("given", "found"), [((), None), ([], None), (7, None), ([1, "a", b"b"], ["a"]), (("a",), ["a"])]
)
def test_what_is_no_text_is_left_out(given: Any, found: Any) -> None:
    assert capture.stop_sequences(given) == found


def test_a_limit_shortens_each_and_a_secret_is_masked(
    captured_with: Callable[..., Captured], model_server: ModelServer
) -> None:
    captured = captured_with(span_content=SpanContent.SPAN_ONLY, span_attribute_limit=6)
    instrumentor.instrument(["openai"])
    openai_call(model_server, ["0123456789", "sk-proj-" + "a1B2" * 12])
    captured.close()
    (span,) = model_spans(captured)
    assert span.attributes[KEY] == ["012345", "[maske"]
    assert span.attributes["amfs.content.shortened_bytes"] >= 4
