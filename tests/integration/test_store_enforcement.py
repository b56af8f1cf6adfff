import psycopg
import pytest
from psycopg import errors

from amfs_otel.chain.record import record_hash

TABLES = ("record", "part", "entry", "checkpoint")
A_COLUMN = {"record": "signature", "part": "bytes", "entry": "entry_mac", "checkpoint": "note"}


@pytest.fixture
def filled(ledger):
    """A log with a sealed record and a checkpoint note."""
    ledger.stored = ledger.record(b"a text", b"another text")
    with ledger.store() as store:
        store.append([ledger.stored])
        store.seal(ledger.log_key)
    ledger.sql("INSERT INTO amfs_otel.checkpoint (log, size, note) VALUES ('default', 1, 'a note')")
    return ledger


def changes(table):
    return [
        (f"UPDATE amfs_otel.{table} SET {A_COLUMN[table]} = {A_COLUMN[table]}", "UPDATE"),
        (f"DELETE FROM amfs_otel.{table}", "DELETE"),
        (f"TRUNCATE amfs_otel.{table} CASCADE", "TRUNCATE"),
    ]


@pytest.mark.parametrize("replica", [False, True], ids=["origin", "replica"])
def test_owner_and_superuser_are_told_why_nothing_changes(filled, replica):
    before = filled.verify()
    for table in TABLES:
        for statement, operation in changes(table):
            for role in ("amfs_otel_owner", "amfs"):
                with psycopg.connect(filled.dsn) as connection:
                    if replica:
                        connection.execute("SET session_replication_role = replica")
                    connection.execute(f"SET ROLE {role}")
                    with pytest.raises(errors.RestrictViolation) as refused:
                        connection.execute(statement)
                    assert refused.value.sqlstate == "23001"
                    assert f"amfs_otel.{table} is append-only: {operation} refused" in str(refused.value)
                    connection.rollback()
    assert filled.verify() == before


def test_a_user_with_a_role_has_no_right_to_change_anything(filled):
    for role in ("writer", "sealer", "verifier", "reader"):
        with psycopg.connect(filled.user(role), autocommit=True) as connection:
            for table in TABLES:
                for statement, _ in changes(table):
                    with pytest.raises(errors.InsufficientPrivilege):
                        connection.execute(statement)


def test_other_ways_to_change_a_row_are_not_supported(filled):
    for statement in (
        "UPDATE amfs_otel.record SET signature = signature RETURNING id",
        "INSERT INTO amfs_otel.entry (entry, entry_hash, entry_mac) VALUES ('', '', '') ON CONFLICT DO NOTHING",
        "MERGE INTO amfs_otel.part AS p USING (SELECT 1) AS x ON true WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(errors.FeatureNotSupported):
            filled.sql(statement)


def test_a_change_that_meets_no_row_is_silent(filled):
    filled.sql("UPDATE amfs_otel.record SET signature = signature WHERE false")
    filled.sql("DELETE FROM amfs_otel.part WHERE false")


def test_a_part_goes_only_after_an_erasure_record_that_names_it(filled):
    record_id = filled.stored.record_id
    delete = f"DELETE FROM amfs_otel.part WHERE record = '{record_id}' AND number = 3"
    with pytest.raises(errors.RestrictViolation, match="only after an erasure record"):
        filled.sql(delete)
    with filled.store() as store:
        store.append([filled.record(kind="erasure", erases=[(record_id, 3)])])
    with pytest.raises(errors.RestrictViolation):
        filled.sql(delete.replace("number = 3", "number IN (3, 4)"))
    filled.sql(delete, dsn=filled.user("eraser"))
    numbers = "SELECT number FROM amfs_otel.part WHERE record = %s ORDER BY number"
    assert filled.sql(numbers, record_id) == [(1,), (2,), (4,), (5,)]
    with filled.store() as store:
        store.seal(filled.log_key)
    verification = filled.verify()
    assert (verification.verdict.name, verification.coverage.erased_parts) == ("INTACT", 1)


def test_an_erasure_by_range_covers_its_classes_before_its_time(filled):
    record_id = filled.stored.record_id
    early, late = "2000-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"
    with filled.store() as store:
        store.append([filled.record(kind="erasure", erase_range={"before": early, "class": "sidmh"})])
        store.append([filled.record(kind="erasure", erase_range={"before": late, "class": "im"})])
    assert [filled.sql("SELECT amfs_otel.erasable(%s, %s)", record_id, number)[0][0] for number in (1, 2, 3, 4, 9)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_an_erasure_in_another_log_erases_nothing_here(filled):
    with filled.store() as store:
        store.append([filled.record(kind="erasure", log="other", erases=[(filled.stored.record_id, 3)])])
    with pytest.raises(errors.RestrictViolation):
        filled.sql(f"DELETE FROM amfs_otel.part WHERE record = '{filled.stored.record_id}' AND number = 3")


def test_hashes_must_be_of_the_bytes_beside_them(filled):
    other = filled.record(b"text")
    with pytest.raises(errors.CheckViolation, match="record_hash_is_of_header"):
        filled.sql(
            "INSERT INTO amfs_otel.record (header, record_hash, signature, commitments) VALUES (%s, %b, %b, '')",
            other.header.decode(),
            record_hash(other.header + b" "),
            other.signature,
        )
    entry, entry_hash = filled.sql("SELECT entry, entry_hash FROM amfs_otel.entry WHERE sequence_number = 1")[0]
    with pytest.raises(errors.CheckViolation, match="entry_hash_is_of_entry"):
        filled.sql(
            "INSERT INTO amfs_otel.entry (entry, entry_hash, entry_mac) VALUES (%s, %b, %b)",
            entry.replace('"sequence_number":1', '"sequence_number":7'),
            entry_hash,
            bytes(32),
        )


def test_an_entry_must_follow_the_one_before_and_place_a_record(filled):
    insert = (
        "INSERT INTO amfs_otel.entry (entry, entry_hash, entry_mac)"
        " SELECT made, sha256('\\000'::bytea || convert_to(made, 'UTF8')), entry_mac FROM ("
        " SELECT {} AS made, entry_mac FROM amfs_otel.entry WHERE sequence_number = 1) AS e"
    )
    gap = """replace(entry, '"sequence_number":1', '"sequence_number":3')"""
    with pytest.raises(psycopg.Error):
        filled.sql(insert.format(gap))
    unsealed = filled.record(b"text")
    with filled.store() as store:
        store.append([unsealed])
    placed = f'regexp_replace({gap}, \'"record_hash":"[0-9a-f]*"\', \'"record_hash":"{unsealed.record_hash.hex()}"\')'
    fresh_parent = f'regexp_replace({placed}, \'"parent_hash":"[0-9a-f]*"\', \'"parent_hash":"{"ab" * 32}"\')'
    with pytest.raises(errors.RestrictViolation, match="entry 3 of log 'default' does not follow the entry before it"):
        filled.sql(insert.format(fresh_parent))
    nowhere = fresh_parent.replace(unsealed.record_hash.hex(), "cd" * 32)
    with pytest.raises(errors.RestrictViolation, match="places a record that is not in this log"):
        filled.sql(insert.format(nowhere))


def test_nobody_writes_a_generated_column(filled):
    with pytest.raises(errors.GeneratedAlways):
        filled.sql("INSERT INTO amfs_otel.entry (entry, entry_hash, entry_mac, sequence_number) VALUES ('', '', '', 1)")


def test_a_writer_stores_and_cannot_read_one_byte_of_a_part(filled):
    dsn = filled.user("writer")
    with filled.store(dsn) as store:
        records = [filled.record(b"text"), filled.record(b"more text")]
        assert [one.outcome for one in store.append(records)] == ["stored", "stored"]
        assert [one.outcome for one in store.append(records[:1])] == ["already"]
        assert store.places([records[0].record_id, filled.stored.record_id]) == {
            records[0].record_id: None,
            filled.stored.record_id: 1,
        }
    for statement in (
        "SELECT bytes FROM amfs_otel.part",
        "SELECT salt FROM amfs_otel.part",
        "SELECT octet_length(bytes) FROM amfs_otel.part",
        "SELECT count(*) FROM amfs_otel.part",
        "SELECT header FROM amfs_otel.record",
        "COPY amfs_otel.part TO STDOUT",
        "INSERT INTO amfs_otel.part (record, number, salt) VALUES (gen_random_uuid(), 1, '\\x') RETURNING bytes",
        "INSERT INTO amfs_otel.record (xid) VALUES ('1')",
        "INSERT INTO amfs_otel.entry (entry) VALUES ('')",
        "CREATE TABLE amfs_otel.mine (i int)",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            filled.sql(statement, dsn=dsn)


def test_a_sealer_seals_and_a_reader_verifies(filled):
    with filled.store(filled.user("sealer", "writer")) as store:
        store.append([filled.record(b"text")])
        assert store.seal(filled.log_key).count == 1
    for role in ("reader", "verifier"):
        assert filled.verify(filled.user(role)).verdict.name == "INTACT"


def test_posture_sees_what_was_switched_off(filled):
    def bad():
        with filled.store() as store:
            return {fact.code for fact in store.posture() if not fact.ok} - {"SUPERUSER", "DURABILITY"}

    assert bad() == set()
    filled.sql("ALTER TABLE amfs_otel.record DISABLE RULE record_no_update")
    filled.sql("ALTER TABLE amfs_otel.part ENABLE REPLICA TRIGGER part_guarded_delete")
    filled.sql("ALTER TABLE amfs_otel.entry DROP CONSTRAINT entry_hash_is_of_entry")
    filled.sql("GRANT SELECT ON amfs_otel.part TO amfs_otel_writer")
    filled.sql("ALTER TABLE amfs_otel.entry ENABLE ROW LEVEL SECURITY")
    filled.sql("CREATE TABLE public.heir () INHERITS (amfs_otel.record)")
    filled.sql("ALTER TABLE amfs_otel.record OWNER TO amfs")
    assert bad() == {"RULES", "TRIGGERS", "CHECKS", "PARTS", "ROW_SECURITY", "INHERITANCE", "OWNER"}
