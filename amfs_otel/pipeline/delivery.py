"""The drain thread of a process with a DSN: delivers, seals where the log key is in reach, emits receipts.

Apart from the worker, so that a hanging database never delays the journal. Without a DSN nothing of this runs: records
stay in the spool for the CLI.
"""

import itertools
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from opentelemetry import context

from amfs_otel import guard
from amfs_otel.capture.ambient import SUPPRESS
from amfs_otel.chain.record import Record
from amfs_otel.drain.custody import held_key
from amfs_otel.errors import AmfsOtelError, StoreError, StoreUnavailable
from amfs_otel.pipeline.signer import Signer
from amfs_otel.pipeline.spooling import Spooling
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory
from amfs_otel.store.destination import destination_of

if TYPE_CHECKING:
    from amfs_otel.chain.keys import SigningKey
    from amfs_otel.drain.deliver import Courier
    from amfs_otel.export.receipts import ReceiptEmitter
    from amfs_otel.store.postgres import Store

IDLE_S = 1.0
OTHERS_EVERY_S = 30.0
LAG_EVERY_S = 60.0
NO_SEALER_AFTER_S = 600.0
RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
UNPREPARED_RETRY_S = 60.0
MEMORY_LIMIT = 2000
CONNECT_S, EXIT_CONNECT_S = 5.0, 2.0
"""How long a connection may take on the thread, and where the exit itself connects: libpq's least."""


class Delivery:
    """Delivers this process's records to the database that is configured.

    Args:
        settings: The process's settings.
        state: The state directory.
        spooling: Says which files are this process's own.
        signer: Holds the writer key.
    """

    def __init__(self, settings: Settings, state: StateDirectory, spooling: Spooling, signer: Signer) -> None:
        self._settings = settings
        self._state = state
        self._spooling = spooling
        self._signer = signer
        self._dsn = settings.dsn
        self._destination = None if settings.dsn_is_fallback else destination_of(settings.dsn, settings.log)
        self._settling = threading.Condition()
        self._thread: threading.Thread | None = None
        self._at_exit_only = False
        self._wake = threading.Event()
        self._passed = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._stopping = False
        self._memory: deque[Record] = deque()
        self._store: Store | None = None
        self._courier: Courier | None = None
        self._receipts: ReceiptEmitter | None = None
        self._others_at = float("-inf")
        self._lag_at = time.monotonic()
        self._failures = 0
        self._healthy = True
        self._healthy_at = time.monotonic()
        self.stored = 0
        self.refused = 0
        self.sealed = 0
        self.problem: str | None = None
        self.seal_lag_s: float | None = None
        self.seal_held_by: str | None = None

    # -- from the worker -----------------------------------------------------------------------------------------

    @property
    def destination(self) -> str | None:
        """Where records are for, decided once; `None` while the database of a fallback DSN is being asked."""
        return self._destination

    def settled(self, deadline: float) -> bool:
        """Whether `destination` is decided, waiting for it until `deadline`."""
        with self._settling:
            left_s = max(0.0, deadline - time.monotonic())
            return self._settling.wait_for(lambda: self._destination is not None, left_s)

    def settle(self, dsn: str | None) -> None:
        """Decides that records go to `dsn`, or nowhere but the local store, unless that is decided."""
        with self._settling:
            if self._destination is None:
                self._dsn = dsn
                self._destination = destination_of(dsn, self._settings.log)
                self._settling.notify_all()

    def start(self) -> None:
        """Starts the thread, where there is a DSN. CPython 3.12.0 and .1 allow none once the program has ended."""
        if self._dsn is not None and self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name="amfs-otel-drain", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._at_exit_only = True
            else:
                self._thread = thread

    def wake(self) -> None:
        """There may be something to deliver."""
        self._wake.set()

    def direct(self, record: Record) -> bool:
        """Takes a record that the spool could not; whether it may still reach the database."""
        if self._dsn is None or len(self._memory) >= MEMORY_LIMIT:
            return False
        self._memory.append(record)
        self._wake.set()
        return True

    def oldest_age_s(self) -> float | None:
        """About how long the oldest record has waited for the database: since the last delivery that worked."""
        if self._dsn is None:
            return None
        return 0.0 if self._healthy else time.monotonic() - self._healthy_at

    def flush(self, deadline: float) -> bool:
        """Waits until everything spooled before this call was delivered; `True` at once without a DSN."""
        if self._dsn is None:
            return True
        if self._thread is None or not self._thread.is_alive():
            return False
        with self._passed:
            self._asked += 1
            ticket = self._asked
        self._wake.set()
        with self._passed:
            return (
                self._passed.wait_for(lambda: self._answered >= ticket, timeout=max(0.0, deadline - time.monotonic()))
                and self._healthy
            )

    def finish(self, deadline: float) -> None:
        """Last delivery, within what is left of the exit time, on the running thread and its connection.

        Where no thread could be started any more it is here; a silent server then holds it up for `EXIT_CONNECT_S`.
        """
        if self._at_exit_only:
            self._wake.set()
            self._run(once=True)
        elif not self.flush(deadline) and self.problem is None and self.stored < self._spooling.spooled:
            self._say_they_wait("it did not answer in time")
        self._stopping = True
        self._wake.set()
        if self._receipts is not None:
            self._receipts.shutdown(max(0.05, deadline - time.monotonic()))

    def after_fork_in_child(self) -> None:
        """The connection and the thread are the parent's."""
        self._stopping = True
        self._store = None

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self, *, once: bool = False) -> None:
        token = context.attach(context.set_value(SUPPRESS, True))
        try:
            if self._destination is None:
                self.settle(guard.run("drain", _settled_dsn, self._settings))
            while not self._stopping:
                self._wake.wait(IDLE_S)
                self._wake.clear()
                if self._dsn is None:
                    return
                with self._passed:
                    asked = self._asked
                wait_s = guard.run("drain", self._pass)
                if wait_s is None:
                    wait_s = self._failed("an internal error", RETRY_S[-1])
                with self._passed:
                    self._answered = asked
                    self._passed.notify_all()
                if once:
                    return
                if wait_s and not self._stopping:
                    self._pause(wait_s)
        finally:
            context.detach(token)
            if self._store is not None:
                guard.run("drain", self._store.close)

    def _pause(self, seconds: float) -> None:
        """Waits before the next try; whoever flushes meanwhile ends the wait."""
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            with self._passed:
                if self._asked > self._answered:
                    return
            time.sleep(0.1)

    def _pass(self) -> float:
        """One delivery; gives the seconds to wait before the next try, 0 after success."""
        try:
            store = self._connected()
            if store is None:
                self._healthy = False
                return UNPREPARED_RETRY_S
            self._deliver(store)
        except StoreUnavailable as error:
            return self._failed(str(error), RETRY_S[min(self._failures, len(RETRY_S) - 1)])
        except AmfsOtelError as error:
            return self._failed(str(error), UNPREPARED_RETRY_S)
        self._failures, self._healthy, self.problem = 0, True, None
        self._healthy_at = time.monotonic()
        return 0.0

    def _failed(self, problem: str, wait_s: float) -> float:
        self._failures += 1
        self._healthy = False
        self.problem = problem
        if self._store is not None:
            guard.run("drain", self._store.close)
            self._store = None
        self._say_they_wait(problem)
        return wait_s

    def _say_they_wait(self, problem: str) -> None:
        guard.once(
            "database",
            logging.WARNING,
            "amfs-otel: the database does not take records; they wait in the spool (%s): %s",
            self._state.path,
            problem,
        )

    def _connected(self) -> "Store | None":
        try:
            from amfs_otel.store.postgres import Store
        except ImportError:
            raise StoreError("psycopg finds no libpq", hint="pip install 'psycopg[binary]'") from None
        if self._store is not None and self._store.usable:
            return self._store
        assert self._dsn is not None
        within_s = EXIT_CONNECT_S if self._at_exit_only else CONNECT_S
        store = Store.connect(self._dsn, self._settings.log, timeout_s=within_s)
        state = store.schema_state()
        if not state.present or state.outdated or not store.is_begun():
            self.problem = (
                f"the schema of the database is of version {state.version}, older than {state.newest}"
                if state.outdated
                else f"the database is not prepared for the log {self._settings.log}"
            )
            guard.once(
                "unprepared",
                logging.WARNING,
                "amfs-otel: %s; records wait in the spool. Prepare it with `amfs-otel init`.",
                self.problem,
            )
            store.close()
            return None
        self._store = store
        return store

    def _deliver(self, store: "Store") -> None:
        from amfs_otel.drain.deliver import Courier

        held = self._signer.key()
        writer_key = held.key if held is not None else None
        if self._courier is None or self._courier.writer_key is not writer_key:
            assert self._destination is not None
            self._courier = Courier(self._settings, self._state, self._destination, writer_key)
        while self._memory:
            batch = list(itertools.islice(self._memory, 50))
            for outcome in store.append(batch):
                self._memory.popleft()
                self.stored += outcome.outcome != "refused"
                self.refused += outcome.outcome == "refused"
        if self._spooling.usable:
            others = time.monotonic() - self._others_at >= OTHERS_EVERY_S
            done = self._courier.deliver(store, own=self._spooling.name, others=others)
            self.stored += done.stored
            self.refused += done.refused
            if others:
                self._others_at = time.monotonic()
        try:
            self._seal(store)
        except StoreUnavailable:
            raise
        except AmfsOtelError as error:
            guard.once("seal", logging.WARNING, "amfs-otel: records are stored and not sealed: %s", error)

    def _seal(self, store: "Store") -> None:
        from amfs_otel.drain.sealing import seal_all
        from amfs_otel.export.receipts import ReceiptEmitter

        log_key = self._log_key()
        if log_key is None:
            self._watch_lag(store)
            return
        if self._receipts is None:
            self._receipts = ReceiptEmitter(self._settings)
            self._receipts.start()
        done = seal_all(store, log_key, receipts=self._receipts)
        self.sealed += done.entries
        self.seal_held_by = done.held_by

    def _log_key(self) -> "SigningKey | None":
        held = held_key(self._settings, self._state, "log", make=False)
        return held.key if held is not None else None

    def _watch_lag(self, store: "Store") -> None:
        """Nobody seals here: say so when records wait for ten minutes."""
        if time.monotonic() - self._lag_at < LAG_EVERY_S:
            return
        self._lag_at = time.monotonic()
        try:
            lag = store.lag()
        except StoreUnavailable:
            raise
        except StoreError:
            # The writer's role may not look at other agents' records; whoever seals sees the lag.
            return
        self.seal_lag_s, self.seal_held_by = lag.oldest_s, lag.held_by
        if lag.oldest_s is not None and lag.oldest_s > NO_SEALER_AFTER_S:
            guard.once(
                "no_sealer",
                logging.WARNING,
                "amfs-otel: %d records wait for their entry, the oldest for %d s: no sealer is running. "
                "Start `amfs-otel sealer` where the log key is.",
                lag.unsealed,
                lag.oldest_s,
            )


def _settled_dsn(settings: Settings) -> str | None:
    """The fallback DSN, where that database holds our schema; psycopg is imported only to ask."""
    from amfs_otel.drain.open_store import settled

    return settled(settings).dsn
