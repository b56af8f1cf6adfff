"""One call seen by two libraries is one event of a trace."""

from typing import Any

import pytest

from amfs_otel.assemble.duplicates import without_duplicates
from amfs_otel.assemble.prepare import PreparedEvent
from amfs_otel.capture.content import MASK
from amfs_otel.chain.skeleton import prepare_text
from amfs_otel.model import Kind


def event(seq: int, kind: Kind, source: str, *, parent: int | None = None, **facts: Any) -> PreparedEvent:
    """An event that took from `seq` to `seq + 1`, unless `start_us` and `end_us` say otherwise."""
    names = {
        key: {"$n": value} if key in ("call_id", "response_id", "tool_name") else value for key, value in facts.items()
    }
    all_facts = {"id": f"{seq:016x}", "kind": str(kind), "source": source, "start_us": seq, "end_us": seq + 1, **names}
    if parent is not None:
        all_facts["parent"] = f"{parent:016x}"
    return PreparedEvent(f"{seq:016x}", seq, all_facts, synthetic=facts.get("observed") == "messages")


def kept(*events: PreparedEvent) -> list[tuple[int, str]]:
    """Order and library of the events that stay."""
    return [(one.seq, one.facts["source"]) for one in without_duplicates(list(events))]


def llm(seq: int, source: str, **facts: Any) -> PreparedEvent:
    return event(seq, Kind.LLM_CALL, source, operation="chat", **facts)


def call(seq: int, source: str, tool_name: str = "look", **facts: Any) -> PreparedEvent:
    return event(seq, Kind.TOOL_CALL, source, tool_name=tool_name, **facts)


def test_one_response_of_a_model() -> None:
    framework = llm(1, "langchain", response_id="r-1")
    client = llm(2, "openai", response_id="r-1", server_address="h")
    assert kept(framework, client) == [(2, "openai")]
    assert kept(client, framework) == [(2, "openai")]


def test_two_responses_of_a_model() -> None:
    assert kept(llm(1, "langchain", response_id="r-1"), llm(2, "openai", response_id="r-2")) == [
        (1, "langchain"),
        (2, "openai"),
    ]
    assert len(kept(llm(1, "openai", response_id="r-1"), llm(2, "openai", response_id="r-1"))) == 2


def test_without_an_id_one_lies_in_the_others_time() -> None:
    framework = llm(1, "langchain", model="m", start_us=1, end_us=9)
    client = llm(2, "openai", model="m", response_id="r-1", server_address="h", start_us=2, end_us=8)
    assert kept(framework, client) == [(2, "openai")]
    later = llm(3, "openai", model="m", response_id="r-1", start_us=8, end_us=12)
    assert len(kept(framework, later)) == 2
    other = llm(4, "openai", model="n", response_id="r-1", start_us=2, end_us=8)
    assert len(kept(framework, other)) == 2
    elsewhere = llm(5, "openai", model="m", start_us=2, end_us=8, parent=7)
    assert len(kept(llm(1, "langchain", model="m", start_us=1, end_us=9, parent=6), elsewhere)) == 2


def test_one_that_is_still_open_is_compared_by_ids_only() -> None:
    framework = llm(1, "langchain", model="m")
    framework.is_open = True
    del framework.facts["end_us"]
    assert len(kept(framework, llm(2, "openai", model="m"))) == 2


def test_one_tool_call_by_the_models_id() -> None:
    assert kept(call(1, "langchain", call_id="c-1"), call(2, "mcp", call_id="c-1")) == [(1, "langchain")]
    assert kept(call(1, "openai", call_id="c-1", observed="messages"), call(2, "openai", call_id="c-1")) == [
        (2, "openai")
    ]
    assert len(kept(call(1, "langchain", call_id="c-1"), call(2, "langchain", call_id="c-1"))) == 2


def test_a_tool_that_hands_on_is_one_call() -> None:
    outer, inner = call(1, "langchain", call_id="c-1"), call(2, "mcp", parent=1)
    below = event(3, Kind.MEMORY_READ, "amfs", parent=2)
    found = without_duplicates([outer, inner, below])
    assert [one.seq for one in found] == [1, 3]
    assert found[1].facts["parent"] == outer.id
    assert len(kept(outer, call(2, "mcp", parent=1, tool_name="other"))) == 2
    assert len(kept(outer, call(2, "mcp"))) == 2


def test_masked_ids_are_nobodys() -> None:
    assert len(kept(llm(1, "langchain", response_id=MASK), llm(2, "openai", response_id=MASK))) == 2


def test_what_is_alone_stays_as_it_is() -> None:
    events = [llm(1, "openai", response_id="r"), call(2, "langchain")]
    assert without_duplicates(events) is events


def test_a_call_that_the_agent_reported_by_hand_is_the_one_that_was_seen() -> None:
    seen = llm(1, "openai", model="m", response_id="r-1", input_tokens=12, output_tokens=3)
    told = llm(4, "amfs", model="m", observed="reported", input_tokens=12, output_tokens=3, reported_cost_usd=0.1)
    assert kept(seen, told) == [(1, "openai")]
    other = llm(5, "amfs", model="m", observed="reported", input_tokens=99, output_tokens=3)
    assert len(kept(seen, other)) == 2
    uncounted = llm(6, "amfs", model="m", observed="reported")
    assert len(kept(seen, uncounted)) == 2


def through_mcp(seq: int, arguments: str | None = None, *, kept: bool = True, **facts: Any) -> PreparedEvent:
    """A call that a client of MCP made."""
    side = {} if "served" in facts else {"remote": True}
    return with_arguments(call(seq, "mcp", source_name={"$n": "orders"}, **side, **facts), arguments, kept=kept)


def answered(seq: int, call_id: str, arguments: str | None = None, *, kept: bool = True, **facts: Any) -> PreparedEvent:
    """A call that the messages show, with the answer in the request `seq`."""
    made = call(seq, "openai", call_id=call_id, observed="messages", start_us=1, **facts)
    made.id = made.facts["id"] = f"{seq:08x}{call_id:0>8}"
    return with_arguments(made, arguments, kept=kept)


def with_arguments(made: PreparedEvent, arguments: str | None, *, kept: bool) -> PreparedEvent:
    if arguments is not None:
        made.facts["arguments"] = {"$t": len(made.texts)}
        made.texts.append(prepare_text(arguments.encode(), "m", "application/json", kept, b"k" * 32))
    return made


class TestCalledElsewhere:
    """The model's id of a call is unknown to a client that has a tool called elsewhere, as one of MCP."""

    @pytest.mark.parametrize("kept", [True, False], ids=["texts-kept", "texts-withheld"])
    def test_what_the_messages_show_is_the_call_with_those_arguments(self, kept: bool) -> None:
        first, second = through_mcp(2, "[1]", kept=kept), through_mcp(3, "[2]", kept=kept)
        shown = [answered(9, "c-2", "[2]", kept=kept), answered(9, "c-1", "[1]", kept=kept)]
        found = without_duplicates([first, second, *shown])
        assert [(one.seq, one.facts["call_id"]["$n"]) for one in found] == [(2, "c-1"), (3, "c-2")]

    def test_other_arguments_are_another_call(self) -> None:
        assert len(without_duplicates([through_mcp(2, "[1]"), answered(9, "c-1", "[2]")])) == 2

    def test_each_is_one_call_only(self) -> None:
        found = without_duplicates([through_mcp(2, "[1]"), answered(9, "c-1", "[1]"), answered(9, "c-2", "[1]")])
        assert [(one.seq, one.facts["call_id"]["$n"]) for one in found] == [(2, "c-1"), (9, "c-2")]

    def test_without_arguments_the_order_tells(self) -> None:
        found = without_duplicates([through_mcp(2), through_mcp(3), answered(9, "c-1"), answered(9, "c-2")])
        assert [(one.seq, one.facts["call_id"]["$n"]) for one in found] == [(2, "c-1"), (3, "c-2")]

    def test_before_it_was_asked_for_and_after_it_was_answered_it_is_another(self) -> None:
        late = answered(9, "c-1", "[1]")
        late.facts["start_us"] = 5
        assert len(without_duplicates([through_mcp(2, "[1]"), late])) == 2
        assert len(without_duplicates([answered(2, "c-1", "[1]"), through_mcp(3, "[1]")])) == 2

    def test_what_a_server_did_for_others_is_not_the_models(self) -> None:
        assert len(without_duplicates([through_mcp(2, "[1]", served=True), answered(9, "c-1", "[1]")])) == 2

    def test_the_callers_account_is_given_the_server(self) -> None:
        outer = with_arguments(call(1, "langchain", call_id="c-1"), "[1]", kept=True)
        (found,) = without_duplicates([outer, through_mcp(2, "[1]", parent=1)])
        assert (found.seq, found.facts["source_name"]) == (1, {"$n": "orders"})

    def test_a_name_with_the_servers_before_it(self) -> None:
        outer = with_arguments(call(1, "langchain", "orders_look", call_id="c-1"), "[1]", kept=True)
        assert kept(outer, through_mcp(2, "[1]", parent=1)) == [(1, "langchain")]
        assert len(kept(outer, through_mcp(2, "[2]", parent=1))) == 2
        assert len(kept(call(1, "langchain", "orders_look"), through_mcp(2, parent=1))) == 2
        other = with_arguments(call(1, "langchain", "overlook"), "[1]", kept=True)
        assert len(kept(other, through_mcp(2, "[1]", parent=1))) == 2

    def test_beside_its_caller_in_its_time(self) -> None:
        outer = with_arguments(call(1, "langchain", call_id="c-1", end_us=9), "[1]", kept=True)
        assert kept(outer, through_mcp(2, "[1]")) == [(1, "langchain")]
        assert len(kept(outer, through_mcp(2, "[2]"))) == 2
        assert len(kept(outer, through_mcp(2, "[1]", end_us=10))) == 2
        assert len(kept(outer, through_mcp(2, "[1]", parent=7))) == 2
