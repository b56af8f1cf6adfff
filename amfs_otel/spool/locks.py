"""The lock file of a writer: its flock is held as long as the writer lives, and by whoever adopts what it left.

A process id says nothing (containers share directories, ids are used again); the kernel drops a flock with the last
descriptor, also on SIGKILL. A forked child inherits descriptors of the same lock: they are closed at once in the child
and never unlocked there, which would free the living parent's lock (flock(2)).
"""

import fcntl
import os
import time
from pathlib import Path

_held: set[int] = set()
"""Descriptors of locks taken here, or about to be."""
_TRIES = 5
_PAUSE_S = 0.002
"""`is_held` holds a shared lock for microseconds; whoever wants the lock outlasts that."""


def take(path: Path) -> int | None:
    """Take the lock without waiting; the file is made when it is missing.

    Returns:
        A descriptor for `release`, closed by itself in a child forked later; None when somebody holds the lock or
        removed the file meanwhile.

    Raises:
        OSError: The file cannot be opened, made or locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    _held.add(descriptor)  # before it is locked: another thread may fork at any moment
    try:
        if _locked(descriptor) and _is_still_named(descriptor, path):
            return descriptor
    except OSError:  # a file system without flock
        _held.discard(descriptor)
        os.close(descriptor)
        raise
    release(descriptor)
    return None


def release(descriptor: int) -> None:
    """Let go of a lock that this process took; does nothing in a child that was forked since."""
    if descriptor in _held:
        _held.discard(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock at this moment; a lock file that is missing or cannot be opened is not held.

    Where the file system cannot tell, it counts as held: nobody's files are taken on a guess.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing would not do, had another thread forked just now
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _locked(descriptor: int) -> bool:
    for attempt in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt < _TRIES - 1:
                time.sleep(_PAUSE_S)
        else:
            return True
    return False


def _is_still_named(descriptor: int, path: Path) -> bool:
    """False when the previous holder removed the file while we waited for its lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _close_all_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_all_in_child)
