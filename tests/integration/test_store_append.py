import dataclasses
import os
import threading

import psycopg
import pytest

from amfs_otel.chain.hashes import SIGNATURE_DOMAIN, record_hash
from amfs_otel.chain.record import Record, make_record
from amfs_otel.errors import ConfigurationError, StoreError, StoreUnavailable
from amfs_otel.store.postgres import Store


def outcomes(answers):
    return [answer.outcome for answer in answers]


def with_header(ledger, record, header) -> Record:
    """The record with another header, hashed and signed as if it were right."""
    digest = record_hash(header)
    return dataclasses.replace(
        record, header=header, record_hash=digest, signature=ledger.writer_key.sign(SIGNATURE_DOMAIN + digest)
    )


def test_what_was_stored_comes_back_byte_for_byte(ledger):
    records = [
        ledger.record(),
        ledger.record(b""),
        ledger.record(b"\x00\xff not text", "grüße 🦜".encode()),
        ledger.record(os.urandom(65537), b"x" * 65536, b"y" * 65537),
        ledger.record(*[b"%d" % number for number in range(300)]),
        make_record(
            kind="policy",
            log="default",
            record_id=ledger.record().record_id,
            session="0" * 32,
            parts=[],
            key=ledger.writer_key,
            captured_at_ns=1,
        ),
    ]
    with ledger.store() as store:
        assert outcomes(store.append(records)) == ["stored"] * len(records)
        for record in records:
            found = store.record(record.record_id)
            assert found is not None
            assert found.record == record
            assert found.entry is None
        while store.seal(ledger.log_key).count:
            pass
        read = [stored.record for stored in store.stored_entries(first=1)]
        assert read == records
        found = store.record(records[2].record_id)
        assert found is not None
        assert found.entry is not None
        assert found.entry.sequence_number == 3
    assert ledger.verify().verdict.name == "INTACT"


def test_eight_megabytes_in_one_part(one_ledger):
    record = one_ledger.record(os.urandom(8 << 20), b"small")
    with one_ledger.store() as store:
        assert outcomes(store.append([record])) == ["stored"]
        found = store.record(record.record_id)
    assert found is not None
    assert found.record == record


def test_the_same_record_again_changes_nothing(ledger):
    records = [ledger.record(b"text") for _ in range(3)]
    with ledger.store() as store:
        assert outcomes(store.append(records[:1])) == ["stored"]
        assert outcomes(store.append(records[:1])) == ["already"]
        assert outcomes(store.append(records)) == ["already", "stored", "stored"]
        assert outcomes(store.append([records[1], records[1]])) == ["already", "already"]
        new = ledger.record(b"text")
        assert outcomes(store.append([new, new])) == ["stored", "already"]
        assert store.append([]) == []
    assert ledger.sql("SELECT count(*) FROM amfs_otel.record") == [(5,)]


def test_another_record_under_a_stored_id_is_refused_with_the_reason(ledger):
    first = ledger.record(b"text")
    other_signature = dataclasses.replace(first, signature=bytes(32))
    other_content = make_record(
        kind="decision",
        log="default",
        record_id=first.record_id,
        session=first.session,
        parts=[],
        key=ledger.writer_key,
        captured_at_ns=1,
    )
    good = ledger.record(b"text")
    with ledger.store() as store:
        store.append([first])
        answers = store.append([other_signature, good, other_content])
    assert outcomes(answers) == ["refused", "stored", "refused"]
    assert answers[0].reason == "another signature stands under this record id"
    assert answers[2].reason == "another record stands under this record id"


def test_what_the_server_cannot_store_is_refused_and_the_rest_goes_on(ledger):
    base = ledger.record(b"secret text")
    bad = {
        "wrong hash": dataclasses.replace(base, record_hash=bytes(32)),
        "no JSON": with_header(ledger, base, b"not json"),
        "not UTF-8": with_header(ledger, base, b"\xff\xfe"),
        "a raw NUL": with_header(ledger, base, base.header.replace(b'"kind"', b'"ki\x00nd"')),
        "an escaped NUL": with_header(ledger, base, base.header.replace(b'"decision"', b'"\\u0000"')),
        "no id": with_header(ledger, base, base.header.replace(b'"id"', b'"no"')),
        "no such id": with_header(ledger, base, base.header.replace(base.record_id.encode(), b"seven")),
        "no log": with_header(ledger, base, base.header.replace(b'"log":"default",', b"")),
        "no signature": dataclasses.replace(base, signature=b""),
    }
    good = [ledger.record(b"text") for _ in range(len(bad))]
    with ledger.store() as store:
        for record in bad.values():
            alone = store.append([record])
            assert outcomes(alone) == ["refused"]
            assert alone[0].reason
            assert "secret" not in alone[0].reason
        mixed = [record for pair in zip(bad.values(), good, strict=True) for record in pair]
        assert outcomes(store.append(mixed)) == ["refused", "stored"] * len(bad)
    assert ledger.sql("SELECT count(*) FROM amfs_otel.record") == [(1 + len(good),)]
    assert ledger.sql("SELECT count(*) FROM amfs_otel.part WHERE record = %s", base.record_id) == [(0,)]


def test_many_writers_of_the_same_records_store_each_once(ledger):
    records = [ledger.record(b"text") for _ in range(20)]
    stored = []

    def write(start):
        with ledger.store() as store:
            for offset in range(0, 20, 5):
                batch = [records[(start + offset + index) % 20] for index in range(5)]
                stored.extend(answer for answer in store.append(batch) if answer.outcome == "stored")

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 3, 11, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.record_id for answer in stored) == sorted(record.record_id for record in records)
    assert ledger.sql("SELECT count(*) FROM amfs_otel.record") == [(21,)]


def test_an_unprepared_database_is_named_as_such(database):
    with Store.connect(database, "default") as store:
        assert not store.schema_state().present
        with pytest.raises(ConfigurationError, match="amfs-otel init"):
            store.seal(None)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="amfs-otel init"):
            store.head()
        assert [finding.code for finding in store.findings()] == ["EMPTY_STORE"]


def test_a_user_without_rights_is_told_which_it_lacks(one_ledger):
    with one_ledger.store(one_ledger.user()) as store, pytest.raises(StoreError, match=r"permission denied.*writer"):
        store.append([one_ledger.record(b"text")])
    with one_ledger.store(one_ledger.user("reader")) as store, pytest.raises(StoreError, match="permission denied"):
        store.append([one_ledger.record(b"text"), one_ledger.record(b"text")])
    # The function that stores a single one lends nobody its owner's rights.
    with one_ledger.store(one_ledger.user("reader")) as store, pytest.raises(StoreError, match="permission denied"):
        store.append([one_ledger.record(b"text")])


def test_a_schema_of_before_is_to_be_brought_forward(one_ledger):
    one_ledger.sql("DROP FUNCTION amfs_otel.store_record")
    with one_ledger.store() as store, pytest.raises(ConfigurationError, match="amfs-otel init"):
        store.append([one_ledger.record(b"text")])


def test_a_lost_connection_is_unavailable_and_repeating_is_safe(one_ledger):
    record = one_ledger.record(b"text")
    with one_ledger.store() as store:
        pid = store.connection.info.backend_pid
        store.append([record])
        one_ledger.sql("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(StoreUnavailable):
            store.append([record])
        assert not store.usable
    with one_ledger.store() as store:
        assert outcomes(store.append([record])) == ["already"]


def test_a_hanging_call_can_be_aborted_from_another_thread(one_ledger):
    with one_ledger.store() as store, psycopg.connect(one_ledger.dsn) as blocker:
        blocker.execute("LOCK TABLE amfs_otel.record IN ACCESS EXCLUSIVE MODE")
        timer = threading.Timer(0.3, store.abort)
        timer.start()
        with pytest.raises(StoreUnavailable):
            store.append([one_ledger.record(b"text")])
        timer.join()


def test_a_store_is_not_used_across_a_fork(one_ledger):
    with one_ledger.store() as store:
        child = os.fork()
        if child == 0:
            try:
                store.head()
            except StoreError:
                store.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert store.head() is not None
