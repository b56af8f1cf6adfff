"""The reader on a real PostgreSQL: list, resolve, explain, tree, from the projection and ahead of it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest

from amfs_otel.graph.listing import KEYS
from amfs_otel.graph.reading import Ambiguous, ListFilter, NothingFound, Reader
from tests.integration.test_projection import Projected
from tests.support.seed_story import ENTRY, changed, committed, deploy_agent, onboard_agent, read, review_agent
from tests.support.stories import event, window


def fits_schema(name, answer):
    schema = json.loads((Path(__file__).parents[2] / f"docs/schemas/{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(answer)


class Asked(Projected):
    """A log with a reader that may only SELECT."""

    def __init__(self, ledger):
        super().__init__(ledger)
        self.reader_dsn = ledger.user("reader")

    def ask(self, question, *arguments, **options):
        with self.ledger.store(self.reader_dsn) as store:
            return getattr(Reader(store), question)(*arguments, **options)

    def append(self, *records):
        """Stores records that nobody seals."""
        with self.ledger.store() as store:
            store.append(records)
        return [record.record_id for record in records]


@pytest.fixture
def log(one_ledger):
    return Asked(one_ledger)


def test_reading_writes_nothing_and_needs_select_only(log):
    ids = log.tell(deploy_agent())
    log.append(log.writer.record(review_agent(), at=70))

    def state():
        counts = [
            log.ledger.sql(f"SELECT count(*) FROM amfs_otel.{table}")
            for table in ("record", "part", "entry", "projected", "decision", "step", "edge", "node")
        ]
        return counts, log.ledger.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())")

    before = state()
    for question, text in (
        ("list", None),
        ("explain", "DEP-500"),
        ("show", ids[0]),
        ("tree", ENTRY),
        ("resolve", "last"),
    ):
        log.ask(question, *([text] if text else []))
    with pytest.raises(NothingFound):
        log.ask("explain", "NO-1")
    assert state() == before


def test_a_plain_connection_will_do(log):
    log.tell(deploy_agent())
    with log.ledger.store() as store:
        assert Reader(store.connection, log.ledger.log).explain("DEP-500")["agent_id"] == "deploy-agent"


def test_list_newest_first_with_the_documented_keys(log):
    log.tell(deploy_agent(), review_agent(), onboard_agent(), trace="ab" * 16)
    rows = log.ask("list")
    fits_schema("list", rows)
    assert [row["agent_id"] for row in rows] == ["onboard-agent", "review-agent", "deploy-agent"]
    assert tuple(rows[0]) == KEYS
    assert rows[0] | {"record_id": None} == {
        "record_id": None,
        "trace_id": "ab" * 16,
        "agent_id": "onboard-agent",
        "session_id": "sess-g7h8i9j0",
        "outcome_ref": None,
        "outcome": None,
        "started_at": "2026-03-07T18:13:20.000000Z",
        "ended_at": "2026-03-07T18:14:20.000000Z",
        "events": 2,
        "status": "complete",
        "closed_by": "exit",
        "sequence_number": 3,
        "continues": None,
    }


def agents(rows):
    return sorted(row["agent_id"] for row in rows)


@pytest.mark.parametrize("sealed", [True, False], ids=["projected", "unsealed"])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ListFilter(agent="deploy-agent"), ["deploy-agent"]),
        (ListFilter(session="sess-g7h8i9j0"), ["onboard-agent"]),
        (ListFilter(outcome="critical_failure"), ["review-agent"]),
        (ListFilter(ref="DEP-500"), ["deploy-agent"]),
        (ListFilter(since=datetime(2026, 3, 7, 16, 14, 21, tzinfo=UTC)), ["onboard-agent", "review-agent"]),
        (ListFilter(until=datetime(2026, 3, 7, 16, 14, 21, tzinfo=UTC)), ["deploy-agent"]),
        (ListFilter(limit=1), ["onboard-agent"]),
        (ListFilter(agent="nobody"), []),
    ],
    ids=["agent", "session", "outcome", "ref", "since", "until", "limit", "none"],
)
def test_list_filters(log, sealed, wanted, found):
    stories = (deploy_agent(), review_agent(), onboard_agent())
    if sealed:
        log.tell(*stories)
    else:
        log.append(*(log.writer.record(story, at=60 + place) for place, story in enumerate(stories)))
    assert agents(log.ask("list", wanted)) == found


def test_answers_are_the_same_before_sealing_after_it_and_projected(log):
    record = log.writer.record(deploy_agent())
    log.append(record)
    unsealed = log.ask("explain", "DEP-500")
    assert unsealed["sequence_number"] is None
    assert unsealed["parent_hash"] is None
    assert unsealed["coverage"]["unprojected"] == 1
    log.seal()
    sealed = log.ask("explain", "DEP-500")
    assert sealed["sequence_number"] == 1
    assert len(sealed["parent_hash"]) == 64
    assert sealed["coverage"]["unprojected"] == 1
    log.project()
    projected = log.ask("explain", "DEP-500")
    assert projected["coverage"]["unprojected"] == 0
    for answer in (unsealed, sealed, projected):
        for key in ("sequence_number", "parent_hash", "coverage"):
            del answer[key]
    assert unsealed == sealed == projected


def test_resolve(log):
    first, second = log.tell(deploy_agent(), review_agent(), trace="0123456789abcdef0123456789abcdef")
    (third,) = log.append(log.writer.record(onboard_agent(), at=90, trace="fedcba9876543210fedcba9876543210"))
    for text, expected in (
        ("last", third),
        ("DEP-500", first),
        ("INC-1042", second),
        (first, first),
        (first[-8:], first),
        (third[-8:], third),
        (first.replace("-", "")[-20:], first),
        (third[:13], third),
        ("fedcba9876543210fedcba9876543210", third),
        ("fedcba98", third),
        ("76543210", third),
    ):
        assert log.ask("resolve", text) == expected, text


def test_ambiguous_ids_are_listed(log):
    ids = log.tell(deploy_agent(), review_agent(), trace="0123456789abcdef0123456789abcdef")
    with pytest.raises(Ambiguous) as caught:
        log.ask("explain", "89abcdef")
    assert sorted(caught.value.candidates) == sorted(ids)
    assert f"…{ids[0][-8:]} (deploy-agent, 2026-03-07 16:13:20)" in str(caught.value)


def test_the_number_of_an_entry_is_found_where_nothing_else_fits(log):
    second = log.tell(deploy_agent(), window("a", [committed("1", "success")]))[1]
    assert log.ask("list")[0]["sequence_number"] == 2
    assert log.ask("resolve", "2") == second
    assert log.ask("resolve", "1") == second, "a ref comes first"
    (third,) = log.seal(log.writer.record(onboard_agent(), at=90))
    assert log.ask("explain", "3")["record_id"] == third
    with pytest.raises(NothingFound):
        log.ask("resolve", "99")


def test_a_tree_lists_who_named_the_entry_as_an_input(log):
    stated = window("planner", [event("statement", 1.0, 0.0, summary="s", inputs=["PR 7", "a/only-stated"])])
    log.tell(stated)
    (branch,) = log.ask("tree", "a/only-stated")["relied_on_by"]
    assert (branch["agent_id"], branch["relation"]) == ("planner", "relied_on")


def test_unknown_ref_names_the_nearest(log):
    log.tell(deploy_agent(), review_agent())
    log.append(log.writer.record(window("a", [committed("DEP-501", "success")])))
    with pytest.raises(NothingFound) as caught:
        log.ask("explain", "DEP-50")
    assert set(caught.value.nearest[:2]) == {"DEP-500", "DEP-501"}
    assert "DEP-500" in str(caught.value)
    assert log.ask("nearest_refs", "zzz") == []


def test_empty_log(log):
    assert log.ask("list") == []
    with pytest.raises(NothingFound):
        log.ask("explain", "last")


@pytest.mark.parametrize("sealed", [True, False], ids=["projected", "unsealed"])
def test_late_outcomes_of_all_kinds_attach(log, sealed):
    older, newer = log.tell(deploy_agent(), deploy_agent())
    by_ref = log.writer.record(window("ops", [committed("DEP-500", "failure", 90.0)]), kind="outcome", at=91)
    named = log.writer.record(
        window("ops", [committed("INC-7", "critical_failure", 95.0, score=0.1)]),
        kind="outcome",
        at=96,
        refs={"outcome_of": newer},
    )
    if sealed:
        log.seal(by_ref, named)
        log.project()
    else:
        log.append(by_ref, named)
    answer = log.ask("explain", "DEP-500")
    assert answer["record_id"] == newer
    assert answer["other_traces"] == [older]
    assert [(one["record_id"], one["outcome_type"]) for one in answer["outcomes"]] == [
        (named.record_id, "critical_failure"),
        (by_ref.record_id, "failure"),
        (newer, "success"),
    ]
    assert answer["outcomes"][0]["score"] == 0.1
    by_other_ref = log.ask("explain", "INC-7")
    assert (by_other_ref["record_id"], by_other_ref["outcome_ref"]) == (newer, "INC-7")
    assert by_other_ref["decision_summary"] == "Deployed after verifying retry pattern"
    assert log.ask("explain", named.record_id)["record_id"] == newer
    row = next(row for row in log.ask("list") if row["record_id"] == newer)
    assert (row["outcome"], row["outcome_ref"]) == ("critical_failure", "INC-7")


def test_pending_outcome_is_found_by_its_ref(log):
    (outcome,) = log.tell(window("ops", [committed("X-9", "failure")]), kind="outcome")
    answer = log.ask("explain", "X-9")
    assert (answer["record_id"], answer["causal_chain_length"]) == (outcome, 0)
    assert answer["outcomes"][0]["outcome_ref"] == "X-9"


def test_unsealed_amendment_and_earlier_confidence(log):
    slow = event("tool_call", 1.0, status="incomplete", tool_name="deploy", call_id="c1", observed="call")
    change = changed("k", None, 0.5, None, version=2, before_from=None, version_before=None)
    (reader,) = log.tell(window("a", [read("k", 0.64, 2)]))
    (decision,) = log.tell(window("b", [slow, committed("B-1", "failure"), change]))
    done = slow | {"status": "ok", "end_us": slow["start_us"] + 5_000}
    (amendment,) = log.append(
        log.writer.record({"step": slow["id"], "event": done}, kind="amendment", refs={"amends": decision}, at=99)
    )
    answer = log.ask("explain", "B-1")
    assert answer["tool_calls"][0]["amended_by"] == amendment
    assert answer["tool_calls"][0]["duration_ms"] == 5.0
    (found,) = answer["state_diff"]["confidence_changes"]
    assert (found["before"], found["before_from"], found["direction"]) == (0.64, reader, "lowered")


def test_erased_record_is_listed_and_found_by_id_only(log):
    (decision,) = log.tell(deploy_agent())
    erasure = log.erase((decision, 2))
    for _ in ("not projected yet", "projected"):
        with pytest.raises(NothingFound):
            log.ask("explain", "DEP-500x")
        answer = log.ask("explain", decision)
        assert answer["agent_id"] is None
        mine = next(one for one in answer["withheld"] if one["path"] == "agent_id")
        assert (mine["reason"], mine["erased_by"]) == ("erased", erasure)
        log.project()
    assert [row["record_id"] for row in log.ask("list")] == [decision]
    assert log.ask("list")[0]["agent_id"] is None
    with pytest.raises(NothingFound):
        log.ask("explain", "DEP-500")


def test_tree_from_projected_and_unsealed(log):
    log.tell(deploy_agent(), review_agent())
    log.append(log.writer.record(onboard_agent(), at=90))
    answer = log.ask("tree", ENTRY)
    assert [one["agent_id"] for one in answer["branches"]] == ["deploy-agent", "review-agent", "onboard-agent"]
    assert answer["branches"][0]["outcomes"][0]["direction"] == "raised"
    with pytest.raises(NothingFound) as caught:
        log.ask("tree", "checkout-service/retry-patern")
    assert ENTRY in caught.value.nearest


def test_show_has_every_event_of_any_kind(log):
    (decision,) = log.tell(
        window("a", [event("checkpoint", 1.0, label="half way"), event("telepathy", 2.0, how="well")])
    )
    answer = log.ask("show", decision)
    fits_schema("show", answer)
    assert [(one["step"], one["kind"]) for one in answer["events"]] == [(1, "checkpoint"), (2, "telepathy")]
    assert answer["events"][0]["label"] == "half way"
    assert answer["facts"]["started_at"] == "2026-03-07T16:13:20.000000Z"
