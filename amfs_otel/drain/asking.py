"""Asking a store: opening it for a command that answers from it."""

import contextlib
from collections.abc import Generator

from amfs_otel.drain.open_store import Opened, open_to_read
from amfs_otel.errors import AmfsOtelError
from amfs_otel.graph.reading import Reader
from amfs_otel.settings import Settings

ADVICE = "Record something with: amfs-otel run python agent.py. If you did, amfs-otel doctor says why nothing shows up."


class NothingRecorded(AmfsOtelError):
    """Nothing was ever recorded here."""


@contextlib.contextmanager
def asking(settings: Settings) -> Generator[tuple[Opened, Reader]]:
    """The store of a command that answers from it, and its reader.

    Args:
        settings: From `open_store.settled`.

    Raises:
        NothingRecorded: There is neither a DSN nor anything recorded on this machine.
        ConfigurationError: The DSN does not fit, or the database is not prepared.
        StoreUnavailable: The server cannot be reached or started.
    """
    with open_to_read(settings) as opened:
        if opened is None:
            raise NothingRecorded("nothing was recorded here yet", where=str(settings.state_dir), hint=ADVICE)
        yield opened, Reader(opened.store)
