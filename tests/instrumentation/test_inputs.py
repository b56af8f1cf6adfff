"""From the libraries to the answer: which event each input of a decision comes from, with no text kept."""

import secrets
from typing import Any

import pytest
from anthropic import Anthropic
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore
from openai import OpenAI

from amfs_otel import instrumentor
from amfs_otel.assemble.records import Origin, record_from_trace
from amfs_otel.chain.keys import Key
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Reply, ToolCall
from amfs_otel.graph.documents import document_from_record
from amfs_otel.graph.explain import explanation
from amfs_otel.model import ClosedBy
from amfs_otel.settings import LedgerContent
from tests.instrumentation.recording import Captured
from tests.instrumentation.test_langgraph import ASKED, agent

CALLS = (ToolCall("call_a", "look", '{"service": "a"}'), ToolCall("call_b", "look", '{"service": "b"}'))


def explained(captured: Captured) -> dict[str, Any]:
    """What `explain` says of the only trace, with the policy that keeps no text."""
    captured.capture.windows.close_all(ClosedBy.EXIT)
    (trace,) = captured.records(LedgerContent.NONE)
    key = Key(secrets.token_bytes(32))
    record = record_from_trace(trace, log="default", key=key, origin=Origin({}), content=LedgerContent.NONE)
    return explanation(document_from_record(record), outcomes=[])


def check_links(answer: dict[str, Any]) -> None:
    """Two results, each linked to its tool's event, to the model call that asked and to the one that took it in."""
    first, second = answer["llm_calls"]
    tools = {one["call_id"]: one["event_id"] for one in answer["tool_calls"]}
    assert {one["call_id"]: one["event_id"] for one in answer["inputs"]} == tools
    assert sorted(tools) == ["call_a", "call_b"]
    for one in answer["inputs"]:
        assert one["asked_by"]["event_id"] == first["event_id"]
        assert one["used_by"] == [{"step": second["step"], "event_id": second["event_id"]}]
    assert first["inputs"] == []
    assert {one["event_id"] for one in second["inputs"]} == set(tools.values())


def test_openai_chat(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["openai"])
    model_server.queue(Reply(tool_calls=CALLS), Reply(text="done"))
    messages: list[Any] = [{"role": "user", "content": "look"}]
    with OpenAI(base_url=model_server.base_url, api_key="any", max_retries=0) as client:
        for _ in range(2):
            said = client.chat.completions.create(model="m", messages=messages).choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            messages += [{"role": "tool", "tool_call_id": one.id, "content": "ok"} for one in said.tool_calls or []]
    check_links(explained(captured))


@pytest.mark.parametrize("history", [True, False], ids=["whole", "by the id of the response before"])
def test_openai_responses(captured: Captured, model_server: ModelServer, history: bool) -> None:
    instrumentor.instrument(["openai"])
    model_server.queue(Reply(tool_calls=CALLS), Reply(text="done"))
    with OpenAI(base_url=model_server.base_url, api_key="any", max_retries=0) as client:
        first = client.responses.create(model="m", input="look")
        asked = [one for one in first.output if one.type == "function_call"]
        results: list[Any] = [{"type": "function_call_output", "call_id": one.call_id, "output": "ok"} for one in asked]
        # As loops over a response's items do: each call, then its result.
        both: list[Any] = [part for pair in zip(asked, results, strict=True) for part in pair]
        if history:
            client.responses.create(model="m", input=[{"role": "user", "content": "look"}, *both])
        else:
            client.responses.create(model="m", input=results, previous_response_id=first.id)
    check_links(explained(captured))


def test_anthropic(captured: Captured, model_server: ModelServer) -> None:
    instrumentor.instrument(["anthropic"])
    model_server.queue(Reply(tool_calls=CALLS), Reply(text="done"))
    messages: list[Any] = [{"role": "user", "content": "look"}]
    with Anthropic(base_url=model_server.origin, api_key="any", max_retries=0) as client:
        for _ in range(2):
            said = client.messages.create(model="m", max_tokens=9, messages=messages)
            uses = [one for one in said.content if one.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": one.id, "content": "ok"} for one in uses]
            messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
    check_links(explained(captured))


class Runbooks(BaseRetriever):
    """Finds one document with an id, and one without."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document("restart it", id="runbook-7"), Document("wait")]


def test_a_langgraph_agent_whose_tool_retrieves_and_remembers(captured: Captured) -> None:
    instrumentor.instrument(["langchain", "langgraph"])
    store = InMemoryStore()
    store.put(("team", "checkout"), "retry", {"max": 3})
    captured.capture.windows.close_all(ClosedBy.EXIT)
    captured.sink.messages.clear()

    @tool
    def look(service: str) -> str:
        """Looks at a service."""
        store.get(("team", "checkout"), "retry")
        return str(Runbooks().invoke(service))

    agent(look, store=store).invoke(ASKED)
    answer = explained(captured)
    second = answer["llm_calls"][1]
    took_in = [{"step": second["step"], "event_id": second["event_id"]}]
    (call,), (retrieval,) = answer["tool_calls"], answer["query_events"]
    named, nameless = [one for one in answer["inputs"] if one["kind"] == "document"]
    assert (named["document_id"], named["event_id"], named["used_by"]) == ("runbook-7", retrieval["event_id"], took_in)
    assert (nameless["identified_by"], nameless["place"], nameless["used_by"]) == ("commitment", 1, took_in)
    (result,) = [one for one in answer["inputs"] if one["kind"] == "tool_result"]
    assert (result["event_id"], result["asked_by"]["event_id"]) == (
        call["event_id"],
        answer["llm_calls"][0]["event_id"],
    )
    (entry,) = [one for one in answer["inputs"] if one["kind"] == "entry"]
    assert (entry["entity_path"], entry["key"], entry["used_by"]) == ("team/checkout", "retry", took_in)
    assert entry["event_id"] == answer["causal_entries"][0]["event_id"]
