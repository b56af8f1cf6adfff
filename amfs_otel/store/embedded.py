"""The local store's own PostgreSQL server: made on first use, shared by every process, stopped when idle.

Only the CLI and ``drain`` come here; an agent spools and starts nothing. Layout of the server's home::

    lock          flock: one process at a time makes, starts or stops the server
    used          its time is the last use; ten idle minutes later the watcher stops the server
    watch.lock    flock: held by the watcher while it lives
    data/         the cluster
    server.log

The home is ``<state directory>/postgres``; for root, whose server runs under another account,
``/var/lib/amfs-otel/<16 hex of the state directory>``. The socket lies in a short private directory under ``/run`` or
``/tmp``. There is no TCP, and no password: who may enter the socket's directory may connect.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

from amfs_otel.errors import ConfigurationError, StoreUnavailable
from amfs_otel.store.account import private_directory, server_account
from amfs_otel.store.binaries import find_binaries, reachable
from amfs_otel.store.cluster import START_LIMIT_S, Cluster, owned_file, recorded_sockets, runs_over
from amfs_otel.store.home import ROOT_HOME, cluster_version, home_of, name_of

ROOT_SOCKETS = (Path("/run") if Path("/run").is_dir() else Path("/tmp")) / "amfs-otel"  # noqa: S108  (owner is checked)
IDLE_LIMIT_S = 600.0
LOG_LIMIT_BYTES = 4 << 20

__all__ = ["EmbeddedServer", "find_binaries"]


class EmbeddedServer:
    """The server of one state directory.

    Safe to use from several processes at once. Holds no connection and no descriptor between calls, so it may cross a
    fork.

    Args:
        state_dir: The state directory; it exists and is private to its owner.
        binaries_dir: A directory with PostgreSQL programs that comes before all others.
        idle_limit_s: Seconds without a session after which the server is stopped.
    """

    def __init__(
        self, state_dir: Path, *, binaries_dir: Path | None = None, idle_limit_s: float = IDLE_LIMIT_S
    ) -> None:
        self.state_dir = state_dir
        self.binaries_dir = binaries_dir
        self.idle_limit_s = idle_limit_s
        self._name = name_of(state_dir)
        self._account = server_account()
        self.home = home_of(state_dir)

    def exists(self) -> bool:
        """Say whether a local store was ever made here. Starts nothing."""
        return cluster_version(self.home / "data") is not None

    def ensure(self, *, create: bool = True) -> str | None:
        """Attach to the server, start it, or make it, and return its connection string.

        Attaching costs one connection; a start some tenths of a second; making a cluster one to three seconds.

        Args:
            create: ``False`` makes no cluster; where there is none, the answer is ``None``.

        Raises:
            ConfigurationError: No usable programs, or none of the version that made the data.
            StoreUnavailable: It does not answer within 60 s.
            StoreError: It refuses to start, or initdb failed.
        """
        if not create and not self.exists():
            return None
        self._prepare_home()
        with self._locked():
            cluster = self._cluster()
            if not self.exists():
                cluster.initialise()
            if cluster.answer() != "up":
                self._rotate_log(cluster.log)
                watcher = self._watcher()
                cluster.start()
            else:
                watcher = self._watcher()
            self._touch()
            if watcher is not None:
                watcher.wait()
        return cluster.dsn

    def stop(self) -> None:
        """Stop the server if it runs. The data stays; the next use starts it again."""
        if runs_over(self.home / "data"):
            with self._locked():
                self._cluster().stop()

    def remove(self) -> None:
        """Stop the server and delete everything it holds. The caller has asked the person before."""
        self.stop()
        sockets = self._socket_directory()
        with self._locked() if self.home.exists() else contextlib.nullcontext():
            for path in (self.home, sockets):
                if path.exists():
                    shutil.rmtree(private_directory(path, self._account))

    def stop_when_idle(self) -> bool:
        """Stop the server if nobody used it for ``idle_limit_s`` and no session is open; say whether it is gone.

        What the watcher calls again and again. An open session counts as use.
        """
        if not self._is_running():
            return True
        if self._idle_s() < self.idle_limit_s:
            return False
        with self._locked():
            if not self._is_running():
                return True
            cluster = self._cluster()
            if self._idle_s() < self.idle_limit_s:
                return False
            if _sessions(cluster.dsn):
                self._touch()
                return False
            cluster.stop()
        return True

    @contextlib.contextmanager
    def watching(self) -> Generator[bool]:
        """Hold the watcher's lock; gives ``False`` where another watcher holds it."""
        with (self.home / "watch.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    def _prepare_home(self) -> None:
        if self._account is not None:
            _traversable(ROOT_HOME)
        private_directory(self.home, self._account)
        for name in ("lock", "used", "watch.lock"):
            (self.home / name).touch(mode=0o600)

    def _cluster(self) -> Cluster:
        data = self.home / "data"
        binaries = find_binaries(self.binaries_dir, major=cluster_version(data))
        if self._account is not None:
            binaries = reachable(binaries, self._account, _traversable(ROOT_HOME / "programs"))
        sockets = private_directory(self._socket_directory(), self._account)
        log = owned_file(self.home / "server.log", self._account)
        return Cluster(binaries, data, sockets, log, self._account)

    def _socket_directory(self) -> Path:
        # Where the running server listens, though another session of the user would choose another place.
        recorded = recorded_sockets(self.home / "data")
        if recorded is not None and recorded.is_dir():
            return recorded
        if self._account is not None:
            return _traversable(ROOT_SOCKETS) / self._name
        runtime = Path(f"/run/user/{os.geteuid()}")
        place = runtime if os.access(runtime, os.W_OK) else Path("/tmp")  # noqa: S108  (owner and mode are checked)
        return place / f"amfs-otel-{self._name}"

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """Hold the home's lock. Whoever starts a server holds it at most for the start limit."""
        deadline = time.monotonic() + START_LIMIT_S + 10
        with (self.home / "lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise StoreUnavailable(
                            "another process has been starting or stopping the local server for too long",
                            where=str(self.home / "lock"),
                        ) from None
                    time.sleep(0.02)
            yield

    def _is_running(self) -> bool:
        """Say whether a server was started and not stopped; one that crashed counts."""
        return (self.home / "data" / "postmaster.pid").exists()

    def _touch(self) -> None:
        os.utime(self.home / "used")

    def _idle_s(self) -> float:
        return time.time() - (self.home / "used").stat().st_mtime

    def _rotate_log(self, log: Path) -> None:
        if log.stat().st_size > LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(".log.1"))
            owned_file(log, self._account)

    def _watcher(self) -> "subprocess.Popen[bytes] | None":
        """Start the watcher unless one lives. It detaches itself, so the process returned here ends at once."""
        with self.watching() as nobody_watches:
            if not nobody_watches or not sys.executable:
                return None
        code = (
            "import sys; sys.path[:] = sys.argv[1].split(':'); from amfs_otel.store.embedded_watch import main; main()"
        )
        path = ":".join(filter(None, sys.path))
        arguments = [path, os.path.realpath(self.state_dir), str(self.binaries_dir or ""), str(self.idle_limit_s)]
        # Our module path, but -I: no sitecustomize of the caller's, which would instrument the watcher.
        return subprocess.Popen(  # noqa: S603  (this interpreter, our own module)
            [sys.executable, "-I", "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )


def _sessions(dsn: str) -> int:
    """Count the client sessions besides our own; a server that does not answer has none."""
    import psycopg

    query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    try:
        with psycopg.connect(dsn, connect_timeout=5) as connection:
            row = connection.execute(query).fetchone()
    except psycopg.OperationalError:
        return 0
    return row[0] if row else 0


def _traversable(path: Path) -> Path:
    """Make a directory of root that other accounts can pass through but not list."""
    try:
        path.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot be made ({error.strerror})", where=str(path)) from None
    if path.stat().st_uid != os.geteuid() or path.is_symlink():
        raise ConfigurationError("belongs to somebody else", where=str(path), hint="Remove it.")
    return path
