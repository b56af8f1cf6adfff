"""Programs with a database: prepared, dead, hanging, strange, back again. Everything arrives exactly once."""

import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from amfs_otel.drain.deliver import Courier
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory
from amfs_otel.store.destination import destination_of
from tests.integration.ledgers import Ledger
from tests.support.programs import ROOT, Ran, finished, ran, started
from tests.support.spooled import all_bytes, spooled, statuses


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def keyed(ledger: Ledger, *, log: bool = True) -> dict[str, str]:
    """The settings of an agent of this log."""
    found = {"AMFS_OTEL_DSN": ledger.dsn, "AMFS_OTEL_SIGNING_KEY": f"hex:{ledger.writer_key.secret.hex()}"}
    return {**found, "AMFS_OTEL_LOG_KEY": f"hex:{ledger.log_key.secret.hex()}"} if log else found


def drain(ledger: Ledger, state: Path, key: object = "own") -> None:
    """What `amfs-otel drain` does: other processes' files, then sealing."""
    settings = Settings(state_dir=state, dsn=ledger.dsn)
    courier = Courier(
        settings,
        StateDirectory(state),
        destination_of(ledger.dsn, ledger.log),
        ledger.writer_key if key == "own" else None,
    )
    with ledger.store() as store:
        courier.deliver(store)
        while store.seal(ledger.log_key).count:
            pass


def stored(ledger: Ledger) -> list[tuple[str, str]]:
    """(kind, closed by) of each stored record of an agent, oldest first."""
    rows = ledger.sql(
        "SELECT r.kind, convert_from(p.bytes, 'UTF8') FROM amfs_otel.record r"
        " JOIN amfs_otel.part p ON p.record = r.id AND p.number = 1 WHERE r.kind <> 'genesis' ORDER BY r.id"
    )
    return [(kind, json.loads(skeleton).get("closed_by", "")) for kind, skeleton in rows]


def sealed(ledger: Ledger) -> int:
    """Entries beside that of the genesis."""
    return ledger.sql("SELECT count(*) FROM amfs_otel.entry")[0][0] - 1


THREE = "for n in range(3):\n    with api.session('agent'): tool()\nprint(amfs_otel.flush())\ntool()\nended()"


def test_a_process_delivers_and_seals_for_itself(state: Path, one_ledger: Ledger) -> None:
    done = ran(THREE, state, **keyed(one_ledger))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("True")
    assert [kind for kind, _ in stored(one_ledger)] == ["decision"] * 4
    assert sealed(one_ledger) == 4
    assert one_ledger.verify().verdict.name == "INTACT"
    assert statuses(state)[0]["stored"] == 4


def test_without_the_log_key_records_are_stored_and_wait(state: Path, one_ledger: Ledger) -> None:
    done = ran(THREE, state, **keyed(one_ledger, log=False))
    assert (done.code, done.err) == (0, "")
    assert len(stored(one_ledger)) == 4
    assert sealed(one_ledger) == 0


NO_THREAD = """
start = threading.Thread.start
def refusing(thread):
    if thread.name == "amfs-otel-drain":
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)
threading.Thread.start = refusing
tool()
"""
"""A program that ends before our thread asks for another: CPython 3.12.0 and .1 refuse it then."""


def test_where_no_thread_can_be_started_any_more_the_exit_delivers(state: Path, one_ledger: Ledger) -> None:
    done = ran(NO_THREAD, state, **keyed(one_ledger))
    assert (done.code, done.err) == (0, "")
    assert len(stored(one_ledger)) == sealed(one_ledger) == 1


def test_where_no_thread_can_be_started_a_dead_database_is_one_line(state: Path, one_ledger: Ledger) -> None:
    dead = {**keyed(one_ledger), "AMFS_OTEL_DSN": f"postgresql://agent@127.0.0.1:{unused_port()}/log"}
    done = ran(NO_THREAD, state, **dead)
    assert done.code == 0
    assert [line for line in done.err.splitlines() if "they wait in the spool" not in line] == []
    assert len(spooled(state)) == 1


def test_what_was_delivered_is_not_delivered_again(state: Path, one_ledger: Ledger) -> None:
    for _ in range(2):
        ran(THREE, state, **keyed(one_ledger))
    drain(one_ledger, state)
    drain(one_ledger, state)
    assert len(stored(one_ledger)) == sealed(one_ledger) == 8
    assert one_ledger.verify().verdict.name == "INTACT"


# -- dead databases ------------------------------------------------------------------------------------------------


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield int(listener.getsockname()[1])


def at(ledger: Ledger, port: int, password: str = "pass-canary") -> str:
    """The ledger's log at another port."""
    name = psycopg.conninfo.conninfo_to_dict(ledger.dsn)["dbname"]
    return f"postgresql://agent:{password}@127.0.0.1:{port}/{name}"


def as_nobody(ledger: Ledger) -> str:
    """The same store for a user that it does not know."""
    return psycopg.conninfo.make_conninfo(ledger.dsn, user=f"nobody_{secrets.token_hex(3)}", password="pass-canary")


CALLS = """
began = time.perf_counter()
worst = 0
for n in range(100):
    one = time.perf_counter()
    with api.session('agent'): tool()
    worst = max(worst, time.perf_counter() - one)
    time.sleep(0.005)
print("worst", worst, flush=True)
ended()
"""


def worst_call_s(done: Ran) -> float:
    found = re.search("worst ([0-9.e-]+)", done.out)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("how", ["refused", "hanging"])
def test_a_dead_database_costs_no_call_and_two_seconds_at_the_end(state: Path, one_ledger: Ledger, how: str) -> None:
    with black_hole() as hole:
        dsn = at(one_ledger, unused_port() if how == "refused" else hole)
        done = ran(CALLS, state, **{**keyed(one_ledger), "AMFS_OTEL_DSN": dsn})
    assert done.code == 0
    assert done.exit_s < 2.8, "two seconds, and those of a busy machine"
    assert worst_call_s(done) < 0.5
    assert done.err.count("amfs-otel:") == 1, done.err
    assert "the database does not take records; they wait in the spool" in done.err
    assert "canary" not in done.err
    assert "Traceback" not in done.err
    assert len(spooled(state)) == 100
    assert b"pass-canary" not in all_bytes(state)


def test_a_database_that_comes_back_gets_everything_once(state: Path, one_ledger: Ledger) -> None:
    """Spooled under one password and delivered under another: the destination is the same store."""
    wrong = as_nobody(one_ledger)
    for _ in range(2):
        done = ran(THREE, state, **{**keyed(one_ledger), "AMFS_OTEL_DSN": wrong})
        assert done.code == 0
        assert "pass-canary" not in done.err + done.out
    assert stored(one_ledger) == []
    ran(THREE, state, **keyed(one_ledger))
    drain(one_ledger, state)
    assert len(stored(one_ledger)) == sealed(one_ledger) == 12
    assert one_ledger.verify().verdict.name == "INTACT"
    assert b"pass-canary" not in all_bytes(state)


def test_a_server_killed_in_between_gets_everything_once(state: Path, own_server) -> None:
    ledger = own_server.prepared_copy()
    process = started(
        """
        for n in range(200):
            with api.session("agent"): tool()
            time.sleep(0.01)
            if n == 50: ended("half")
        sys.stdin.readline()
        print(amfs_otel.flush(20))
        """,
        state,
        **keyed(ledger),
    )
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    own_server.cluster.stop("immediate")
    time.sleep(0.5)
    own_server.cluster.start()
    process.stdin.write("\n")
    process.stdin.flush()
    done = finished(process)
    assert (done.code, done.out.strip()) == (0, "True")
    assert "Traceback" not in done.err
    drain(ledger, state)
    assert len(stored(ledger)) == sealed(ledger) == 200
    assert ledger.verify().verdict.name == "INTACT"


# -- strange databases ---------------------------------------------------------------------------------------------


def test_an_unprepared_database_is_one_warning_and_a_spool(state: Path, database: str) -> None:
    done = ran(THREE, state, AMFS_OTEL_DSN=database, AMFS_OTEL_SIGNING_KEY=f"hex:{'ab' * 32}")
    assert done.code == 0
    assert done.err.count("amfs-otel") - done.err.count("`amfs-otel init`") == 1, done.err
    assert "amfs-otel init" in done.err
    assert len(spooled(state)) == 4
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'amfs_otel'").fetchone() == (0,)


def test_somebody_elses_database_is_left_alone(state: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA amfs_otel; CREATE TABLE amfs_otel.record (id int)")
    done = ran(THREE, state, AMFS_OTEL_DSN=database, AMFS_OTEL_SIGNING_KEY=f"hex:{'ab' * 32}")
    assert done.code == 0
    assert "Traceback" not in done.err
    assert "amfs-otel" in done.err
    assert len(spooled(state)) == 4
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM amfs_otel.record").fetchone() == (0,)


def test_an_older_schema_of_ours_is_one_warning_and_a_spool(state: Path, one_ledger: Ledger) -> None:
    one_ledger.sql("CREATE TABLE kept AS SELECT * FROM amfs_otel.schema_migration")
    one_ledger.sql("DELETE FROM amfs_otel.schema_migration WHERE number > 1")
    done = ran(THREE, state, **keyed(one_ledger))
    assert done.code == 0
    assert "older" in done.err
    assert "amfs-otel init" in done.err
    assert len(spooled(state)) == 4
    assert stored(one_ledger) == []
    one_ledger.sql("INSERT INTO amfs_otel.schema_migration SELECT * FROM kept WHERE number > 1")
    drain(one_ledger, state)
    assert len(stored(one_ledger)) == sealed(one_ledger) == 4


def test_the_fallback_dsn_is_used_only_where_our_schema_is(state: Path, one_ledger: Ledger, database: str) -> None:
    keys = keyed(one_ledger)
    keys.pop("AMFS_OTEL_DSN")
    done = ran(THREE, state / "a", AMFS_POSTGRES_DSN=one_ledger.dsn, **keys)
    assert (done.code, done.err) == (0, "")
    assert len(stored(one_ledger)) == 4
    done = ran(THREE, state / "b", AMFS_POSTGRES_DSN=database, **keys)
    assert (done.code, done.err) == (0, "")
    assert len(spooled(state / "b", "local")) == 4
    done = ran(THREE, state / "c", AMFS_POSTGRES_DSN=database)
    assert (done.code, done.err) == (0, ""), "no key is missing: a development key serves the local store"
    assert len(spooled(state / "c", "local")) == 4


def test_a_user_with_nothing_but_the_writers_role_delivers(state: Path, one_ledger: Ledger) -> None:
    keys = keyed(one_ledger, log=False) | {"AMFS_OTEL_DSN": one_ledger.user("writer")}
    done = ran(THREE, state, **keys)
    assert (done.code, done.err) == (0, "")
    assert len(stored(one_ledger)) == 4
    assert sealed(one_ledger) == 0


# -- keys ----------------------------------------------------------------------------------------------------------


def test_without_a_key_the_journal_waits_for_a_process_that_has_one(state: Path, one_ledger: Ledger) -> None:
    done = ran(THREE, state, AMFS_OTEL_DSN=one_ledger.dsn)
    assert done.code == 0
    assert done.err.count("amfs-otel:") == 1
    assert spooled(state) == []
    drain(one_ledger, state, key=None)
    assert stored(one_ledger) == []
    drain(one_ledger, state)
    assert [by for _, by in stored(one_ledger)] == ["session_end"] * 3 + ["exit"]
    assert one_ledger.verify().verdict.name == "INTACT"
    assert not list(state.rglob("*journal*")), "all its windows are records now"


@pytest.mark.parametrize("key", ["hex:" + "ab" * 8, "not a key", "base64:????"])
def test_a_key_that_is_none_is_named_and_the_journal_waits(state: Path, one_ledger: Ledger, key: str) -> None:
    done = ran(THREE, state, AMFS_OTEL_DSN=one_ledger.dsn, AMFS_OTEL_SIGNING_KEY=key)
    assert done.code == 0
    assert "AMFS_OTEL_SIGNING_KEY" in done.err
    assert key not in done.err
    assert "Traceback" not in done.err
    drain(one_ledger, state)
    assert len(stored(one_ledger)) == 4


def test_another_log_key_than_the_log_announced_seals_nothing(state: Path, one_ledger: Ledger) -> None:
    done = ran(THREE, state, **{**keyed(one_ledger), "AMFS_OTEL_LOG_KEY": f"hex:{'cd' * 32}"})
    assert done.code == 0
    assert "Traceback" not in done.err
    assert done.err.count("not sealed") == 1
    assert done.out.startswith("True"), "what could be done was done"
    assert len(stored(one_ledger)) == 4
    assert sealed(one_ledger) == 0


def test_a_file_that_cannot_be_read_keeps_nobody_else_waiting(state: Path, one_ledger: Ledger) -> None:
    ran(THREE, state, **{**keyed(one_ledger), "AMFS_OTEL_DSN": as_nobody(one_ledger)})
    (segment,) = state.rglob("*records*")
    segment.rename(segment.with_suffix(".away"))
    segment.mkdir()
    done = ran(THREE, state, **keyed(one_ledger))
    assert done.code == 0
    assert done.err.count("amfs-otel") == 1
    assert len(stored(one_ledger)) == sealed(one_ledger) == 4
    segment.rmdir()
    segment.with_suffix(".away").rename(segment)
    drain(one_ledger, state)
    assert len(stored(one_ledger)) == sealed(one_ledger) == 8


NO_LIBPQ = """
import ctypes.util
real = ctypes.util.find_library
ctypes.util.find_library = lambda name: None if "pq" in name else real(name)
"""


def test_without_a_libpq_the_records_wait(state: Path, tmp_path: Path, one_ledger: Ledger) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_LIBPQ)
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "instrumentation")])
    done = ran(THREE, state, **keyed(one_ledger), PSYCOPG_IMPL="python", PYTHONPATH=path)
    assert (done.code, done.out[:5]) == (0, "False")
    assert "Traceback" not in done.err
    assert "they wait in the spool" in done.err
    assert "psycopg finds no libpq" in done.err
    assert "pip install 'psycopg[binary]'" in done.err
    assert "internal error" not in done.err
    assert len([one for one in spooled(state) if one.kind == "decision"]) == 4
    assert stored(one_ledger) == []
    drain(one_ledger, state)
    assert len(stored(one_ledger)) == sealed(one_ledger) == 4


# -- dead processes ------------------------------------------------------------------------------------------------

ROUNDS = """
import random
import amfs_otel.drain.deliver, amfs_otel.drain.sealing
dice = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
for number in range(50):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        killed = begun("killed", capture.handle_session("amfs", f"killed-{number}", None))
        amfs_otel.flush()
        count = 0
        while True:
            with api.session(f"agent-{number}"):
                tool()
                api.outcome(f"{number}-{count}", "success")
            pipeline.current().worker.spool_now(5)
            os.write(writer, f"{number}-{count}\\n".encode())
            count += 1
    os.close(writer)
    told = os.read(reader, 100)
    time.sleep(dice.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    while piece := os.read(reader, 1 << 16):
        told += piece
    os.close(reader)
    sys.stdout.write(told.decode())
"""


def test_fifty_kills_lose_and_double_nothing_and_leave_the_killed_step(state: Path, one_ledger: Ledger) -> None:
    done = ran(ROUNDS, state, **{**keyed(one_ledger), "AMFS_OTEL_DSN": as_nobody(one_ledger)})
    assert done.code == 0, done.err
    acknowledged = set(done.out.split())
    assert len(acknowledged) >= 50
    adopters = [threading.Thread(target=drain, args=(one_ledger, state)) for _ in range(2)]
    for adopter in adopters:
        adopter.start()
    for adopter in adopters:
        adopter.join()
    drain(one_ledger, state)
    rows = one_ledger.sql(
        "SELECT convert_from(s.bytes, 'UTF8'), convert_from(n.bytes, 'UTF8') FROM amfs_otel.record r"
        " JOIN amfs_otel.part s ON s.record = r.id AND s.number = 1"
        " JOIN amfs_otel.part n ON n.record = r.id AND n.number = 2 WHERE r.kind = 'decision'"
    )
    found: list[str] = []
    killed: set[str] = set()
    for skeleton, names in rows:
        facts = json.loads(skeleton)
        words = json.loads(names)
        found += [word for word in words if re.fullmatch(r"\d+-\d+", word)]
        if facts["status"] == "interrupted":
            open_steps = [event for event in facts["events"] if event["status"] == "incomplete"]
            killed |= {word for word in words if word.startswith("killed-") and open_steps}
            assert "adopted_from" in facts
    assert len(found) == len(set(found)), "nothing doubled"
    assert acknowledged <= set(found), "nothing acknowledged lost"
    assert killed == {f"killed-{number}" for number in range(50)}
    assert one_ledger.verify().verdict.name == "INTACT"
    assert sealed(one_ledger) == len(stored(one_ledger))
