"""The dedicated sealer: a process that holds the log key and gives every stored record its entry."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from amfs_otel.drain.custody import held_key, key_ring
from amfs_otel.drain.filling import RECEIPTS_S
from amfs_otel.drain.open_store import require_log
from amfs_otel.drain.sealing import seal_all
from amfs_otel.errors import KeyUnavailable, StoreUnavailable
from amfs_otel.export.receipts import ReceiptEmitter
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory
from amfs_otel.store.postgres import Store

PAUSE_S = 0.02
LONGEST_PAUSE_S = 10.0


class Sealing:
    """Seals one log until it is told to end. One thread; the connection is opened anew where it breaks.

    Args:
        settings: With a DSN.
        tell: Takes one sentence for whoever watches.

    Raises:
        KeyUnavailable: The log key is not here.
    """

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        state = StateDirectory(settings.state_dir)
        held = held_key(settings, state, "log", make=False)
        if held is None:
            raise KeyUnavailable(
                "a sealer needs the log key, and none is here",
                where=str(state.keys / "log.key"),
                hint="Copy it from where `amfs-otel init` made it, or name it with AMFS_OTEL_LOG_KEY_FILE.",
            )
        self._settings = settings
        self._key = held.key
        self._ring = key_ring(settings, state)
        self._tell = tell
        self._end = threading.Event()
        self._receipts = ReceiptEmitter(settings)
        self.sealed = 0

    def end_on_signals(self) -> None:
        """Ends the run on SIGTERM and SIGINT, after the pass that is under way."""

        def end(_number: int, _frame: FrameType | None) -> None:
            self._end.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)

    def once(self) -> int:
        """Seals what there is; gives the number of entries made.

        Raises:
            StoreUnavailable: The server cannot be reached.
            ConfigurationError: The database is not prepared, or the log did not announce the key.
        """
        with self._connected() as store:
            require_log(store)
            self._pass(store, full=True)
        self._receipts.shutdown(RECEIPTS_S)
        return self.sealed

    def run(self) -> int:
        """Seals until told to end; gives the number of entries made.

        Raises:
            ConfigurationError: The database is not prepared, or the log did not announce the key.
        """
        self._receipts.start()
        pause_s = PAUSE_S
        while not self._end.is_set():
            try:
                with self._connected() as store:
                    require_log(store)
                    self._tell(f"sealing log {store.log} with key {self._key.kid}")
                    pause_s = PAUSE_S
                    self._until_it_ends(store)
            except StoreUnavailable as error:
                self._tell(str(error))
                self._end.wait(pause_s)
                pause_s = min(max(pause_s * 2, 0.5), LONGEST_PAUSE_S)
        self._receipts.shutdown(RECEIPTS_S)
        return self.sealed

    def _connected(self) -> Store:
        assert self._settings.dsn is not None
        return Store.connect(self._settings.dsn, self._settings.log)

    def _until_it_ends(self, store: Store) -> None:
        self._pass(store, full=True)
        held_since: float | None = None
        while not self._end.wait(PAUSE_S):
            held_by = self._pass(store)
            if held_by is None:
                held_since = None
            elif held_since is None:
                held_since = time.monotonic()
                self._tell(f"sealing is held back: {held_by}")
        self._pass(store, full=True)

    def _pass(self, store: Store, *, full: bool = False) -> str | None:
        done = seal_all(store, self._key, keys=self._ring, receipts=self._receipts, full=full)
        self.sealed += done.entries
        return done.held_by
