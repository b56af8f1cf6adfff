"""The state directory: where it is, who may use it, what disk it is on, and the keys that are made in it.

::

    <state>/                    0700
        spool/<destination>/    segments and lock files (names.py)
        keys/                   writer.key, log.key, …, spool.key; 0600
        status/                 one file per process (status.py)
        quarantine/             records that a store refused (quarantine.py)
"""

import os
import sys
from pathlib import Path
from typing import Self

from amfs_otel.errors import SpoolError
from amfs_otel.spool.durable import sync_directory, temporary_name, write_private_file
from amfs_otel.spool.failures import spool_error_from_os_error
from amfs_otel.spool.names import checked_destination

_EPHEMERAL_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "rootfs"})


class StateDirectory:
    """One directory of one user, shared by every process of that user that is told its path.

    Making the object touches nothing. Safe in threads and after fork: it holds a path and a text, no descriptor.

    Args:
        path: The directory; it and its parents are made by `open`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._spool_key_text: str | None = None

    @property
    def spool(self) -> Path:
        """Directory of the destinations' directories."""
        return self.path / "spool"

    @property
    def keys(self) -> Path:
        """Directory of the key files."""
        return self.path / "keys"

    @property
    def status(self) -> Path:
        """Directory of the processes' status files."""
        return self.path / "status"

    @property
    def quarantine(self) -> Path:
        """Directory of refused records."""
        return self.path / "quarantine"

    def open(self) -> Self:
        """Make what is missing and refuse what is not ours; idempotent, returns itself.

        An existing top directory keeps its mode (it may be a mounted volume); what lies below is made, or put back to,
        0700, so that nobody else reads content either way.

        Raises:
            SpoolError: It belongs to another user, or cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_other_owner(self.path)
            for directory in (self.spool, self.keys, self.status, self.quarantine):
                _make_private(directory)
        except OSError as error:
            raise spool_error_from_os_error(error, "the state directory cannot be used", self.path) from error
        return self

    def destination_directory(self, destination: str) -> Path:
        """The directory of one destination's segments, made if need be and durable by name.

        Raises:
            SpoolError: `destination` is not one, or the directory cannot be made.
        """
        directory = self.spool / checked_destination(destination)
        if not directory.is_dir():
            self.open()
            try:
                _make_private(directory)
                sync_directory(self.spool)
            except OSError as error:
                raise spool_error_from_os_error(error, "the spool directory cannot be made", directory) from error
        return directory

    def spool_key(self) -> bytes:
        """32 bytes that authenticate frames on this machine, drawn by whichever process is first.

        Read anew each time: a key that this process used is put back when somebody emptied the directory, so that
        frames of before and after authenticate under one key.

        Raises:
            SpoolError: The key file cannot be made or read, or holds something else.
        """
        path = self.keys / "spool.key"
        if not path.exists():
            self.open()
        text = ensure_key_file(path, self._spool_key_text or f"hex:{os.urandom(32).hex()}")
        key = _spool_key_from_text(text, path)
        self._spool_key_text = text
        return key

    def is_ephemeral(self) -> bool | None:
        """Whether the directory dies with the machine or the container (tmpfs, overlay); None where nobody can tell.

        Read from the kernel's mount table on Linux, for the nearest directory that exists.
        """
        if sys.platform != "linux":
            return None
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
        file_system = file_system_from_mountinfo(mounts, self.path.resolve())
        return None if file_system is None else file_system in _EPHEMERAL_FILE_SYSTEMS


def ensure_key_file(path: Path, text: str) -> str:
    """Give a key file its text unless it exists; returns what the file holds, stripped, whoever made it.

    The text is written under a temporary name and linked: another process sees no file or a whole one, and of many that
    make it at once one wins and all return the winner's text. Mode 0600, durable on return.

    Raises:
        SpoolError: It cannot be made or read.
    """
    try:
        if not path.exists():
            _link_new_file(path, text.strip().encode("utf-8") + b"\n")
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise SpoolError("a key file is not text", where=str(path)) from error
    except OSError as error:
        raise spool_error_from_os_error(error, "a key file could not be made or read", path) from error


def file_system_from_mountinfo(mounts: str, path: Path) -> str | None:
    """The type of the file system that holds `path`; of several mounts on one point the last one counts.

    Args:
        mounts: The text of ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)).
        path: Absolute, without symbolic links.
    """
    best, found = -1, None
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = Path(_unescaped(fields[4]))
        if len(point.parts) >= best and path.is_relative_to(point):
            best, found = len(point.parts), after.split(" ", 1)[0]
    return found


def _unescaped(text: str) -> str:
    """Undo the kernel's octal escapes of blank, tab, newline and backslash."""
    head, *rest = text.split("\\")
    return head + "".join(chr(int(piece[:3], 8)) + piece[3:] for piece in rest)


def _link_new_file(path: Path, data: bytes) -> None:
    temporary = temporary_name(path)
    write_private_file(temporary, data, durable=True)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    finally:
        temporary.unlink()
    sync_directory(path.parent)


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    _refuse_other_owner(directory)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


def _refuse_other_owner(directory: Path) -> None:
    owner = directory.stat().st_uid
    if owner != os.geteuid():
        raise SpoolError(
            "the state directory belongs to another user",
            where=str(directory),
            expected=f"uid {os.geteuid()}",
            got=f"uid {owner}",
            hint="Set AMFS_OTEL_STATE_DIR to a directory of this user's own, for instance one below it.",
        )


def _spool_key_from_text(text: str, path: Path) -> bytes:
    try:
        key = bytes.fromhex(text.removeprefix("hex:"))
    except ValueError:
        key = b""
    if len(key) != 32:
        raise SpoolError(
            "the spool key cannot be used",
            where=str(path),
            expected="hex: and 64 digits",
            hint="Put the old file back, or move it away: frames under the old key then count as altered.",
        )
    return key
