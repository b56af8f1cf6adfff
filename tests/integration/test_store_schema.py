from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from amfs_otel.chain.findings import Verdict
from amfs_otel.errors import ConfigurationError, KeyUnavailable
from amfs_otel.store import schema
from amfs_otel.store.connect import connect
from amfs_otel.store.schema import Migration, migrations, prepare, state_of
from tests.integration.ledgers import Ledger, new_key
from tests.integration.postgres_servers import available_binaries, running_server


def contents(ledger):
    return ledger.sql(
        "SELECT (SELECT count(*) FROM amfs_otel.record), (SELECT count(*) FROM amfs_otel.entry),"
        " (SELECT max(xid::text) FROM amfs_otel.record), (SELECT array_agg(applied_at) FROM amfs_otel.schema_migration)"
    )


def test_a_fresh_database_gets_schema_and_genesis(each_database):
    ledger = Ledger(each_database)
    prepared = ledger.prepare()
    assert prepared.created
    assert prepared.notes == []
    assert ledger.sql("SELECT sequence_number FROM amfs_otel.entry") == [(0,)]
    with ledger.store() as store:
        state = store.schema_state()
        assert (state.present, state.version, state.outdated) == (True, migrations()[-1].number, False)
        assert store.log_uid() == prepared.log_uid
        assert store.logs() == ["default"]
    assert ledger.verify().verdict is Verdict.INTACT


def test_preparing_again_changes_nothing(ledger):
    before = contents(ledger)
    again = ledger.prepare()
    assert not again.created
    assert contents(ledger) == before
    with_no_keys = prepare(ledger.dsn, log="default", writer_key=None, log_key=None, now_ns=1)
    assert (with_no_keys.created, with_no_keys.log_uid) == (False, again.log_uid)
    assert contents(ledger) == before


def test_several_preparations_at_once_make_one_log(each_database):
    ledger = Ledger(each_database)
    with ThreadPoolExecutor(3) as pool:
        prepared = list(pool.map(lambda _: ledger.prepare(), range(3)))
    assert sorted(one.created for one in prepared) == [False, False, True]
    assert len({one.log_uid for one in prepared}) == 1


def test_a_second_log_lives_beside_the_first(ledger):
    other = Ledger(ledger.dsn, log="other")
    assert other.prepare().created
    with ledger.store() as store:
        assert store.logs() == ["default", "other"]
    assert ledger.verify().verdict is other.verify().verdict is Verdict.INTACT


def test_a_new_log_needs_its_keys_and_none_is_invented(database):
    with pytest.raises(KeyUnavailable, match="log key: the log default is new"):
        prepare(database, log="default", writer_key=new_key(), log_key=None, now_ns=1)
    with connect(database) as connection:
        assert not state_of(connection).present


def test_keys_that_the_log_does_not_announce_are_named(one_ledger):
    stranger = new_key()
    notes = prepare(one_ledger.dsn, log="default", writer_key=stranger, log_key=None, now_ns=1).notes
    assert len(notes) == 1
    assert stranger.kid in notes[0]
    assert one_ledger.writer_key.kid in notes[0]


def test_somebody_elses_schema_is_left_alone(database):
    ledger = Ledger(database)
    ledger.sql("CREATE SCHEMA amfs_otel CREATE TABLE mine (i int)")
    with connect(database) as connection:
        assert state_of(connection).foreign
    with pytest.raises(ConfigurationError, match="this library did not make"):
        ledger.prepare()
    assert ledger.sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'amfs_otel'::regnamespace") == [(1,)]


def test_an_empty_schema_made_by_an_administrator_is_used(database):
    ledger = Ledger(database)
    ledger.sql("CREATE SCHEMA amfs_otel")
    assert ledger.prepare().created


def test_a_schema_from_the_future_is_refused(one_ledger):
    one_ledger.sql("INSERT INTO amfs_otel.schema_migration VALUES (9999, 'later', '')")
    with pytest.raises(ConfigurationError, match="newer version of amfs-otel"):
        one_ledger.prepare()


def test_an_older_schema_is_brought_forward(one_ledger, monkeypatch):
    later = Migration(9000, "later", "CREATE TABLE amfs_otel.later (i int)")
    monkeypatch.setattr(schema, "migrations", lambda: (*migrations(), later))
    with one_ledger.store() as store:
        assert store.schema_state().outdated
    assert not one_ledger.prepare().created
    with one_ledger.store() as store:
        assert store.schema_state().version == 9000
    assert one_ledger.sql("SELECT sha256 FROM amfs_otel.schema_migration WHERE number = 9000") == [(later.sha256,)]
    assert one_ledger.sql("SELECT has_table_privilege('amfs_otel_reader', 'amfs_otel.later', 'SELECT')") == [(True,)]
    assert one_ledger.sql("SELECT has_table_privilege('amfs_otel_sealer', 'amfs_otel.later', 'UPDATE')") == [(True,)]


def test_a_failing_preparation_leaves_nothing(database, monkeypatch):
    broken = Migration(9000, "broken", "SELECT 1/0")
    monkeypatch.setattr(schema, "migrations", lambda: (*migrations(), broken))
    ledger = Ledger(database)
    with pytest.raises(Exception, match="division by zero"):
        ledger.prepare()
    assert ledger.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'amfs_otel'") == [(0,)]


def test_an_old_server_is_refused(database, monkeypatch):
    monkeypatch.setattr("amfs_otel.store.connect.OLDEST_SERVER", 990000)
    with pytest.raises(ConfigurationError, match="too old; expected version 99 or newer, got 1"):
        Ledger(database).prepare()


def test_another_encoding_is_refused(postgres):
    dsn = postgres.database(options="ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(ConfigurationError, match="another encoding; expected UTF8, got LATIN1"):
        Ledger(dsn).prepare()


def test_a_plain_user_prepares_what_it_may_and_says_what_is_missing(own_server):
    dsn = own_server.database()
    admin = Ledger(dsn)
    admin.sql("CREATE ROLE plain LOGIN")
    admin.sql(f"GRANT CREATE ON DATABASE {psycopg.conninfo.conninfo_to_dict(dsn)['dbname']} TO plain")
    ledger = Ledger(psycopg.conninfo.make_conninfo(dsn, user="plain"))
    prepared = ledger.prepare()
    assert prepared.created
    assert any("may not create roles" in note for note in prepared.notes)
    with ledger.store() as store:
        store.append([ledger.record(b"text")])
        assert store.seal(ledger.log_key).count == 1
        facts = {fact.code: fact for fact in store.posture()}
    assert not facts["OWNER"].ok
    assert not facts["ROLES"].ok
    assert facts["RULES"].ok
    assert ledger.verify().verdict is Verdict.INTACT
    # An administrator makes the roles later: they get their rights, the log stays as it is.
    again = prepare(dsn, log="default", writer_key=None, log_key=None, now_ns=1)
    assert (again.created, again.log_uid) == (False, prepared.log_uid)
    assert ledger.sql("SELECT has_column_privilege('amfs_otel_writer', 'amfs_otel.record', 'header', 'INSERT')") == [
        (True,)
    ]


@pytest.mark.parametrize("binaries", available_binaries(), ids=lambda one: f"pg{one.major}")
def test_a_maker_of_roles_is_no_member_of_the_owner_afterwards(binaries):
    with running_server(binaries) as server:
        dsn = server.database()
        admin = Ledger(dsn)
        admin.sql("CREATE ROLE maker LOGIN CREATEROLE")
        admin.sql(f"GRANT CREATE ON DATABASE {psycopg.conninfo.conninfo_to_dict(dsn)['dbname']} TO maker")
        ledger = Ledger(psycopg.conninfo.make_conninfo(dsn, user="maker"))
        assert ledger.prepare().notes == []
        assert ledger.sql("SELECT tableowner FROM pg_tables WHERE tablename = 'record'") == [("amfs_otel_owner",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ledger.sql("ALTER TABLE amfs_otel.record DISABLE RULE record_no_update")
        with ledger.store() as store:
            store.append([ledger.record(b"text")])
            assert store.seal(ledger.log_key).count == 1
        assert not ledger.prepare().created
        assert ledger.verify().verdict is Verdict.INTACT


def test_a_user_without_any_right_is_told_so(own_server):
    dsn = own_server.database()
    Ledger(dsn).sql("CREATE ROLE nothing LOGIN")
    with pytest.raises(Exception, match="may not create a schema"):
        Ledger(psycopg.conninfo.make_conninfo(dsn, user="nothing")).prepare()
