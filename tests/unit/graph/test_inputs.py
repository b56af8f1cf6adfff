"""Inputs of a decision, each with the event that it comes from, found by ids alone."""

import json
from pathlib import Path

import jsonschema

from amfs_otel.graph.explain import explanation
from amfs_otel.graph.render import explain_text
from amfs_otel.graph.showing import shown_record
from tests.support.seed_story import read
from tests.support.stories import event, window, writer
from tests.unit.graph.test_render import printed

SCHEMAS = Path(__file__).parents[3] / "docs/schemas"


def check(answer, name):
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(answer)
    json.dumps(answer, allow_nan=False)
    return answer


def asked(at, *call_ids, **fields):
    """A model call that asks for tools."""
    tools = [{"call_id": one, "tool_name": "look"} for one in call_ids]
    return event("llm_call", at, 5.0, model="m", requested_tools=tools, **fields)


def answered(at, *call_ids, **fields):
    """A model call whose request brings results of tools."""
    return event("llm_call", at, 5.0, model="m", answered_tools=[{"call_id": one} for one in call_ids], **fields)


def tool(at, call_id, **fields):
    return event("tool_call", at, 5.0, tool_name="look", call_id=call_id, observed="call", result="text", **fields)


def explained(*events, ledger="decision", erase="", before=()):
    document = writer(ledger).document(window("deploy-agent", list(events)), erase=erase)
    return document, check(explanation(document, outcomes=[], before=before), "explain")


def place(step, event_of):
    return {"step": step, "event_id": event_of["id"]}


def test_a_result_is_linked_to_the_tool_that_gave_it_and_to_the_model_that_asked():
    first, ran, second = asked(1, "c1"), tool(2, "c1"), answered(3, "c1")
    document, answer = explained(first, ran, second)
    (item,) = answer["inputs"]
    assert item == {
        "kind": "tool_result",
        "identified_by": "call_id",
        "call_id": "c1",
        "tool_name": "look",
        "asked_by": {"record_id": document.record_id, **place(1, first)},
        "used_by": [place(3, second)],
        "record_id": document.record_id,
        **place(2, ran),
        "span_id": None,
    }
    assert [call["inputs"] for call in answer["llm_calls"]] == [
        [],
        [{"record_id": document.record_id, **place(2, ran)}],
    ]


def test_each_of_several_results_has_its_own_tool():
    events = [asked(1, "c1", "c2"), tool(2, "c2"), tool(3, "c1"), answered(4, "c1", "c2")]
    _, answer = explained(*events)
    assert [(one["call_id"], one["step"], one["event_id"]) for one in answer["inputs"]] == [
        ("c2", 2, events[1]["id"]),
        ("c1", 3, events[2]["id"]),
    ]


def test_an_id_that_comes_again_means_the_newest_call():
    events = [asked(1, "c"), tool(2, "c"), answered(3, "c", requested_tools=[{"call_id": "c"}]), tool(4, "c"),
              answered(5, "c")]  # fmt: skip
    _, answer = explained(*events)
    assert [
        (one["step"], one["asked_by"]["step"], [by["step"] for by in one["used_by"]]) for one in answer["inputs"]
    ] == [
        (2, 1, [3]),
        (4, 3, [5]),
    ]


def test_two_models_may_take_in_one_result():
    _, answer = explained(asked(1, "c"), tool(2, "c"), answered(3, "c"), answered(4, "c"))
    assert [[by["step"] for by in one["used_by"]] for one in answer["inputs"]] == [[3, 4]]


def test_a_model_that_is_given_one_result_twice_took_it_in_once():
    _, answer = explained(asked(1, "c"), tool(2, "c"), answered(3, "c", "c"))
    assert [[by["step"] for by in one["used_by"]] for one in answer["inputs"]] == [[3]]


def test_a_result_whose_tool_nobody_saw():
    _, answer = explained(answered(1, "c9"))
    (item,) = answer["inputs"]
    assert (item["call_id"], item["step"], item["event_id"], item["record_id"], item["asked_by"]) == ("c9", *[None] * 4)
    assert answer["llm_calls"][0]["inputs"] == []


def test_the_tool_may_have_run_in_the_trace_that_this_one_continues():
    one = writer()
    first, ran = asked(1, "c1", "c2"), tool(2, "c1")
    earliest = one.document(window("a", [first, tool(1.5, "c1")]))
    paused = one.document(window("a", [ran], status="paused"))
    document, answer = explained(tool(61, "c2"), answered(62, "c1", "c2"), before=[paused, earliest])
    by_call = {item["call_id"]: item for item in answer["inputs"]}
    assert (by_call["c1"]["record_id"], by_call["c1"]["event_id"]) == (paused.record_id, ran["id"])
    assert by_call["c1"]["asked_by"] == {"record_id": earliest.record_id, **place(1, first)}
    assert by_call["c2"]["record_id"] == document.record_id
    line = next(line for line in printed(explain_text(answer)).splitlines() if "model m" in line)
    assert f"given 1 of …{paused.record_id[-8:]}, 1" in line


def test_entries_come_from_their_reads_and_queries():
    found = event(
        "memory_query", 2, 1.0, operation="search", result_count=2,
        results=[{"entity_path": "a", "key": "k", "version": 4}, {"entity_path": "b"}],
    )  # fmt: skip
    lost = read("gone", None, None, found=False)
    events = [read("retry-pattern", 0.9, 3), lost, found]
    _, answer = explained(*events)
    assert [
        (one["identified_by"], one["entity_path"], one["key"], one["version"], one["step"], one["event_id"])
        for one in answer["inputs"]
    ] == [
        ("entry_version", "checkout-service", "retry-pattern", 3, 1, events[0]["id"]),
        ("entry_version", "a", "k", 4, 3, found["id"]),
    ]
    assert all(one["used_by"] == [] for one in answer["inputs"])
    _, unversioned = explained(read("k", None, None, found=True))
    assert unversioned["inputs"][0]["identified_by"] == "entry"


def test_documents_by_their_ids_else_by_the_commitment_of_their_texts():
    named = event(
        "retrieval", 1, 3.0, query="q", result_count=2, results=[{"document_id": "doc-1", "score": 0.5}, {}],
        documents=[{"id": "doc-1", "content": "one"}, {"content": "two"}],
    )  # fmt: skip
    document, answer = explained(named)
    known, unknown = answer["inputs"]
    assert (known["identified_by"], known["document_id"], known["score"]) == ("document_id", "doc-1", 0.5)
    assert (unknown["identified_by"], unknown["document_id"], unknown["place"]) == ("commitment", None, 1)
    assert unknown["commitment"] in {one.hex() for one in document.record.commitments}
    assert {one["event_id"] for one in answer["inputs"]} == {named["id"]}
    assert answer["query_events"][0]["results"][0]["document_id"] == "doc-1"
    assert "→ 2 results, 3 ms: doc-1" in printed(explain_text(answer))
    (bare,) = explained(event("retrieval", 1, 3.0, results=[{}]))[1]["inputs"]
    assert (bare["identified_by"], bare["commitment"]) == (None, None)


def test_what_was_read_inside_a_tool_is_taken_in_with_its_result():
    ran = tool(2, "c1")
    retrieved = event("retrieval", 2.1, 1.0, parent=ran["id"], results=[{"document_id": "d"}])
    entry = read("retry-pattern", 0.9, 3, 2.2, parent=retrieved["id"])
    beside = read("other", 0.9, 1, 2.3)
    document, answer = explained(asked(1, "c1"), ran, retrieved, entry, beside, answered(4, "c1"))
    assert [(one["kind"], one["step"], [by["step"] for by in one["used_by"]]) for one in answer["inputs"]] == [
        ("tool_result", 2, [6]),
        ("document", 3, [6]),
        ("entry", 4, [6]),
        ("entry", 5, []),
    ]
    assert [one["step"] for one in answer["llm_calls"][1]["inputs"]] == [2, 3, 4]
    shown = check(shown_record(document), "show")
    assert [one.get("inputs") for one in shown["events"]] == [[], *[None] * 4, answer["llm_calls"][1]["inputs"]]


def test_a_circle_of_parents_ends():
    one, other = tool(1, "c1"), tool(2, "c2")
    one["parent"], other["parent"] = other["id"], one["id"]
    entry = read("k", 0.9, 1, 3, parent=one["id"])
    _, answer = explained(one, other, entry)
    assert [item["used_by"] for item in answer["inputs"]] == [[]]


def test_erased_names_leave_the_inputs_and_no_ids():
    _, answer = explained(asked(1, "c1"), tool(2, "c1"), answered(3, "c1"), read("k", 0.9, 1), erase="i")
    result, entry = answer["inputs"]
    assert (result["kind"], result["call_id"], result["step"]) == ("tool_result", None, None)
    assert (entry["kind"], entry["entity_path"], entry["key"]) == ("entry", None, None)
    assert {"inputs[0].call_id", "inputs[1].key"} <= {one["path"] for one in answer["withheld"]}


def test_facts_of_another_shape_do_no_harm():
    explained(
        event("llm_call", 1, 1.0, answered_tools="c1", requested_tools=[1, {"call_id": 5}]),
        event("llm_call", 1, 1.0, answered_tools=[None, {"call_id": 5}, {}]),
        event("retrieval", 1, 1.0, results=[None, 5, {"document_id": 7}]),
        event("memory_query", 1, 1.0, results={"key": 1}),
        event("tool_call", 1, 1.0, call_id=7, parent=5),
    )
