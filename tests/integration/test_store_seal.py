import subprocess
import sys
import threading
import time

import psycopg
import pytest

from amfs_otel.chain.keys import KeyRing
from amfs_otel.errors import AmfsOtelError, ConfigurationError, StoreError
from amfs_otel.store import seal
from tests.integration.ledgers import Ledger, new_key
from tests.integration.postgres_servers import copy_database, running_server
from tests.support.not_run import not_run


def sealed_ids(store):
    return [stored.record.record_id for stored in store.stored_entries(first=1, parts=False)]


def store_slowly(ledger, record):
    """Store a record in a transaction that stays open; the connection is returned."""
    connection = psycopg.connect(ledger.dsn)
    connection.execute(
        "INSERT INTO amfs_otel.record (header, record_hash, signature, commitments) VALUES (%s, %b, %b, %b)",
        (record.header.decode(), record.record_hash, record.signature, b"".join(record.commitments)),
    )
    return connection


def test_records_get_their_place_in_order_of_arrival(ledger):
    records = [ledger.record(b"text") for _ in range(6)]
    with ledger.store() as store:
        for batch in (records[:1], records[1:4], records[4:]):
            store.append(batch)
            sealed = store.seal(ledger.log_key)
            assert [record_id for _, record_id in sealed.entries] == [record.record_id for record in batch]
            assert sealed.count == len(batch)
            assert store.seal(ledger.log_key).count == 0
        assert sealed_ids(store) == [record.record_id for record in records]
        head = store.head()
        assert head is not None
        assert head.sequence_number == 6
        assert store.lag().unsealed == 0
    assert ledger.verify().verdict.name == "INTACT"


def test_a_transaction_open_for_long_stalls_nothing_and_its_record_is_sealed_when_it_comes(ledger, each_postgres):
    late, *others = [ledger.record(b"text") for _ in range(5)]
    with ledger.store() as store, psycopg.connect(each_postgres.dsn) as elsewhere:
        elsewhere.execute("CREATE TEMP TABLE t (i int)")
        elsewhere.execute("SELECT pg_current_xact_id()")
        store.seal(ledger.log_key)
        slow = store_slowly(ledger, late)
        try:
            for other in others:
                store.append([other])
                assert store.seal(ledger.log_key).count == 1
            assert store.seal(ledger.log_key).count == 0
            lag = store.lag()
            assert lag.unsealed == 0
            assert lag.held_by is not None
            assert f"an open transaction with unseen records: pid {slow.info.backend_pid}" in lag.held_by
            assert f"database {slow.info.dbname}, open for " in lag.held_by
            slow.commit()
            assert [record_id for _, record_id in store.seal(ledger.log_key).entries] == [late.record_id]
        finally:
            slow.close()
        assert len(sealed_ids(store)) == 5


def test_a_rolled_back_record_leaves_no_trace(ledger):
    gone, kept = ledger.record(b"text"), ledger.record(b"text")
    with ledger.store() as store:
        store.seal(ledger.log_key)
        slow = store_slowly(ledger, gone)
        store.append([kept])
        store.seal(ledger.log_key)
        slow.rollback()
        slow.close()
        store.seal(ledger.log_key, full=True)
        assert sealed_ids(store) == [kept.record_id]


def test_a_pass_is_bounded_and_the_next_ones_go_on_where_it_stopped(ledger, monkeypatch):
    monkeypatch.setattr(seal, "PASS_LIMIT", 4)
    with ledger.store() as store:
        for full in (True, False):
            store.append([ledger.record(b"text") for _ in range(10)])
            assert [store.seal(ledger.log_key, full=full).count for _ in range(4)] == [4, 4, 2, 0]
    assert ledger.verify().verdict.name == "INTACT"


def test_a_full_pass_finds_records_with_foreign_transaction_ids(ledger):
    record = ledger.record(b"text")
    with ledger.store() as store:
        store.seal(ledger.log_key)
        ledger.sql(
            "INSERT INTO amfs_otel.record (xid, header, record_hash, signature, commitments) VALUES ('3', %s, %b, %b, %b)",
            record.header.decode(),
            record.record_hash,
            record.signature,
            b"".join(record.commitments),
        )
        assert store.seal(ledger.log_key).count == 0
        assert store.seal(ledger.log_key, full=True).count == 1
    with ledger.store() as store:
        assert sealed_ids(store) == [record.record_id]


def test_a_log_seals_only_its_own_records(ledger):
    other = Ledger(ledger.dsn, log="other")
    other.prepare()
    with ledger.store() as store, other.store() as other_store:
        store.append([ledger.record(b"text"), other.record(b"text")])
        assert store.seal(ledger.log_key).count == 1
        assert other_store.seal(other.log_key).count == 1
    assert ledger.verify().verdict.name == other.verify().verdict.name == "INTACT"


def test_a_key_that_the_log_did_not_announce_seals_nothing(ledger):
    stranger = new_key()
    with ledger.store() as store, pytest.raises(ConfigurationError, match="not announced"):
        store.seal(stranger)
    with ledger.store() as store:
        store.append([ledger.record(b"text")])
        for wrong in (stranger, ledger.writer_key):
            with pytest.raises(
                ConfigurationError, match=f"the log key {wrong.kid} is not announced by the log default"
            ):
                store.seal(wrong)
        assert store.seal(ledger.log_key).count == 1
        # Announced, and sealed by the old key: from here on the new one may seal, and the retired one may not.
        store.append([ledger.key_record("add", stranger.kid), ledger.key_record("retire", ledger.log_key.kid)])
        assert store.seal(ledger.log_key).count == 2
        store.append([ledger.record(b"text")])
        with pytest.raises(ConfigurationError, match="not announced"):
            store.seal(ledger.log_key)
        assert store.seal(stranger).count == 1
        states = {(key.kid, key.role): key.state for key in store.announced_keys()}
    assert states[stranger.kid, "log"] == "add"
    assert states[ledger.log_key.kid, "log"] == "retire"


def test_a_forged_key_record_does_not_stop_the_sealer(ledger):
    forged = ledger.key_record("revoke", ledger.log_key.kid)
    object.__setattr__(forged, "signature", bytes(32))
    with ledger.store() as store:
        store.append([forged])
        for _ in range(2):
            store.append([ledger.record(b"text")])
            assert store.seal(ledger.log_key, keys=KeyRing([ledger.writer_key])).count


def test_a_log_that_was_never_begun_is_not_sealed(ledger):
    other = Ledger(ledger.dsn, log="other")
    with other.store() as store:
        assert store.append([other.record(b"text")])[0].outcome == "stored"
        with pytest.raises(ConfigurationError, match="amfs-otel init --log other"):
            store.seal(other.log_key)


def test_a_record_that_cannot_be_trusted_keeps_its_place_and_is_reported(ledger):
    forged = Ledger(ledger.dsn, writer_key=new_key()).record(b"text")
    wrong_signature = ledger.record(b"text")
    object.__setattr__(wrong_signature, "signature", bytes(32))
    loose = ledger.record(b"text")
    header = loose.header.replace(b'"v":1', b'"v": 1')
    with ledger.store() as store:
        store.append([forged, wrong_signature])
        ledger.sql(
            "INSERT INTO amfs_otel.record (header, record_hash, signature, commitments)"
            " VALUES (%s, sha256('amfs-otel/v1/record\\000'::bytea || %b), %b, '')",
            header.decode(),
            header,
            loose.signature,
        )
        store.append([ledger.record(b"text")])
        sealed = store.seal(ledger.log_key, keys=KeyRing([ledger.writer_key]))
    assert sealed.count == 4
    assert [(finding.code, finding.sequence_number) for finding in sealed.suspects] == [
        ("BAD_SIGNATURE", 2),
        ("BAD_HEADER", 3),
    ]
    codes = {finding.code for finding in ledger.verify().findings}
    assert {"UNKNOWN_KEY", "BAD_SIGNATURE", "BAD_HEADER"} <= codes


def test_nothing_is_sealed_on_top_of_a_damaged_head(ledger):
    ledger.sql("ALTER TABLE amfs_otel.entry DISABLE RULE entry_no_update, DISABLE TRIGGER ALL")
    ledger.sql("ALTER TABLE amfs_otel.entry DROP CONSTRAINT entry_hash_is_of_entry")
    ledger.sql("""UPDATE amfs_otel.entry SET entry = replace(entry, '"v":1', '"v":2')""")
    with ledger.store() as store:
        store.append([ledger.record(b"text")])
        with pytest.raises(StoreError, match="head of the log default is damaged"):
            store.seal(ledger.log_key)


def test_whoever_finds_the_lock_taken_returns_at_once_and_names_the_holder(ledger):
    with ledger.store() as store, psycopg.connect(ledger.dsn) as holder:
        store.append([ledger.record(b"text")])
        holder.execute("SELECT pg_advisory_xact_lock(%s, hashtext('default'))", (seal.LOCK_CLASS,))
        sealed = store.seal(ledger.log_key)
        assert sealed.count == 0
        assert sealed.held_by is not None
        assert f"another sealer: pid {holder.info.backend_pid}, database {holder.info.dbname}" in sealed.held_by
        holder.rollback()
        assert store.seal(ledger.log_key).count == 1


def test_the_time_of_sealing_never_goes_back(ledger, monkeypatch):
    with ledger.store() as store:
        store.append([ledger.record(b"text")])
        store.seal(ledger.log_key)
        monkeypatch.setattr(seal, "NOW", "'2001-01-01T00:00:00.000000Z'")
        store.append([ledger.record(b"text")])
        store.seal(ledger.log_key)
        times = [stored.entry.sealed_at for stored in store.stored_entries()]
    assert times == sorted(times)
    assert times[2] == times[1]


SEALER = """
import sys, threading
from amfs_otel.chain.keys import Key
from amfs_otel.store.postgres import Store
total, told = 0, threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
with Store.connect(sys.argv[1], "default") as store:
    key = Key(bytes.fromhex(sys.argv[2]))
    while not told.is_set():
        total += store.seal(key).count
    while count := store.seal(key, full=True).count:
        total += count
print(total)
"""


def test_competing_sealers_and_writers_make_one_chain(ledger):
    command = [sys.executable, "-c", SEALER, ledger.dsn, ledger.log_key.secret.hex()]
    sealers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    records = [ledger.record(b"text") for _ in range(150)]

    def write(mine):
        with ledger.store() as store:
            for start in range(0, len(mine), 3):
                store.append(mine[start : start + 3])

    writers = [threading.Thread(target=write, args=(records[number::3],)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sum(int(sealer.communicate(timeout=60)[0]) for sealer in sealers) == 150
    with ledger.store() as store:
        assert sorted(sealed_ids(store)) == sorted(record.record_id for record in records)
    assert ledger.verify().verdict.name == "INTACT"


def test_a_server_killed_while_sealing_loses_and_doubles_nothing(own_server):
    ledger = Ledger(own_server.database())
    ledger.prepare()
    records = [ledger.record(b"text") for _ in range(120)]
    acknowledged: set[str] = set()
    sealed: list[str] = []
    done = threading.Event()

    def work():
        waiting = list(records)
        finished = False
        while not finished:
            try:
                with ledger.store() as store:
                    while True:
                        batch = waiting[:4]
                        answers = store.append(batch)
                        acknowledged.update(answer.record_id for answer in answers)
                        del waiting[: len(batch)]
                        found = store.seal(ledger.log_key, full=not batch)
                        sealed.extend(record_id for _, record_id in found.entries)
                        if not batch and not found.count:
                            break
                finished = len(sealed_now()) == len(records)
            except AmfsOtelError:
                time.sleep(0.02)
        done.set()

    def sealed_now():
        with ledger.store() as store:
            return sealed_ids(store)

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(3):
        time.sleep(0.15)
        own_server.cluster.stop("immediate")
        own_server.cluster.start()
    assert done.wait(timeout=90)
    worker.join()
    assert acknowledged == {record.record_id for record in records}
    assert sorted(sealed_now()) == sorted(record.record_id for record in records)
    assert len(sealed) == len(set(sealed))
    assert ledger.verify().verdict.name == "INTACT"


def test_a_database_restored_into_a_fresh_cluster_goes_on_sealing_everything(each_postgres, ledger):
    if each_postgres.binaries is None:
        not_run("dump and restore; AMFS_OTEL_TEST_DSN names a server whose pg_dump is not known here")
    # Push the transaction ids far ahead of those of a fresh cluster.
    with psycopg.connect(ledger.dsn, autocommit=True) as connection:
        for _ in range(300):
            connection.execute("SELECT pg_current_xact_id()")
    with ledger.store() as store:
        store.append([ledger.record(b"sealed") for _ in range(3)])
        store.seal(ledger.log_key)
        store.append([ledger.record(b"not sealed") for _ in range(4)])
    with running_server(each_postgres.binaries) as fresh:
        for role in ("owner", "writer", "sealer", "eraser", "verifier", "reader"):
            fresh.execute(f"CREATE ROLE amfs_otel_{role}")
        restored = Ledger(fresh.database(), writer_key=ledger.writer_key, log_key=ledger.log_key)
        copy_database(ledger.dsn, restored.dsn, each_postgres.binaries)
        assert restored.verify().checked.entries == 4
        new = [restored.record(b"after the restore") for _ in range(5)]
        with restored.store() as store:
            counts = []
            for record in new:
                store.append([record])
                counts.append(store.seal(restored.log_key).count)
            assert counts == [5, 1, 1, 1, 1]
            assert store.seal(restored.log_key, full=True).count == 0
            assert store.lag().unsealed == 0
            facts = {fact.code for fact in store.posture() if not fact.ok}
        assert facts <= {"SUPERUSER", "DURABILITY"}
        assert not restored.prepare().created
        verification = restored.verify()
        assert (verification.verdict.name, verification.checked.entries) == ("INTACT", 13)
        with pytest.raises(psycopg.errors.RestrictViolation):
            restored.sql("UPDATE amfs_otel.record SET signature = signature")
