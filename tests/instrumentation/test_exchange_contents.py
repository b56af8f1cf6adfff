"""What the messages of an event say is what the provider's body says, however it came: whole or in pieces."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from amfs_otel import guard, instrumentor
from tests.instrumentation.openai_calls import model_events
from tests.instrumentation.recorded_exchanges import FOLDER, Clients, Exchange, Provider, exchange_from
from tests.instrumentation.recording import Captured

TEXT = {"type": "text", "content": "Yes"}
PARTS: dict[str, list[list[dict[str, Any]]]] = {
    "chat_audio": [
        [{"type": "file", "modality": "audio", "file_id": "audio_1"}, {"type": "text", "content": "It is free."}]
    ],
    "chat_audio_streamed": [
        [{"type": "file", "modality": "audio", "file_id": "audio_2"}, {"type": "text", "content": "It is free."}]
    ],
    "chat_custom_tool_streamed": [
        [{"type": "tool_call", "id": "call_c", "name": "run_query", "arguments": "select 1"}],
    ],
    "chat_function_call_streamed": [[{"type": "tool_call", "name": "find", "arguments": {"n": 7}}]],
    "chat_gemini_parallel_tools_same_index": [
        [
            {"type": "tool_call", "id": "call_1", "name": "find", "arguments": {"n": 1}},
            {"type": "tool_call", "id": "call_2", "name": "look", "arguments": {"n": 2}},
        ]
    ],
    "chat_reasoning_beside_text_in_a_chunk": [[{"type": "reasoning", "content": "Hmm."}, TEXT]],
    "chat_three_choices_streamed_backwards": [
        [{"type": "text", "content": "aa"}],
        [{"type": "text", "content": "b"}],
        [{"type": "text", "content": "c"}],
    ],
    "chat_role_and_text_at_once": [[TEXT]],
    "chat_text_and_tool_in_one_chunk": [
        [
            {"type": "text", "content": "Let me see."},
            {"type": "tool_call", "id": "call_1", "name": "find", "arguments": {}},
        ]
    ],
    "chat_tool_id_in_every_fragment": [
        [{"type": "tool_call", "id": "call_1", "name": "find", "arguments": {"n": 1}}],
    ],
    "chat_refusal_after_text_streamed": [
        [{"type": "text", "content": "Well, "}, {"type": "text", "content": "I cannot say."}]
    ],
    "chat_deepseek": [[{"type": "reasoning", "content": "Hm."}, TEXT]],
    "chat_openrouter_reasoning": [[{"type": "reasoning", "content": "Hm"}, TEXT]],
    "chat_error_mid_stream_after_tool": [
        [{"type": "tool_call", "id": "call_1", "name": "find", "arguments": '{"n'}],
    ],
    "azure_prompt_filter_and_async_filter": [[TEXT]],
    "responses_local_shell": [
        [
            {
                "type": "tool_call",
                "id": "call_ls",
                "name": "local_shell",
                "arguments": {"action": {"type": "exec", "command": ["ls"], "env": {}}},
            }
        ]
    ],
    "responses_patch": [
        [
            {
                "type": "tool_call",
                "id": "call_ap",
                "name": "apply_patch",
                "arguments": {"operation": {"type": "delete_file", "path": "a"}},
            }
        ]
    ],
    "messages_no_argument_tool": [[{"type": "tool_call", "id": "toolu_1", "name": "now", "arguments": {}}]],
    "messages_text_begun_in_the_start": [[{"type": "text", "content": "It is in."}]],
    "messages_eager_tool_streamed": [[{"type": "tool_call", "id": "toolu_1", "name": "now", "arguments": {"pier": 1}}]],
    "messages_cut_tool": [[{"type": "tool_call", "id": "toolu_1", "name": "now", "arguments": '{"pier": "no'}]],
}
"""An exchange → the parts of each message of its reply."""

ALIKE = (
    ("chat_logprobs", "chat_logprobs_streamed"),
    ("responses_mcp", "responses_mcp_streamed"),
    ("responses_computer", "responses_computer_streamed"),
    ("messages_no_argument_tool", "messages_no_argument_tool_streamed"),
    ("beta_messages_fallback", "beta_messages_fallback_streamed"),
    ("messages_mcp", "messages_mcp_streamed"),
    ("messages_compaction", "messages_compaction_streamed"),
)
"""A reply, whole and streamed."""


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    with Provider() as provider, Clients(provider) as made:
        yield made


@pytest.fixture(autouse=True)
def instrumented(captured: Captured) -> None:
    instrumentor.instrument(["openai", "anthropic"])


def event_of(captured: Captured, clients: Clients, exchange: Exchange) -> dict[str, Any]:
    """The event of an exchange that is played."""
    clients.play(exchange)
    (event,) = model_events(captured)
    captured.sink.messages.clear()
    assert guard.counters() == {}
    return event


def recorded(name: str) -> Exchange:
    return exchange_from(FOLDER / f"{name}.json")


def without_absent(value: Any) -> Any:
    """A value without the members that the SDK's models add as null."""
    if isinstance(value, list):
        return [without_absent(item) for item in value]
    if isinstance(value, dict):
        return {key: without_absent(item) for key, item in value.items() if item is not None}
    return value


@pytest.mark.parametrize("name", PARTS)
def test_a_reply_says_what_the_body_says(captured: Captured, clients: Clients, name: str) -> None:
    told = event_of(captured, clients, recorded(name))["output_messages"]
    assert without_absent([message["parts"] for message in told]) == PARTS[name]


@pytest.mark.parametrize(("whole", "streamed"), ALIKE)
def test_a_stream_says_what_the_whole_reply_says(
    captured: Captured, clients: Clients, whole: str, streamed: str
) -> None:
    one, other = (event_of(captured, clients, recorded(name))["output_messages"] for name in (whole, streamed))
    assert one == other != []


def test_a_remote_tool_and_the_providers_shell_have_the_names_by_which_they_were_called(
    captured: Captured, clients: Clients
) -> None:
    for name, expected in (("responses_mcp", "berths"), ("responses_hosted_shell", "shell")):
        parts = event_of(captured, clients, recorded(name))["output_messages"][0]["parts"]
        (called,) = [part for part in parts if part["type"] == "server_tool_call"]
        assert called["name"] == expected


def test_what_came_of_an_action_answers_the_call(captured: Captured, clients: Clients) -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    written = [{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    items: list[dict[str, Any]] = [
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {"type": "computer_screenshot", "image_url": picture},
        },
        {"type": "local_shell_call_output", "id": "c2", "output": "a\n"},
        {"type": "shell_call_output", "call_id": "c3", "output": written},
        {"type": "apply_patch_call_output", "call_id": "c4", "status": "completed"},
    ]
    exchange = recorded("responses_cache_write")
    event = event_of(captured, clients, replace(exchange, request={**exchange.request, "input": items}))
    screen = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "iVBORw0KGgo="}
    answers = [("c1", [screen]), ("c2", "a\n"), ("c3", written), ("c4", "completed")]
    assert event["input_messages"] == [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": response}]}
        for call_id, response in answers
    ]
