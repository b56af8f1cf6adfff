import dataclasses
import os

import pytest

from amfs_otel.errors import StoreError
from amfs_otel.store import read, stream


@pytest.fixture
def filled(ledger):
    """A log with ten sealed records of different shapes, and one that is not sealed."""
    ledger.records = [ledger.record(*[b"%d/%d" % (number, part) for part in range(number)]) for number in range(10)]
    ledger.waiting = ledger.record(b"not yet")
    with ledger.store() as store:
        store.append(ledger.records)
        store.seal(ledger.log_key)
        store.append([ledger.waiting])
    return ledger


def switch_off(ledger, table):
    ledger.sql(f"ALTER TABLE amfs_otel.{table} DISABLE TRIGGER ALL")
    for operation in ("update", "delete"):
        ledger.sql(f"ALTER TABLE amfs_otel.{table} DISABLE RULE {table}_no_{operation}")


def test_a_range_with_and_without_parts(filled):
    with filled.store() as store:
        some = list(store.stored_entries(3, 5))
        assert [stored.entry.sequence_number for stored in some] == [3, 4, 5]
        assert [stored.record for stored in some] == filled.records[2:5]
        bare = list(store.stored_entries(3, 5, parts=False))
        assert [stored.record for stored in bare] == [
            dataclasses.replace(record, parts=()) for record in filled.records[2:5]
        ]
        assert list(store.stored_entries(99)) == []


def test_columns_are_those_of_the_database(filled):
    with filled.store() as store:
        stored = next(store.stored_entries(1))
    record = filled.records[0]
    assert stored.columns == {
        "entry_log": "default",
        "sequence_number": 1,
        "parent_hash": stored.entry.parent_hash,
        "record_hash": record.record_hash,
        "log": "default",
        "record_id": record.record_id,
        "kind": "decision",
        "session": record.session,
        "trace": None,
    }


def test_reading_sees_one_state_while_others_write(filled):
    with filled.store() as store, filled.store() as other, store.reading():
        entries = store.stored_entries()
        next(entries)
        other.append([filled.record(b"later")])
        assert other.seal(filled.log_key).count == 2
        assert len(list(entries)) == 10
        assert [record for record, _ in store.unsealed()] == [filled.waiting]
        found = store.record(filled.waiting.record_id)
        assert found is not None
        assert found.entry is None


def test_an_iterator_that_is_left_early_leaves_the_store_usable(filled):
    with filled.store() as store:
        for _ in store.stored_entries():
            break
        assert store.append([filled.record(b"text")])[0].outcome == "stored"
        assert store.seal(filled.log_key).count == 2


def test_reading_fetches_large_parts_one_by_one(one_ledger, monkeypatch):
    monkeypatch.setattr(read, "INLINE_BYTES", 100)
    monkeypatch.setattr(read, "FETCH_ROWS", 3)
    records = [one_ledger.record(os.urandom(99 + size), b"small", os.urandom(500)) for size in range(5)]
    with one_ledger.store() as store:
        store.append(records)
        store.seal(one_ledger.log_key)
        assert [stored.record for stored in store.stored_entries(1)] == records


def test_a_record_of_many_parts_comes_whole_and_in_order(one_ledger, monkeypatch):
    """More parts than come with their entry, some of them large, before and behind others that are like none of it."""
    monkeypatch.setattr(read, "INLINE_BYTES", 100)
    texts = [os.urandom(150 if number in (0, 7, 63, 80) else 20) for number in range(90)]
    records = [one_ledger.record(b"before"), one_ledger.record(*texts), one_ledger.record(b"behind")]
    with one_ledger.store() as store:
        store.append(records)
        store.seal(one_ledger.log_key)
        assert [stored.record for stored in store.stored_entries(1)] == records


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_however_a_log_is_cut_it_reads_the_same(filled, monkeypatch, size):
    with filled.store() as store:
        whole = list(store.stored_entries())
        for name, value in (("STRETCH", size), ("BATCH", size), ("BATCH_BYTES", size)):
            monkeypatch.setattr(stream, name, value)
            assert list(store.stored_entries()) == whole
            assert list(store.stored_entries(2, 7)) == whole[2:8]


def test_where_many_entries_are_gone_the_others_are_read(filled, monkeypatch):
    monkeypatch.setattr(stream, "STRETCH", 2)
    switch_off(filled, "entry")
    filled.sql("DELETE FROM amfs_otel.entry WHERE sequence_number BETWEEN 2 AND 8")
    with filled.store() as store:
        assert [stored.entry.sequence_number for stored in store.stored_entries()] == [0, 1, 9, 10]


def test_two_entries_with_one_number_stay_two(filled):
    switch_off(filled, "entry")
    filled.sql("ALTER TABLE amfs_otel.entry DROP CONSTRAINT entry_pkey, DROP CONSTRAINT entry_parent_is_unique,"
               " DROP CONSTRAINT entry_record_is_unique")  # fmt: skip
    filled.sql(
        "INSERT INTO amfs_otel.entry (entry, entry_hash, entry_mac)"
        " SELECT entry, entry_hash, entry_mac FROM amfs_otel.entry WHERE sequence_number = 10"
    )
    with filled.store() as store:
        last = list(store.stored_entries(10))
    assert [stored.record for stored in last] == [filled.records[9]] * 2
    assert "DUPLICATE" in [finding.code for finding in filled.verify().findings]


def test_an_iterator_that_is_left_early_leaves_the_state_that_is_being_read(filled):
    with filled.store() as store, store.reading():
        for _ in store.stored_entries():
            break
        assert store.record(filled.records[0].record_id).record == filled.records[0]


def test_ids_are_found_by_any_unique_piece(filled):
    wanted = filled.records[4].record_id
    with filled.store() as store:
        assert store.find_ids(wanted) == [wanted]
        assert store.find_ids(wanted[-8:]) == [wanted]
        assert store.find_ids(wanted[-16:].replace("-", "").upper()) == [wanted]
        assert wanted in store.find_ids(wanted[:6])
        assert len(store.find_ids(wanted[:3])) > 5
        for nothing in ("", "xyz", "%", "0" * 33, "f" * 32):
            assert store.find_ids(nothing) == []
        assert store.record("xyz") is None
        assert store.record("f" * 8 + wanted[8:]) is None


def test_a_policy_that_hides_rows_is_a_finding_and_never_a_shorter_log(filled):
    dsn = filled.user("verifier")
    filled.sql("ALTER TABLE amfs_otel.entry ENABLE ROW LEVEL SECURITY")
    filled.sql("CREATE POLICY short ON amfs_otel.entry USING (sequence_number < 4)")
    with filled.store(dsn) as store:
        assert [finding.code for finding in store.findings()] == ["HIDDEN_ROWS"]
        with pytest.raises(StoreError, match="row-level security"):
            list(store.stored_entries())


def test_a_view_in_a_tables_place_is_a_finding(filled):
    filled.sql("ALTER TABLE amfs_otel.entry RENAME TO old_entry")
    filled.sql("CREATE VIEW amfs_otel.entry AS SELECT * FROM amfs_otel.old_entry WHERE sequence_number < 4")
    filled.sql("GRANT SELECT ON amfs_otel.entry TO PUBLIC")
    with filled.store() as store:
        findings = store.findings()
    assert [(finding.code, finding.got) for finding in findings] == [("NOT_A_TABLE", "v")]


def test_a_missing_table_is_a_finding(filled):
    filled.sql("ALTER TABLE amfs_otel.part RENAME TO gone")
    with filled.store() as store:
        assert [(finding.code, finding.got) for finding in store.findings()] == [("NOT_A_TABLE", None)]


def test_a_log_without_entries_is_an_empty_store(filled):
    filled.log = "never begun"
    with filled.store() as store:
        assert [finding.code for finding in store.findings()] == ["EMPTY_STORE"]
        assert store.head() is None
        assert store.log_uid() is None


def test_rows_in_an_inheriting_table_are_not_ours(filled):
    filled.sql("CREATE TABLE public.heir () INHERITS (amfs_otel.entry)")
    switch_off(filled, "entry")
    filled.sql(
        "INSERT INTO public.heir (entry, entry_hash, entry_mac)"
        " SELECT entry, entry_hash, entry_mac FROM ONLY amfs_otel.entry WHERE sequence_number = 3"
    )
    with filled.store() as store:
        assert len(list(store.stored_entries())) == 11


def test_a_column_that_says_something_else_is_seen(filled):
    switch_off(filled, "record")
    filled.sql("ALTER TABLE amfs_otel.record ALTER COLUMN kind DROP EXPRESSION")
    filled.sql("UPDATE amfs_otel.record SET kind = 'gap' WHERE id = %s", filled.records[4].record_id)
    verification = filled.verify()
    assert [(finding.code, finding.sequence_number) for finding in verification.findings] == [("COLUMN_MISMATCH", 5)]


def test_a_record_that_was_removed_leaves_its_entry(filled):
    switch_off(filled, "record")
    filled.sql("DELETE FROM amfs_otel.record WHERE id = %s", filled.records[4].record_id)
    with filled.store() as store:
        stored = list(store.stored_entries(5, 5))
    assert stored[0].record is None
    assert set(stored[0].columns) == {"entry_log", "sequence_number", "parent_hash", "record_hash"}
    assert ("MISSING", 5) in [(finding.code, finding.sequence_number) for finding in filled.verify().findings]
    with filled.store() as store:
        assert store.record(filled.records[5].record_id).record == filled.records[5]


def test_parts_that_were_altered_or_removed_are_seen_and_located(filled):
    switch_off(filled, "part")
    filled.sql("UPDATE amfs_otel.part SET bytes = 'x' WHERE record = %s AND number = 3", filled.records[4].record_id)
    filled.sql("UPDATE amfs_otel.part SET bytes = NULL WHERE record = %s AND number = 3", filled.records[6].record_id)
    filled.sql("DELETE FROM amfs_otel.part WHERE record = %s AND number = 4", filled.records[8].record_id)
    found = [(one.code, one.sequence_number, one.part) for one in filled.verify().findings]
    assert sorted(found) == [("CONTENT_ALTERED", 5, 3), ("CONTENT_MISSING", 7, 3), ("CONTENT_MISSING", 9, 4)]
