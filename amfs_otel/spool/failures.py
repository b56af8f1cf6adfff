"""How the operating system's refusals are told: one place, so that every message says where, what and what to do."""

import errno
from pathlib import Path

from amfs_otel.errors import SpoolError

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_WRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EEXIST})


class SpoolFull(SpoolError):
    """No room for a frame: the state directory's limit is reached, or the disk is full.

    Nothing of the frame stays on disk and the writer can be used again once room is made.
    """


def is_no_room(error: OSError) -> bool:
    """Whether room is what is missing: the disk, a quota or a limit on a file's size."""
    return error.errno in _NO_ROOM


def spool_error_from_os_error(error: OSError, what: str, where: Path, *, frames: bool = False) -> SpoolError:
    """The error to raise for a failed system call; `SpoolFull` where room is what is missing.

    Args:
        error: What the operating system said.
        what: What was being done, one clause, for instance ``"a frame could not be written"``.
        where: The file or directory.
        frames: It was a frame that could not be written; it is tried again, so nobody has to do more than make room.
    """
    reason = error.strerror or type(error).__name__
    if is_no_room(error):
        again = "; frames are taken again as soon as they fit" if frames else ""
        return SpoolFull(what, where=str(where), got=reason, hint=f"Make room on this disk{again}.")
    hint = "Set AMFS_OTEL_STATE_DIR to a directory that this user can write." if error.errno in _NOT_WRITABLE else ""
    return SpoolError(what, where=str(where), got=reason, hint=hint)
