"""What is projected depends on the records alone: not on how they fell into batches, nor on when they were projected."""

import pytest

from amfs_otel.drain.sealing import seal_all
from amfs_otel.graph import projection
from tests.integration.test_reading import Asked
from tests.support.seed_story import changed, committed, deploy_agent, read
from tests.support.stories import event, window


@pytest.fixture
def log(one_ledger):
    return Asked(one_ledger)


def one_by_one(log, *records) -> None:
    """Seals and projects each record before the next is there."""
    for record in records:
        log.seal(record)
        log.project()


def stays_after_a_rebuild(log) -> bool:
    before = log.everything()
    log.rebuild()
    return log.everything() == before


def test_sealing_projects_all_although_a_batch_ends_with_its_bytes(log, monkeypatch):
    monkeypatch.setattr(projection, "BATCH_BYTES", 1)
    log.append(*(log.writer.record(deploy_agent(), at=60 + place) for place in range(3)))
    with log.ledger.store() as store:
        assert seal_all(store, log.ledger.log_key).entries == 3
    assert log.sql("SELECT count(*) FROM amfs_otel.projected WHERE {mine}") == [(4,)]  # genesis too


def test_an_outcome_judges_the_newest_decision_although_that_came_to_its_ref_first(log):
    """The newest is named with the ref by an outcome record that is sealed before it."""
    older = log.writer.record(window("a", [committed("R-1", "success")]), at=60)
    newer = log.writer.record(window("b", [read("k", 0.5, 1)]), at=61)
    naming = log.writer.record(
        window("ops", [committed("R-1", "failure")]), kind="outcome", at=62, refs={"outcome_of": newer.record_id}
    )
    by_ref = log.writer.record(window("ops", [committed("R-1", "critical_failure")]), kind="outcome", at=63)
    one_by_one(log, older, naming, by_ref, newer)
    judged = log.sql("SELECT record_id::text, decision_id::text FROM amfs_otel.outcome WHERE {mine}")
    assert dict(judged) == {
        older.record_id: older.record_id,
        naming.record_id: newer.record_id,
        by_ref.record_id: newer.record_id,
    }
    assert stays_after_a_rebuild(log)


def test_an_outcome_judges_the_newest_decision_although_an_amendment_gives_that_its_ref(log):
    open_one = committed("R-1", "success") | {"status": "incomplete"}
    late = {key: value for key, value in open_one.items() if key != "outcome_ref"}
    older = log.writer.record(window("a", [committed("R-1", "success")]), at=60)
    newer = log.writer.record(window("b", [late]), at=61)
    by_ref = log.writer.record(window("ops", [committed("R-1", "failure")]), kind="outcome", at=62)
    amendment = log.writer.record(
        {"step": late["id"], "event": open_one | {"status": "ok"}},
        kind="amendment", at=63, refs={"amends": newer.record_id},
    )  # fmt: skip
    one_by_one(log, older, newer, by_ref, amendment)
    assert log.sql("SELECT decision_id::text FROM amfs_otel.outcome WHERE record_id = %s", by_ref.record_id) == [
        (newer.record_id,)
    ]
    assert stays_after_a_rebuild(log)


def test_an_amendment_is_not_seen_by_records_before_it(log):
    slow = read("k", None, 3, status="incomplete")
    del slow["confidence"], slow["end_us"]
    change = changed("k", None, 0.9, "raised", before_from=None)
    reader = log.writer.record(window("a", [slow]), at=60)
    between = log.writer.record(window("ops", [change, committed("R-1", "success")]), at=61)
    done = slow | {"confidence": 0.77, "status": "ok", "end_us": slow["start_us"] + 1000}
    amendment = log.writer.record(
        {"step": slow["id"], "event": done}, kind="amendment", at=62, refs={"amends": reader.record_id}
    )
    one_by_one(log, reader, between, amendment)
    assert log.sql(
        "SELECT detail -> 'before', detail -> 'before_from' FROM amfs_otel.step WHERE record_id = %s AND number = 1",
        between.record_id,
    ) == [(None, None)]
    assert stays_after_a_rebuild(log)


def test_what_a_framework_looked_up_for_itself_is_no_input(log):
    found = {"operation": "search", "result_count": 1}
    own = event("memory_query", 1.0, 1.0, infrastructure=True, results=[{"entity_path": "a", "key": "own"}], **found)
    asked = event("memory_query", 2.0, 1.0, results=[{"entity_path": "a", "key": "asked"}], **found)
    (decision,) = log.tell(window("a", [own, asked]))
    assert log.sql("SELECT name FROM amfs_otel.v_inputs WHERE record_id = %s", decision) == [("a/asked",)]
    assert [one["key"] for one in log.ask("explain", decision)["inputs"]] == ["asked"]
