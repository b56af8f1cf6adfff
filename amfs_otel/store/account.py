"""The account under which a local PostgreSQL server runs: ourselves, or for root an existing unprivileged one.

PostgreSQL refuses to run as root. An account is never made here, and no permission of an existing directory is changed.
"""

import os
import pwd
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from amfs_otel.errors import ConfigurationError

UNPRIVILEGED = ("postgres", "nobody")
"""Accounts that root may lend to the server, in order of preference."""


@dataclass(frozen=True, slots=True)
class Account:
    """An existing entry of the password database; initdb refuses a bare number without one."""

    name: str
    uid: int
    gid: int


def server_account() -> Account | None:
    """Return the account for a server that this process starts; ``None`` means this process's own.

    Raises:
        ConfigurationError: This process is root and neither ``postgres`` nor ``nobody`` exists.
    """
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise ConfigurationError(
        "PostgreSQL does not run as root and no unprivileged account was found",
        where="local store",
        expected="an account named " + " or ".join(UNPRIVILEGED),
        hint="Make one, run as an ordinary user, or set AMFS_OTEL_DSN to a server.",
    )


def run_as(account: Account | None, command: Sequence[str | Path], *, timeout_s: float) -> tuple[int, str]:
    """Run a program under the account, with an environment of its own, and wait.

    Args:
        account: ``None`` runs it as this process.
        command: The program and its arguments; no shell is involved.
        timeout_s: Seconds after which it is killed.

    Returns:
        The exit code and everything it printed. An unreachable or hanging program gives code 127 and the reason.
    """
    try:
        done = subprocess.run(  # noqa: S603  (a program of ours or of PostgreSQL, and no shell)
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},
            timeout=timeout_s,
            check=False,
            umask=0o077,
            user=account and account.uid,
            group=account and account.gid,
            extra_groups=[] if account else None,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, f"{type(error).__name__}: {command[0]}"
    return done.returncode, done.stdout.decode(errors="replace")


def own(path: Path, account: Account | None) -> None:
    """Give a path that this process just made to the account."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def private_directory(path: Path, account: Account | None) -> Path:
    """Make a 0700 directory that belongs to the account, or check that an existing one is exactly that.

    Raises:
        ConfigurationError: Something else stands there: a link, a file, another owner, or a mode that lets others in.
    """
    if not os.path.lexists(path):
        building = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            building.mkdir(mode=0o700)
        except OSError as error:
            raise ConfigurationError(f"cannot be made ({error.strerror})", where=str(path)) from None
        own(building, account)
        # Renamed when it is right, so that nobody sees it under another owner. Loses to one made meanwhile.
        try:
            building.rename(path)
        except OSError:
            building.rmdir()
    found = path.lstat()
    uid = os.geteuid() if account is None else account.uid
    if path.is_symlink() or not path.is_dir() or found.st_uid != uid or found.st_mode & 0o077:
        raise ConfigurationError(
            "is not a private directory of the server's account",
            where=str(path),
            expected=f"a directory of user {uid} with mode 0700",
            got=f"user {found.st_uid}, mode {found.st_mode & 0o7777:o}",
            hint="Somebody else made it; remove it.",
        )
    return path
