"""Making bytes and names survive a power cut, and files that appear whole or not at all."""

import os
import sys
from pathlib import Path

if sys.platform == "darwin":
    import fcntl

    def sync_data(descriptor: int) -> None:
        """Block until the file's bytes are on the medium: macOS's fsync only hands them to the drive's cache."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def sync_data(descriptor: int) -> None:
        """Block until the file's bytes, and the length needed to read them, are on the medium."""
        os.fdatasync(descriptor)


def sync_directory(directory: Path) -> None:
    """Block until the names in a directory are on the medium; without it a new file can vanish in a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """A hidden name beside `path` that no other process draws."""
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(6).hex()}")


def write_private_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Make a new file, readable by its owner only.

    Args:
        path: Must not exist.
        data: Its bytes.
        durable: Also wait until the bytes are on the medium.

    Raises:
        OSError: The file exists or cannot be written; a file begun is removed again.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            sync_data(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def replace_private_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Give `path` new bytes in one step: a reader sees the old file or the new one, never half of either.

    Raises:
        OSError: It cannot be written; the old file stays.
    """
    temporary = temporary_name(path)
    write_private_file(temporary, data, durable=durable)
    try:
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)
