"""One PostgreSQL data directory and the server over it, reachable through a Unix socket only.

Liveness is a connection, never a process id: a killed server that nobody has reaped still has one, and after a reboot
of a container the same number belongs to somebody else.
"""

import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amfs_otel.errors import ConfigurationError, StoreError, StoreUnavailable
from amfs_otel.store.account import Account, own, run_as
from amfs_otel.store.binaries import Binaries

START_LIMIT_S = 60.0
SUPERUSER = "amfs"
PORT = 5432
LONGEST_SOCKET_PATH_BYTES = 107
INITDB_OPTIONS = (
    *("--encoding=UTF8", "--locale=C", "--data-checksums"),
    *("--auth-local=trust", "--auth-host=reject", "--no-sync", "--no-instructions"),
)
SETTINGS = """
# Written by amfs-otel. No TCP; nothing of a statement or of a row goes into the server's log.
listen_addresses = ''
unix_socket_permissions = 0700
max_connections = 50
shared_buffers = 32MB
log_min_error_statement = panic
log_error_verbosity = terse
"""

Answer = Literal["up", "starting", "down"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A data directory, the programs of its version, and where its server listens and logs.

    Not safe for concurrent use of ``initialise``, ``start`` and ``stop``: the caller holds a lock.

    Attributes:
        binaries: Of the data directory's major version.
        data: The data directory; its parent belongs to the account.
        sockets: An existing private directory with a short path.
        log: The server's log file.
        account: Runs the server; ``None`` is this process's own.
    """

    binaries: Binaries
    data: Path
    sockets: Path
    log: Path
    account: Account | None

    @property
    def dsn(self) -> str:
        """The connection string of the database that holds everything."""
        return f"host={_quoted(str(self.sockets))} port={PORT} dbname=postgres user={SUPERUSER}"

    def initialise(self, *, sync: bool = True) -> None:
        """Make the data directory under a temporary name, then rename it. What a killed attempt left is removed.

        Args:
            sync: Force it to disk before the rename; throw-away clusters need not.

        Raises:
            StoreError: initdb failed; the message holds its last line.
        """
        for left_over in self.data.parent.glob(f"{self.data.name}.new-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        building = self.data.with_name(f"{self.data.name}.new-{secrets.token_hex(4)}")
        code, text = run_as(
            self.account,
            [self.binaries["initdb"], "-D", building, "-U", SUPERUSER, *INITDB_OPTIONS],
            timeout_s=START_LIMIT_S,
        )
        if code != 0:
            shutil.rmtree(building, ignore_errors=True)
            raise StoreError("the local store could not be made", where=str(self.data), got=_last_line(text))
        with (building / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(SETTINGS)
        if sync:
            _sync_tree(building)
        building.rename(self.data)
        _sync(self.data.parent)

    def start(self, limit_s: float = START_LIMIT_S) -> None:
        """Start the server and wait until it answers. After a crash that includes the recovery.

        Raises:
            StoreUnavailable: It did not answer within the limit; it may still be recovering.
            StoreError: It refused to start; the message holds the reason from its log.
        """
        self._check_socket_path()
        deadline = time.monotonic() + limit_s
        while True:
            offset = self.log.stat().st_size if self.log.exists() else 0
            code, _ = self._pg_ctl("start", deadline, "-l", self.log, "-o", self._options())
            if code == 0 or self.answer() != "down":
                break
            reason = _fatal_line(self.log, offset)
            if "shared memory" in reason or "lock file" in reason:
                self._clear_the_way()
            elif time.monotonic() < deadline and code == 127:
                continue
            else:
                raise StoreError("the local server did not start", where=str(self.log), got=reason or None)
            if time.monotonic() > deadline:
                raise StoreUnavailable("the local server did not start in time", where=str(self.log), got=reason)
            time.sleep(0.1)
        self._wait_until_up(deadline)

    def _wait_until_up(self, deadline: float) -> None:
        while self.answer() != "up":
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    "the local server is still starting", where=str(self.log), hint="It is recovering; try again later."
                )
            time.sleep(0.05)

    def stop(self, mode: Literal["fast", "immediate"] = "fast", limit_s: float = START_LIMIT_S) -> None:
        """Stop the server, if one runs over this data directory, and wait for its end.

        The lock file of a crashed server may hold a number that now belongs to another program: that one is left alone.
        """
        if runs_over(self.data):
            self._pg_ctl("stop", time.monotonic() + limit_s, "-m", mode)

    def answer(self) -> Answer:
        """Say whether the server takes connections. Costs one connection."""
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            return "starting" if "starting up" in str(error) or "recovery" in str(error) else "down"
        return "up"

    def _pg_ctl(self, action: str, deadline: float, *arguments: str | Path) -> tuple[int, str]:
        wait_s = max(1, int(deadline - time.monotonic()))
        command = [self.binaries["pg_ctl"], "-D", self.data, "-w", "-t", str(wait_s), *arguments, action]
        return run_as(self.account, command, timeout_s=wait_s + 5)

    def _options(self) -> str:
        # pg_ctl hands this to a shell. The port is given because the server would take it from PGPORT.
        return f"-p {PORT} -c unix_socket_directories={shlex.quote(str(self.sockets))}"

    def _check_socket_path(self) -> None:
        path = self.sockets / f".s.PGSQL.{PORT}"
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH_BYTES:
            raise ConfigurationError(
                "is too long for a Unix socket",
                where=str(path),
                expected=f"at most {LONGEST_SOCKET_PATH_BYTES} bytes",
                got=len(os.fsencode(path)),
            )

    def _clear_the_way(self) -> None:
        """Deal with what an earlier server left: its lock files, or itself without its socket.

        Lock files whose process is gone, was never reaped, or has become another program are removed; PostgreSQL's own
        check of the shared memory still stands behind. A server over this data directory that no longer answers (its
        socket was cleaned away) is stopped.
        """
        if runs_over(self.data):
            self.stop("fast", limit_s=20)
        else:
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            (self.sockets / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)


def runs_over(data: Path) -> bool:
    """Say whether a server process runs over a data directory, though it may not answer.

    The number in its lock file counts only while that process has the directory among its arguments.
    """
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return False
    return str(data) in _command_line(pid)


def _command_line(pid: int) -> str:
    """Return the arguments of a running process; empty for one that is gone or was not reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self/cmdline").exists():
            return ""
    command = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603  (a number)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def _fatal_line(log: Path, offset: int) -> str:
    """Return the reason in what was appended to a server log since the offset."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            text = file.read(65536).decode(errors="replace")
    except OSError:
        return ""
    reasons = re.findall(r"(?:FATAL|PANIC|ERROR): +(.*)", text)
    return str(reasons[0])[:300] if reasons else _last_line(text)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(top: Path) -> None:
    """Force about 1,000 files to disk. In parallel they share the journal's commits: a tenth of initdb's own time."""
    paths = [path for path in (top, *top.rglob("*")) if not path.is_symlink()]
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="amfs-otel-sync") as pool:
        for _ in pool.map(_sync, paths):
            pass


def recorded_sockets(data: Path) -> Path | None:
    """Return the socket directory that a running server wrote into its lock file (its fifth line)."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return None
    return Path(lines[4]) if len(lines) > 4 and lines[4] else None


def owned_file(path: Path, account: Account | None) -> Path:
    """Make an empty private file of the account, if it is not there."""
    if not path.exists():
        path.touch(mode=0o600)
        own(path, account)
    return path
