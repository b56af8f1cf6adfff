"""No room for a file, as on a full disk, without a disk of its own."""

import contextlib
import resource
from collections.abc import Generator


@contextlib.contextmanager
def no_room() -> Generator[None]:
    """The system takes one byte of a file from this process and refuses the rest; nothing else may write meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
