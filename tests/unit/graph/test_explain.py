"""`explanation`: each key of ``explain --json``, the event that it comes from, and what it shows without its part."""

import json
from pathlib import Path

import jsonschema
import pytest

from amfs_otel.chain.entry import make_entry
from amfs_otel.graph.documents import document_from_record
from amfs_otel.graph.explain import explanation
from tests.support.seed_story import changed, committed, context, deploy_agent, onboard_agent, read, write
from tests.support.stories import ERASURE, event, window, writer

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schemas/explain.schema.json").read_text())
VALID = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def explained(*events, ledger="all", erase="", outcomes=(), amendments=(), **facts):
    """The explanation of one decision of these events; it must fit its schema."""
    document = writer(ledger).document(
        window("deploy-agent", list(events), session_id="sess-a1b2c3d4", **facts), erase=erase
    )
    answer = explanation(document, outcomes=outcomes, amendments=amendments)
    VALID.validate(answer)
    json.dumps(answer, allow_nan=False)
    return answer


def withheld(answer) -> dict[str, dict]:
    return {one["path"]: one for one in answer["withheld"]}


ROWS = {
    "causal_entries": (
        read("retry-pattern", 0.92, 3, evidence_status="tested"),
        {
            "entity_path": "checkout-service",
            "key": "retry-pattern",
            "version": 3,
            "value": {"retries": 3},
            "confidence": 0.92,
            "memory_type": "fact",
            "written_by": "review-agent",
            "read_at": "2026-03-07T16:13:21.001500Z",
            "duration_ms": 1.5,
            "operation": "read",
            "evidence_status": "tested",
        },
        {"d": ["value"], "m": []},
        ["entity_path", "key", "written_by"],
    ),
    "external_contexts": (
        event("context", 3.0, 0.0, label="git-log", summary="15 commits", source_name="git", automatic=True),
        {
            "label": "git-log",
            "summary": "15 commits",
            "source": "git",
            "recorded_at": "2026-03-07T16:13:23.000000Z",
            "automatic": True,
        },
        {"d": ["summary"], "m": []},
        ["label", "source"],
    ),
    "query_events": (
        event(
            "memory_query",
            2.0,
            12.0,
            operation="search",
            parameters={"query": "retry", "entity_path": "checkout-service", "min_confidence": 0.5},
            result_count=1,
            results=[{"entity_path": "checkout-service", "key": "retry-pattern", "version": 3, "score": 0.5}],
        ),
        {
            "operation": "search",
            "parameters": {"query": "retry", "entity_path": "checkout-service", "min_confidence": 0.5},
            "result_count": 1,
            "duration_ms": 12.0,
            "results": [{"entity_path": "checkout-service", "key": "retry-pattern", "version": 3, "score": 0.5}],
        },
        {"d": ["parameters.query"], "m": []},
        ["parameters.entity_path", "results[0].entity_path", "results[0].key"],
    ),
    "write_events": (
        event(
            "memory_write",
            5.0,
            2.0,
            operation="write",
            entity_path="checkout-service",
            key="decision",
            version=4,
            previous_version=3,
            previous_value="old",
            value="new",
            confidence=0.9,
            memory_type="experience",
            pattern_refs=["checkout-service/retry-pattern"],
        ),
        {
            "entity_path": "checkout-service",
            "key": "decision",
            "version": 4,
            "value": "new",
            "previous_version": 3,
            "previous_value": "old",
            "confidence": 0.9,
            "memory_type": "experience",
            "pattern_refs": ["checkout-service/retry-pattern"],
            "written_at": "2026-03-07T16:13:25.002000Z",
            "duration_ms": 2.0,
            "written_by": "deploy-agent",
        },
        {"d": ["value", "previous_value"], "m": []},
        ["entity_path", "key", "pattern_refs[0]", "written_by"],
    ),
    "tool_calls": (
        event(
            "tool_call",
            4.0,
            30.0,
            tool_name="look_up_order",
            call_id="call_1",
            source_name="orders-mcp",
            arguments={"order_id": "48213"},
            result="shipped",
            observed="call",
        ),
        {
            "call_id": "call_1",
            "tool_name": "look_up_order",
            "arguments": {"order_id": "48213"},
            "result_summary": "shipped",
            "started_at": "2026-03-07T16:13:24.000000Z",
            "duration_ms": 30.0,
            "source": "orders-mcp",
            "success": True,
            "observed": "call",
        },
        {"d": [], "m": ["arguments", "result_summary"]},
        ["call_id", "tool_name", "source"],
    ),
    "llm_calls": (
        event(
            "llm_call",
            4.0,
            812.0,
            status="error",
            provider="openai",
            model="gpt-4o-mini",
            operation="chat",
            input_tokens=1000,
            cached_tokens=500,
            output_tokens=100,
            reasoning_tokens=20,
            reported_cost_usd=0.002,
            temperature=0.2,
            finish_reasons=["stop"],
            response_id="chatcmpl-1",
            error_type="openai.APIError",
            error_message="half way",
        ),
        {
            "model": "gpt-4o-mini",
            "provider": "openai",
            "input_tokens": 1000,
            "cached_tokens": 500,
            "output_tokens": 100,
            "reasoning_tokens": 20,
            "cost_usd": 0.002,
            "cost_source": "provider",
            "latency_ms": 812.0,
            "temperature": 0.2,
            "finish_reason": "stop",
            "status": "error",
            "error": "half way",
            "error_type": "openai.APIError",
        },
        {"d": [], "m": ["error"]},
        ["response_id"],
    ),
    "agent_interactions": (
        event(
            "agent_interaction",
            2.0,
            0.0,
            direction="read_from",
            this_agent_id="deploy-agent",
            other_agent_id="review-agent",
            entity_path="p",
            key="k",
            version=2,
        ),
        {
            "direction": "read_from",
            "this_agent_id": "deploy-agent",
            "other_agent_id": "review-agent",
            "entity_path": "p",
            "key": "k",
            "version": 2,
            "occurred_at": "2026-03-07T16:13:22.000000Z",
        },
        {"d": [], "m": []},
        ["this_agent_id", "other_agent_id", "entity_path", "key"],
    ),
    "decisions": (
        event("statement", 6.0, 0.0, summary="roll back", alternatives=["wait"], inputs=["git-log"], confidence=0.7),
        {
            "summary": "roll back",
            "alternatives": ["wait"],
            "inputs": ["git-log"],
            "confidence": 0.7,
            "recorded_at": "2026-03-07T16:13:26.000000Z",
        },
        {"d": ["summary", "alternatives[0]"], "m": []},
        ["inputs[0]"],
    ),
    "error_events": (
        event(
            "memory_write", 6.0, 1.0, status="error", error_type="TimeoutError", error_message="boom", operation="write"
        ),
        {
            "kind": "memory_write",
            "error_type": "TimeoutError",
            "message": "boom",
            "occurred_at": "2026-03-07T16:13:26.001000Z",
            "operation": "write",
        },
        {"d": [], "m": ["message"]},
        [],
    ),
    "outcomes": (
        event(
            "outcome",
            9.0,
            3.0,
            outcome_ref="DEP-500",
            outcome_type="success",
            decision_summary="went well",
            source_name="CI",
            score=0.8,
        ),
        {
            "outcome_ref": "DEP-500",
            "outcome_type": "success",
            "decision_summary": "went well",
            "source": "CI",
            "score": 0.8,
            "recorded_at": "2026-03-07T16:13:29.003000Z",
            "confidence_changes": [],
        },
        {"d": ["decision_summary"], "m": []},
        ["outcome_ref", "source"],
    ),
    "state_diff.confidence_changes": (
        changed("retry-pattern", 0.92, 0.937, "raised"),
        {
            "entity_path": "checkout-service",
            "key": "retry-pattern",
            "before": 0.92,
            "after": 0.937,
            "version_before": 3,
            "version_after": 4,
            "direction": "raised",
            "raced": False,
            "before_from": "read",
        },
        {"d": [], "m": []},
        ["entity_path", "key"],
    ),
}
"""Key → the event, the item's values, the fields in d and m parts, the fields that are names."""


def item_at(answer, key):
    found = answer
    for name in key.split("."):
        found = found[name]
    assert len(found) == 1
    return found[0]


def value_at(item, path):
    for name in path.replace("[", ".[").split("."):
        item = item[int(name[1:-1])] if name.startswith("[") else item[name]
    return item


@pytest.mark.parametrize("key", ROWS)
def test_item_comes_from_its_event(key):
    happened, expected, _, _ = ROWS[key]
    other = event("checkpoint", 0.5, 0.0, label="x")
    answer = explained(other, happened)
    item = item_at(answer, key)
    assert {name: item[name] for name in expected} == expected
    assert (item["step"], item["event_id"]) == (2, happened["id"])
    assert answer["withheld"] == []


@pytest.mark.parametrize("key", ROWS)
def test_item_when_policy_withholds_its_texts(key):
    happened, expected, texts, _ = ROWS[key]
    answer = explained(happened, ledger="none")
    item, gone = item_at(answer, key), withheld(answer)
    for letter, setting in (("d", "AMFS_OTEL_LEDGER_CONTENT=decision"), ("m", "AMFS_OTEL_LEDGER_CONTENT=all")):
        for name in texts[letter]:
            assert value_at(item, name) is None
            one = gone[f"{key}[0].{name}"]
            assert (one["reason"], one["setting"], one["erased_by"]) == ("policy", setting, None)
            assert 'the policy "none"' in one["rule"]
            assert one["bytes"] > 0
    untouched = [name for name in expected if not any(text.startswith(name) for text in texts["d"] + texts["m"])]
    assert {name: item[name] for name in untouched} == {name: expected[name] for name in untouched}


@pytest.mark.parametrize("key", ROWS)
def test_item_when_texts_and_names_are_erased(key):
    happened, expected, texts, names = ROWS[key]
    answer = explained(happened, erase="idm")
    item, gone = item_at(answer, key), withheld(answer)
    paths = texts["d"] + texts["m"] + names
    for name in paths:
        assert value_at(item, name) is None
        one = gone[f"{key}[0].{name}"]
        assert (one["reason"], one["erased_by"], one["rule"], one["setting"]) == ("erased", ERASURE, None, None)
    untouched = [name for name in expected if not any(path.startswith(name) for path in paths)]
    assert {name: item[name] for name in untouched} == {name: expected[name] for name in untouched}


def test_identity_of_a_sealed_decision():
    one = writer()
    record = one.record(deploy_agent(), trace="ab" * 16)
    entry = make_entry(
        log="default",
        log_uid="0" * 32,
        sequence_number=7,
        parent_hash=b"\x11" * 32,
        record=(record.record_hash, record.signature),
        sealed_at="2026-03-07T16:15:00.000000Z",
        log_key=one.key,
    )
    answer = explanation(document_from_record(record, entry), outcomes=[])
    VALID.validate(answer)
    expected = {
        "record_id": record.record_id,
        "trace_id": "ab" * 16,
        "outcome_ref": "DEP-500",
        "agent_id": "deploy-agent",
        "session_id": "sess-a1b2c3d4",
        "status": "complete",
        "closed_by": "commit",
        "origin": {"service": "deploys", "version": "1.4", "process_id": 7, "libraries": {"amfs": "0.5.42"}},
        "causal_chain_length": 2,
        "sequence_number": 7,
        "content_hash": record.content_hash,
        "parent_hash": "11" * 32,
        "signature": record.signature.hex(),
        "signing_key_id": one.key.kid,
        "session_started_at": "2026-03-07T16:13:20.000000Z",
        "session_ended_at": "2026-03-07T16:14:20.000000Z",
        "session_duration_ms": 60000.0,
        "decision_summary": "Deployed after verifying retry pattern",
        "other_traces": [],
        "withheld": [],
    }
    assert {key: answer[key] for key in expected} == expected
    assert answer["coverage"] == {"events": 8, "joined": 0, "inferred": 0, "dropped": {}}


def test_attributes_are_the_newest_of_the_session():
    answer = explained(
        read("a", 0.5, 1, attributes={"tenant": "blue"}),
        read("b", 0.5, 1, 2),
        committed("DEP-500", "success", attributes={"tenant": "blue", "pr": 7}),
    )
    assert answer["attributes"] == {"tenant": "blue", "pr": 7}
    assert explained(read("a", 0.5, 1))["attributes"] is None


@pytest.mark.parametrize(("options", "reason"), [({"ledger": "none"}, "policy"), ({"erase": "d"}, "erased")])
def test_attributes_that_are_not_kept_are_said_to_be_so(options, reason):
    answer = explained(read("a", 0.5, 1, attributes={"tenant": "blue"}), **options)
    assert answer["attributes"] is None
    assert withheld(answer)["attributes"]["reason"] == reason


def test_unsealed_has_no_place():
    answer = explained()
    assert (answer["sequence_number"], answer["parent_hash"]) == (None, None)


def test_identity_when_erased():
    answer = explained(committed("DEP-500", "success", decision_summary="x"), erase="id")
    assert [answer[key] for key in ("agent_id", "session_id", "outcome_ref", "decision_summary")] == [None] * 4
    assert {"agent_id", "session_id", "outcome_ref", "decision_summary"} <= set(withheld(answer))
    assert answer["status"] == "complete"


def test_identity_without_skeleton_still_says_what_the_header_holds():
    document = writer().document(deploy_agent(), erase="sidm")
    answer = explanation(document, outcomes=[])
    VALID.validate(answer)
    assert answer["record_id"] == document.record_id
    assert (answer["agent_id"], answer["causal_entries"], answer["events"]) == (None, [], None)


def test_session_without_an_application_id_is_the_headers():
    document = writer().document(window("a", []))
    assert explanation(document, outcomes=[])["session_id"] == document.head["session"]


def test_seed_json():
    answer = explanation(writer().document(deploy_agent()), outcomes=[])
    assert answer["causal_chain_length"] == 2
    assert [(one["entity_path"], one["key"], one["confidence"]) for one in answer["causal_entries"]] == [
        ("checkout-service", "retry-pattern", 0.92),
        ("checkout-service", "risk-race-condition", 0.78),
    ]
    assert [(one["label"], one["summary"], one["source"]) for one in answer["external_contexts"]] == [
        ("pagerduty-incidents", "3 SEV-1 incidents in last 24h", "PagerDuty API"),
        ("git-log", "15 commits since last deploy, 3 touching retry logic", "git"),
    ]


def keys(answer):
    return [one["key"] for one in answer["causal_entries"]]


def test_causal_entries_newest_read_counts_where_it_happened():
    answer = explained(read("a", 0.5, 1, 1), read("b", 0.5, 1, 2), read("a", 0.9, 2, 3))
    assert [(one["key"], one["version"], one["step"]) for one in answer["causal_entries"]] == [("b", 1, 2), ("a", 2, 3)]


def test_causal_entries_only_reads_that_found_something_for_the_agent():
    answer = explained(
        read("nothing", None, None, found=False, value=None),
        read("denied", None, None, found=False, value=None, operation="read_from", other_agent_id="review-agent"),
        read("bookkeeping", 0.5, 1, infrastructure=True),
        *(
            read(operation, 0.5, 1, operation=operation)
            for operation in ("recall", "read_from", "retrieve", "briefing")
        ),
    )
    assert keys(answer) == ["recall", "read_from", "retrieve", "briefing"]
    assert "denied" not in json.dumps(answer["causal_entries"])


def test_reads_before_a_cleared_log_are_no_causal_entries():
    answer = explained(read("a", 0.5, 1), event("window_discarded", 1.5, 0.0, discarded=1), read("b", 0.5, 1, 2))
    assert keys(answer) == ["b"]
    assert answer["causal_chain_length"] == 1


def test_reads_with_erased_names_stay_apart():
    assert explained(read("a", 0.5, 1), read("b", 0.5, 1), erase="i")["causal_chain_length"] == 2


def test_previous_value_from_the_window():
    def previous(*reads):
        return explained(*reads, write("k", version=4, previous_version=3, created=False))["write_events"][0][
            "previous_value"
        ]

    assert previous(read("k", 0.5, 3)) == {"retries": 3}
    assert previous(read("k", 0.5, 2)) is None
    assert previous() is None


def test_state_diff_counts_finished_writes_of_transactions_too():
    answer = explained(
        write("new"),
        write("old", version=3, created=False),
        write("in a transaction", created=True, commit_id="c1"),
        write("no flag", version=2, created=None),
        write("failed", status="error", error_type="X"),
        event("memory_write", 6.0, status="incomplete", entity_path="p", key="k"),
    )
    diff = answer["state_diff"]
    assert (diff["entries_created"], diff["entries_updated"]) == (2, 2)
    assert [one["key"] for one in answer["write_events"]] == ["new", "old", "in a transaction", "no flag", "k"]
    assert answer["write_events"][-1]["step_status"] == "incomplete"


def test_confidence_before_from_the_windows_own_read():
    answer = explained(committed("X", "success"), changed("k", 0.5, 0.6, "raised", before_from=None))
    (one,) = answer["state_diff"]["confidence_changes"]
    assert (one["before"], one["before_from"]) == (0.5, "read")
    unknown = explained(committed("X", "success"), changed("k", None, 0.6, None, before_from=None))
    assert unknown["state_diff"]["confidence_changes"][0]["before_from"] is None


def test_confidence_before_from_an_earlier_record():
    change = changed("k", None, 0.5, None, version=2, before_from=None, version_before=None)
    document = writer().document(window("ops", [committed("X", "failure"), change]))
    seen = {("checkout-service/k", 2): (0.64, "an-earlier-record")}
    found = explanation(document, outcomes=[], earlier_than=lambda _: lambda entry, version: seen.get((entry, version)))
    (one,) = found["state_diff"]["confidence_changes"]
    assert (one["before"], one["version_before"], one["before_from"], one["direction"]) == (
        0.64,
        2,
        "an-earlier-record",
        "lowered",
    )
    assert found["outcomes"][0]["confidence_changes"][0]["before"] == 0.64
    unknown = explanation(document, outcomes=[], earlier_than=lambda _: lambda entry, version: None)
    assert unknown["state_diff"]["confidence_changes"][0]["before"] is None


def test_outcomes_newest_first_with_their_own_changes():
    one = writer()
    decision = one.document(deploy_agent())
    late = one.document(
        window(
            "ops",
            [
                committed("INC-1", "failure", 100.0),
                changed("retry-pattern", 0.937, 0.6, "lowered", version=4, at=101),
                committed("INC-2", "critical_failure", 200.0),
                changed("retry-pattern", 0.6, 0.2, "discredited", version=5, at=201),
            ],
        ),
        kind="outcome",
    )
    answer = explanation(decision, outcomes=[late])
    VALID.validate(answer)
    assert [
        (found["outcome_ref"], [change["direction"] for change in found["confidence_changes"]])
        for found in answer["outcomes"]
    ] == [("INC-2", ["discredited"]), ("INC-1", ["lowered"]), ("DEP-500", ["raised", "raised"])]
    assert answer["outcome_ref"] == "DEP-500"
    assert answer["decision_summary"] == "Deployed after verifying retry pattern"
    assert explanation(decision, outcomes=[late], outcome_ref="INC-1")["outcome_ref"] == "INC-1"


def test_confidence_before_a_late_outcome_is_looked_for_before_that_outcome():
    """What only the judged decision saw stands before the outcome's record, and not before the decision's own."""
    one = writer()
    decision = one.document(deploy_agent())
    change = changed("rollback", None, 0.9, None, version=2, before_from=None, version_before=None)
    late = one.document(window("ops", [committed("INC-1", "success", 100.0), change]), kind="outcome")
    answer = explanation(
        decision,
        outcomes=[late],
        earlier_than=lambda asked: lambda entry, version: (0.85, decision.record_id) if asked is late else None,
    )
    (found,) = next(one["confidence_changes"] for one in answer["outcomes"] if one["outcome_ref"] == "INC-1")
    assert (found["before"], found["direction"], found["before_from"]) == (0.85, "raised", decision.record_id)


def test_outcome_of_a_decision_that_committed_none():
    one = writer()
    late = one.document(window("ops", [committed("REV-1", "success", decision_summary="fine")]), kind="outcome")
    answer = explanation(one.document(onboard_agent()), outcomes=[late])
    assert (answer["outcome_ref"], answer["decision_summary"]) == ("REV-1", "fine")


def test_amendment_is_laid_over_its_step():
    one = writer("all")
    slow = event("tool_call", 1.0, status="incomplete", tool_name="deploy", call_id="c1", observed="call")
    decision = one.document(window("a", [slow]))
    done = slow | {"status": "ok", "end_us": slow["start_us"] + 5_000, "result": "done"}
    amendment = one.document({"step": slow["id"], "event": done}, kind="amendment", refs={"amends": decision.record_id})
    before = explanation(decision, outcomes=[])["tool_calls"][0]
    assert (before["duration_ms"], before["success"], before["step_status"]) == (None, None, "incomplete")
    (after,) = explanation(decision, outcomes=[], amendments=[amendment])["tool_calls"]
    assert (after["duration_ms"], after["success"], after["result_summary"]) == (5.0, True, "done")
    assert (after["amended_by"], after["step"]) == (amendment.record_id, 1)


def test_result_hash_is_the_parts_commitment():
    one = writer("decision")
    record = one.record(window("a", [ROWS["tool_calls"][0]]))
    (call,) = explanation(document_from_record(record), outcomes=[])["tool_calls"]
    assert call["result_hash"] in {commitment.hex() for commitment in record.commitments}
    assert call["result_summary"] is None


def test_long_results_are_summarised():
    long = event("tool_call", 1.0, 1.0, tool_name="t", call_id="c", result={"rows": ["x" * 50] * 100})
    summary = explained(long)["tool_calls"][0]["result_summary"]
    assert len(summary) == 2000
    assert summary.startswith('{"rows": ["xxx')


@pytest.mark.parametrize(
    ("given", "success"),
    [({}, True), ({"status": "error"}, False), ({"status": "incomplete"}, None), ({"success": False}, False)],
)
def test_success_of_a_tool(given, success):
    assert explained(event("tool_call", 1.0, 1.0, tool_name="t", **given))["tool_calls"][0]["success"] is success


def test_error_events_are_the_steps_that_failed_of_any_kind():
    kinds = ("memory_read", "memory_query", "tool_call", "llm_call", "error", "unheard_of")
    answer = explained(*(event(kind, 1.0, 1.0, status="error", error_type="E") for kind in kinds), read("a", 0.5, 1))
    assert [(one["kind"], one["step"]) for one in answer["error_events"]] == [
        (kind, place) for place, kind in enumerate(kinds, 1)
    ]
    assert all(one["message"] is None for one in answer["error_events"])
    assert answer["withheld"] == []


def test_unknown_is_null_and_never_zero():
    answer = explained(
        event("llm_call", 1.0), event("memory_query", 1.0), event("tool_call", 1.0), context("l", "s", None)
    )
    call = answer["llm_calls"][0]
    for name in (
        "input_tokens",
        "cached_tokens",
        "output_tokens",
        "cost_usd",
        "latency_ms",
        "temperature",
        "finish_reason",
    ):
        assert call[name] is None
    assert call["cost_source"] == "no_usage"
    assert [answer["query_events"][0][name] for name in ("result_count", "duration_ms", "results")] == [None] * 3
    assert answer["tool_calls"][0]["duration_ms"] is None
    assert answer["external_contexts"][0]["source"] is None


def test_strange_facts_fit_the_schema():
    explained(
        {
            "kind": "memory_read",
            "found": True,
            "version": "3",
            "confidence": "high",
            "memory_type": {},
            "start_us": 2**80,
        },
        {"kind": "llm_call", "finish_reasons": [1], "input_tokens": 1.5, "model": [], "status": 7, "id": 9},
        {"kind": "memory_query", "results": [1, {"version": {}}], "parameters": 3, "operation": 4},
        {"kind": "outcome", "outcome_type": 5, "end_us": -1},
        {"kind": "confidence_change", "direction": "sideways", "after": True},
        {"kind": "statement", "inputs": "x", "confidence": None},
        {"kind": "memory_write", "pattern_refs": [1, "x"], "created": "yes"},
    )


def test_numbers_beyond_json_survive():
    assert explained(read("a", 0.5, 2**60))["causal_entries"][0]["version"] == 2**60
