"""The projector on a real PostgreSQL: rows, edges, exactly once, erasure, damage."""

import json

import pytest

from amfs_otel.chain.record import Record
from amfs_otel.graph.projection import project, rebuild
from tests.integration.ledgers import Ledger
from tests.support.seed_story import (
    ENTRY,
    changed,
    committed,
    context,
    deploy_agent,
    onboard_agent,
    read,
    review_agent,
    write,
)
from tests.support.stories import Writer, event, window

TABLES = {
    "decision": "record_id",
    "step": "record_id, number",
    "outcome": "record_id, number",
    "amendment": "record_id",
    "erased": "record_id, part",
    "counter": "subject, name",
    "projected": "sequence_number",
}
EDGES = """
SELECT s.kind, s.name, e.relation, t.kind, t.name, e.confidence, e.evidence_count, e.first_seen, e.last_seen
FROM amfs_otel.edge e JOIN amfs_otel.node s ON s.id = e.source JOIN amfs_otel.node t ON t.id = e.target
WHERE e.{mine} ORDER BY 1, 2, 3, 4, 5
"""


class Projected:
    """A log, a writer of stories and the projector."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.writer = Writer(ledger.writer_key, ledger.log)

    def sql(self, statement: str, *parameters) -> list[tuple]:
        """Rows as a superuser sees them; ``{mine}`` stands for "of this log"."""
        return self.ledger.sql(statement.replace("{mine}", f"log = '{self.ledger.log}'"), *parameters)

    def seal(self, *records: Record) -> list[str]:
        with self.ledger.store() as store:
            assert {one.outcome for one in store.append(records)} <= {"stored"}
            while store.seal(self.ledger.log_key, full=True).count:
                pass
        return [record.record_id for record in records]

    def project(self, limit: int = 200) -> int:
        total = 0
        with self.ledger.store() as store:
            while count := project(store.connection, self.ledger.log, limit=limit):
                total += count
        return total

    def tell(self, *stories: dict, **options) -> list[str]:
        ids = self.seal(*(self.writer.record(story, at=60 + place, **options) for place, story in enumerate(stories)))
        self.project()
        return ids

    def erase(self, *parts: tuple[str, int], **members) -> str:
        options = members or {"erases": list(parts)}
        (erasure,) = self.seal(self.writer.record({}, kind="erasure", at=900, **options))
        return erasure

    def everything(self) -> dict[str, list[tuple]]:
        found = {
            name: self.sql(f"SELECT * FROM amfs_otel.{name} WHERE {{mine}} ORDER BY {key}")
            for name, key in TABLES.items()
        }
        return found | {"edge": self.sql(EDGES)}

    def edges(self) -> dict[tuple[str, str, str], tuple[float, int]]:
        return {(row[1], row[2], row[4]): (row[5], row[6]) for row in self.sql(EDGES)}

    def rebuild(self) -> int:
        with self.ledger.store() as store:
            return rebuild(store.connection, self.ledger.log)


@pytest.fixture
def log(one_ledger):
    return Projected(one_ledger)


def test_seed_story_on_every_server(ledger):
    log = Projected(ledger)
    ids = log.tell(deploy_agent(), review_agent(), onboard_agent())
    rows = log.sql(
        "SELECT agent_id, session_id, outcome_ref, outcome_type, events, reads, writes, is_withheld"
        " FROM amfs_otel.v_decisions WHERE {mine} ORDER BY sequence_number"
    )
    assert rows == [
        ("deploy-agent", "sess-a1b2c3d4", "DEP-500", "success", 8, 2, 1, False),
        ("review-agent", "sess-e5f6a7b8", "INC-1042", "critical_failure", 5, 1, 1, False),
        ("onboard-agent", "sess-g7h8i9j0", None, None, 2, 1, 1, False),
    ]
    edges = log.edges()
    other = "checkout-service/risk-race-condition"
    assert edges["deploy-agent", "read", ENTRY] == (1.0, 1)
    assert edges["deploy-agent", "wrote", "checkout-service/decision-rollback-retry"] == (1.0, 1)
    assert edges["checkout-service/decision-rollback-retry", "references", ENTRY] == (1.0, 1)
    assert edges["deploy-agent", "consulted", "git log"] == (1.0, 1)
    assert edges[ENTRY, "informed", "DEP-500"] == (1.0, 1)
    assert edges[ENTRY, "informed", "INC-1042"] == (0.7, 1)
    assert edges[ENTRY, "co_occurs_with", other] == (1.0, 1)
    steps = log.sql("SELECT number, entry, detail FROM amfs_otel.v_steps WHERE record_id = %s AND causal", ids[0])
    assert [(number, entry) for number, entry, _ in steps] == [(1, ENTRY), (2, other)]
    assert steps[0][2]["value"] == {"retries": 3}


def test_repetition_increments_and_never_duplicates(log):
    log.tell(deploy_agent(), deploy_agent(), deploy_agent())
    edges = log.edges()
    assert edges["deploy-agent", "read", ENTRY] == (1.0, 3)
    assert edges[ENTRY, "co_occurs_with", "checkout-service/risk-race-condition"] == (1.0, 3)
    assert len(log.sql("SELECT 1 FROM amfs_otel.node WHERE {mine} AND name = %s", ENTRY)) == 1


def test_several_showings_in_one_record_are_one_piece_of_evidence(log):
    log.tell(window("a", [read("k", 0.5, 1, 1), read("k", 0.5, 1, 7), write("w", 2), write("w", 3, version=2)]))
    first, last, count = log.sql(
        "SELECT first_seen, last_seen, evidence_count FROM amfs_otel.edge WHERE {mine} AND relation = 'wrote'"
    )[0]
    assert count == 1
    assert (last - first).total_seconds() == 1


def test_projecting_in_any_batches_gives_the_same_tables(log):
    stories = [deploy_agent(), review_agent(), onboard_agent(), deploy_agent()]
    log.seal(*(log.writer.record(story, at=60 + place) for place, story in enumerate(stories)))
    assert log.project(limit=1) == 5  # genesis too
    one_by_one = log.everything()
    assert log.project() == 0
    assert log.rebuild() == 5
    assert log.everything() == one_by_one


def test_late_outcome_by_ref_attaches_to_newest_decision(log):
    older, newer = log.tell(deploy_agent(), deploy_agent())
    late = window("ops", [committed("DEP-500", "failure", 20.0)], closed_by="exit")
    (outcome,) = log.tell(late, kind="outcome")
    assert log.sql("SELECT decision_id::text, attached_by FROM amfs_otel.v_outcomes WHERE record_id = %s", outcome) == [
        (newer, "ref")
    ]
    assert log.sql("SELECT outcome_type FROM amfs_otel.v_decisions WHERE record_id = %s", newer) == [("failure",)]
    assert log.sql("SELECT outcome_type FROM amfs_otel.v_decisions WHERE record_id = %s", older) == [("success",)]
    assert log.edges()[ENTRY, "informed", "DEP-500"] == (1.0, 3)


def test_outcome_that_names_its_decision(log):
    (decision,) = log.tell(onboard_agent())
    (outcome,) = log.tell(
        window("onboard-agent", [committed("REV-1", "success")]), kind="outcome", refs={"outcome_of": decision}
    )
    rows = log.sql("SELECT decision_id::text, attached_by FROM amfs_otel.outcome WHERE record_id = %s", outcome)
    assert rows == [(decision, "refs")]
    # The ref now has a decision, so a second outcome without refs finds it.
    (second,) = log.tell(window("ops", [committed("REV-1", "failure")]), kind="outcome")
    rows = log.sql("SELECT decision_id::text, attached_by FROM amfs_otel.outcome WHERE record_id = %s", second)
    assert rows == [(decision, "ref")]


def test_outcome_before_its_decision_waits(log):
    (outcome,) = log.tell(window("ops", [committed("DEP-500", "failure")]), kind="outcome")
    assert log.sql("SELECT decision_id FROM amfs_otel.outcome WHERE record_id = %s", outcome) == [(None,)]
    (decision,) = log.tell(deploy_agent())
    rows = log.sql("SELECT decision_id::text FROM amfs_otel.outcome WHERE record_id = %s", outcome)
    assert rows == [(decision,)]
    assert log.edges()[ENTRY, "informed", "DEP-500"] == (1.0, 2)
    before = log.everything()
    log.rebuild()
    assert log.everything() == before


def test_amendment_is_laid_over_the_step(log):
    slow = event("tool_call", 1.0, status="incomplete", tool_name="deploy", call_id="c1", observed="call")
    record = log.writer.record(window("a", [slow]))
    (decision,) = log.seal(record)
    log.project()
    done = slow | {"status": "ok", "end_us": slow["start_us"] + 5_000, "result": "done"}
    amendment = log.writer.record({"step": slow["id"], "event": done}, kind="amendment", refs={"amends": decision})
    log.seal(amendment)
    log.project()
    rows = log.sql("SELECT status, duration_ms, amended_by::text FROM amfs_otel.step WHERE record_id = %s", decision)
    assert rows == [("ok", 5.0, amendment.record_id)]
    assert log.sql("SELECT value FROM amfs_otel.counter WHERE {mine} AND subject = 'log' AND name = 'decisions'") == [
        (1.0,)
    ]


def test_confidence_before_comes_from_the_newest_earlier_sight(log):
    (reader,) = log.tell(window("a", [read("k", 0.64, 2)]))
    change = changed("k", None, 0.5, None, version=2, before_from=None, version_before=None)
    log.tell(window("ops", [committed("X-1", "failure"), change]), kind="outcome")
    ((detail,),) = log.sql("SELECT detail FROM amfs_otel.step WHERE {mine} AND kind = 'confidence_change'")
    assert (detail["before"], detail["before_from"], detail["version_before"]) == (0.64, reader, 2)
    assert detail["direction"] == "lowered"
    ((changes,),) = log.sql("SELECT confidence_changes FROM amfs_otel.v_outcomes WHERE {mine} AND outcome_ref = 'X-1'")
    assert changes[0]["before"] == 0.64


def test_cost_is_derived_and_says_from_what(log):
    call = {
        "provider": "openai",
        "model": "gpt-4o-mini",
        "input_tokens": 1000,
        "cached_tokens": 500,
        "output_tokens": 100,
    }
    log.tell(
        window(
            "a",
            [
                event("llm_call", 1.0, 700.0, **call),
                event("llm_call", 2.0, 700.0, **call | {"model": "no-such-model"}),
                event("llm_call", 3.0, 700.0, reported_cost_usd=0.25, **call),
            ],
        )
    )
    rows = log.sql("SELECT cost_usd, cost_source, latency_ms FROM amfs_otel.v_llm_calls WHERE {mine} ORDER BY number")
    assert rows[0][0] == pytest.approx(0.0001725)
    assert rows[0][1].startswith("genai-prices/")
    assert rows[1] == (None, "unpriced", 700.0)
    assert rows[2][:2] == (0.25, "provider")
    assert log.sql("SELECT cost_usd FROM amfs_otel.v_decisions WHERE {mine}")[0][0] == pytest.approx(0.2501725)


def test_withheld_texts_are_null_and_flagged_in_the_views(log):
    tool = event(
        "tool_call", 1.0, 5.0, tool_name="t", call_id="c", arguments={"a": 1}, result="secret", observed="call"
    )
    log.tell(window("a", [tool, context("label", "kept", "src")]))
    rows = log.sql(
        "SELECT arguments, result_summary, withheld, is_withheld, result_hash FROM amfs_otel.v_tool_calls WHERE {mine}"
    )
    assert rows[0][:4] == (None, None, ["arguments", "result_summary"], True)
    assert len(rows[0][4]) == 64
    assert log.sql(
        "SELECT detail ->> 'summary', is_withheld FROM amfs_otel.v_steps WHERE {mine} AND kind = 'context'"
    ) == [("kept", False)]


@pytest.mark.parametrize("delete_bytes", [True, False], ids=["bytes deleted", "bytes still there"])
def test_erasing_the_names_takes_rows_edges_and_nodes(log, delete_bytes):
    decision, kept = log.tell(deploy_agent(), review_agent())
    (outcome,) = log.tell(window("ops", [committed("DEP-500", "failure", 20.0)]), kind="outcome")
    assert log.sql("SELECT decision_id::text FROM amfs_otel.outcome WHERE record_id = %s", outcome) == [(decision,)]
    erasure = log.erase((decision, 2))
    if delete_bytes:
        log.sql("DELETE FROM amfs_otel.part WHERE record = %s AND number = 2", decision)
    log.project()
    row = log.sql(
        "SELECT agent_id, session_id, withheld, is_withheld, outcome_ref, events FROM amfs_otel.v_decisions"
        " WHERE record_id = %s",
        decision,
    )
    assert row == [(None, None, ["agent_id", "session_id"], True, None, 8)]
    assert log.sql("SELECT erased_by::text FROM amfs_otel.erased WHERE {mine}") == [(erasure,)]
    names = {name for (name,) in log.sql("SELECT name FROM amfs_otel.node WHERE {mine}")}
    assert "deploy-agent" not in names
    assert "checkout-service/risk-race-condition" not in names
    assert "DEP-500" not in names
    assert ENTRY in names
    assert log.edges()[ENTRY, "informed", "INC-1042"] == (0.7, 1)
    # Its ref is gone, so the outcome that had found it by ref waits again.
    assert log.sql("SELECT decision_id FROM amfs_otel.outcome WHERE record_id = %s", outcome) == [(None,)]
    assert (
        log.sql("SELECT 1 FROM amfs_otel.counter WHERE {mine} AND subject = 'agent:deploy-agent' AND value <> 0") == []
    )
    text = json.dumps(log.everything(), default=str)
    assert "deploy-agent" not in text
    assert "pagerduty" not in text.lower()
    assert kept in text


def test_erasing_by_age_and_class(log):
    old, new = log.seal(log.writer.record(deploy_agent(), at=60), log.writer.record(deploy_agent(), at=5000))
    log.project()
    log.erase(erase_range={"before": "2026-03-07T17:00:00.000000Z", "class": "d"})
    log.project()
    values = log.sql(
        "SELECT record_id::text, detail -> 'value', withheld FROM amfs_otel.step WHERE {mine} AND kind = 'memory_read' AND number = 1"
    )
    assert {row[0]: row[1:] for row in values} == {old: (None, ["value"]), new: ({"retries": 3}, [])}


def test_rebuild_after_erasure_gives_the_same_tables(log):
    decision, _ = log.tell(deploy_agent(), deploy_agent())
    log.tell(window("ops", [committed("DEP-500", "failure", 20.0)]), kind="outcome")
    log.erase((decision, 2))
    log.sql("DELETE FROM amfs_otel.part WHERE record = %s AND number = 2", decision)
    log.project()
    before = log.everything()
    log.rebuild()
    assert log.everything() == before


STRANGE = {
    "no events": {"agent": "a"},
    "events of another shape": {"agent": "a", "events": {"x": 1}},
    "an event that is no object": {"agent": "a", "events": [7, None, "x"]},
    "an unknown kind": {
        "agent": "a",
        "events": [{"kind": "telepathy", "id": "x", "start_us": 1, "how": [1, {"deep": True}]}],
    },
    "fields of other types": {
        "agent": "a",
        "started_us": "yesterday",
        "events": [
            {"kind": "memory_read", "found": True, "version": "three", "confidence": [1], "start_us": 2**70},
            {
                "kind": "llm_call",
                "input_tokens": -5,
                "output_tokens": 2**70,
                "model": {"x": 1},
                "finish_reasons": "stop",
            },
            {"kind": "memory_query", "results": [1, {"version": {}}], "parameters": 3},
            {"kind": "outcome", "outcome_type": 5},
            {"kind": 9},
        ],
    },
    "very long names": {"agent": "a" * 5000, "events": [{"kind": "tool_call", "tool_name": "t" * 5000}]},
    "names that no index row can hold": {
        "agent": "".join(chr(0x4E00 + place * 7 % 20000) for place in range(1000)),
        "events": [{"kind": "".join(chr(0x4E00 + place * 11 % 20000) for place in range(1000))}],
    },
    "a number beyond a bigint": {"agent": "a", "events": [{"kind": "memory_read", "found": True, "version": 2**80}]},
}


@pytest.mark.parametrize("facts", STRANGE.values(), ids=STRANGE)
def test_strange_facts_stop_nothing(log, facts):
    (strange,) = log.tell(facts)
    (after,) = log.tell(deploy_agent())
    ids = {row[0] for row in log.sql("SELECT record_id::text FROM amfs_otel.decision WHERE {mine}")}
    skipped = {
        row[0]
        for row in log.sql("SELECT record_id::text FROM amfs_otel.projected WHERE {mine} AND skipped IS NOT NULL")
    }
    assert after in ids
    assert strange in ids | skipped


def test_a_record_that_cannot_be_read_is_marked_and_counted(log):
    from amfs_otel.chain.record import PartInput, make_record, new_record_id

    broken = make_record(
        kind="decision",
        log=log.ledger.log,
        record_id=new_record_id(1),
        session="0" * 32,
        parts=[PartInput("s", b"no json"), PartInput("i", b"[]")],
        key=log.ledger.writer_key,
        captured_at_ns=1,
    )
    log.seal(broken)
    (after,) = log.tell(deploy_agent())
    rows = log.sql("SELECT skipped FROM amfs_otel.projected WHERE record_id = %s", broken.record_id)
    assert rows == [("FormatError",)]
    assert log.sql("SELECT value FROM amfs_otel.counter WHERE {mine} AND name = 'records.skipped'") == [(1.0,)]
    assert log.sql("SELECT 1 FROM amfs_otel.decision WHERE record_id = %s", after) == [(1,)]


def test_one_projector_at_a_time(log):
    log.seal(log.writer.record(deploy_agent()))
    with log.ledger.store() as one, log.ledger.store() as other, one.connection.transaction():
        one.connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (0x616D6670, log.ledger.log))
        assert project(other.connection, log.ledger.log) == 0
    assert log.project() == 2


def test_the_sealer_role_may_project_and_the_reader_may_not(log):
    from amfs_otel.errors import StoreError

    log.seal(log.writer.record(deploy_agent()))
    with log.ledger.store(log.ledger.user("reader")) as store, pytest.raises(StoreError):
        project(store.connection, log.ledger.log)
    with log.ledger.store(log.ledger.user("sealer")) as store:
        assert project(store.connection, log.ledger.log) == 2


def test_logs_never_mix(log):
    other = Projected(Ledger(log.ledger.dsn, f"{log.ledger.log}-other"))
    other.ledger.prepare()
    log.tell(deploy_agent())
    other.tell(deploy_agent(), deploy_agent())
    decisions = "SELECT count(*) FROM amfs_otel.decision WHERE {mine}"
    assert [one.sql(decisions) for one in (log, other)] == [[(1,)], [(2,)]]
    log.rebuild()
    assert [one.sql(decisions) for one in (log, other)] == [[(1,)], [(2,)]]
    edge = ("checkout-service/decision-rollback-retry", "references", ENTRY)
    assert [one.edges()[edge] for one in (log, other)] == [(1.0, 1), (1.0, 2)]
