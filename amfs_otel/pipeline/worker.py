"""The worker: one daemon thread from the first event on (`late`), and everything between the intake and the spool.

Events reach the journal at most 100 ms after they happened; a closed window is signed and on the medium before the
next batch. All of it can also run inline, on whichever thread calls `flush` or `finish`.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import context
from opentelemetry.metrics import Meter

from amfs_otel import guard
from amfs_otel.assemble.assembler import Assembler, DecisionTrace
from amfs_otel.assemble.gaps import Gap, trace_from_gap
from amfs_otel.assemble.journal import EventPrepared, JournalItem, ProcessBegan, encoded, frame_id, record_id_of
from amfs_otel.assemble.origin import origin_facts
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.capture.ambient import SUPPRESS
from amfs_otel.capture.content import Masker
from amfs_otel.capture.windows import Windows
from amfs_otel.chain.record import Record, record_to_bytes
from amfs_otel.model import ClosedBy, EventClosed
from amfs_otel.pipeline.admission import Admission
from amfs_otel.pipeline.delivery import Delivery
from amfs_otel.pipeline.health import Health, Parts
from amfs_otel.pipeline.intake import Intake
from amfs_otel.pipeline.signer import Signer
from amfs_otel.pipeline.spooling import Spooling
from amfs_otel.settings import Settings
from amfs_otel.spool import LOCAL, StateDirectory

BATCH_S = 0.05
TICK_S = 1.0
BATCH_LIMIT = 2000
GAP_RETRY_S = 30.0
SIGNING_S = 0.3
"""What is kept of the exit time for signing what waited for a database."""


class Worker:
    """Drives one process's pipeline.

    Args:
        settings: The process's settings.
        intake: Where messages come from.
        windows: Told when a window is full or idle.
        masker: Masks what is kept.
        meter: For our health metrics; `None` records none.
    """

    def __init__(
        self, settings: Settings, intake: Intake, windows: Windows, masker: Masker, meter: Meter | None
    ) -> None:
        self.settings = settings
        self.state = StateDirectory(settings.state_dir)
        self.intake = intake
        self.windows = windows
        self._masker = masker
        self._lock = threading.RLock()
        self._stopping = False
        self._finishing = threading.Event()
        self._no_gap_before = 0.0
        self._told_spooled = 0
        self._flushing_thread = 0
        self._postponed: Callable[[], None] | None = None
        self._assembler: Assembler | None = None
        self._preparer: Preparer | None = None
        self._unsynced: list[Record] = []
        self._admission = Admission(intake)
        self.signer = Signer(settings, self.state)
        self.spooling = Spooling(settings, self.state, self._open_windows)
        self.delivery = Delivery(settings, self.state, self.spooling, self.signer)
        self.health = Health(
            Parts(settings, self.state, intake, windows, self.signer, self.spooling, self.delivery), meter
        )

    def run(self) -> None:
        """The loop of its thread, until `finish`. What came while the worker was imported has waited long enough."""
        guard.run("worker", self._turn)
        while not self._stopping:
            self.intake.wait(TICK_S)
            self._finishing.wait(BATCH_S)
            if not self._stopping:
                guard.run("worker", self._turn)

    def _turn(self) -> None:
        with self._lock:
            self._close_due()
            self._process()
            self.signer.waiting(self._finished)
            self._sync()
            self.spooling.tidy()
            self.health.tick()
        if self.spooling.spooled > self._told_spooled:
            self._told_spooled = self.spooling.spooled
            self.delivery.wake()

    def _close_due(self) -> None:
        self.windows.close_idle(self.settings.idle_s, self.settings.inferred_idle_s)

    def _process(self) -> None:
        """Journals and assembles all that lies in the intake; the journal does not wait for what a database says."""
        if not self.signer.settled and self.delivery.destination is not None:
            self._settle(self.delivery.destination)
        while len(self.intake):
            assembler = self._assembling()
            self._admission.look(self.spooling.pressure, self.state.path)
            assembler.preparer = self._admission.preparer(self._preparer or assembler.preparer)
            for message in filter(self._admission.takes, self.intake.take(BATCH_LIMIT)):
                items = guard.run("assemble", assembler.prepared, message)
                if items is None:
                    self.intake.drop("internal_error")
                elif isinstance(message, EventClosed):
                    self.intake.met(sum(item.event.text_bytes for item in items if isinstance(item, EventPrepared)))
                for item in items or ():
                    guard.run("journal", self._journal, item)
                    trace = guard.run("assemble", assembler.apply, item)
                    if trace is not None:
                        self._finished(trace)
            self._sync()
        self.intake.rest()
        self._tell_drops()

    def _journal(self, item: JournalItem) -> None:
        self.spooling.journal(frame_id(record_id_of(item)), encoded(item))

    def _assembling(self) -> Assembler:
        if self._assembler is None:
            if self.delivery.destination is not None:
                self.spooling.settle(self.delivery.destination)
            self._preparer = self._made_preparer()
            self._assembler = Assembler(self._preparer, self._window_full, lambda: self.intake.drop("without_window"))
            self.spooling.begin(
                encoded(
                    ProcessBegan(
                        dict(origin_facts(self.settings)), self.settings.log, self.settings.ledger_content.value
                    )
                )
            )
        return self._assembler

    def _made_preparer(self) -> Preparer:
        held = self.signer.key()
        digest_key = held.key.digest_key() if held is not None else None
        return Preparer(self.settings.ledger_content, self._masker, digest_key, before_long=self.spooling.write)

    def _settle(self, destination: str) -> None:
        """The database of the fallback DSN has answered, or has not: what waited for that goes on."""
        self.spooling.settle(destination)
        self.signer.settle(local=destination == LOCAL)
        if self._preparer is not None:
            self._preparer = self._made_preparer()

    def _window_full(self, record_id: str) -> None:
        self.windows.close_record(record_id, ClosedBy.LIMIT)

    def _finished(self, trace: DecisionTrace) -> None:
        """Signs a trace and spools its record."""
        signed = guard.run("sign", lambda: [self.signer.sign(trace, self._coverage())])
        if signed is None:
            self.intake.drop("internal_error", len(trace.facts.get("events", [trace])))
        elif signed[0] is not None:
            self._spool(signed[0])

    def _spool(self, record: Record) -> None:
        self._unsynced.append(record)
        self.spooling.record(frame_id(record.record_id), record_to_bytes(record))

    def _sync(self) -> None:
        """Brings onto the medium what was spooled: once for all records of a turn, each costs the disk a rotation."""
        spooled, self._unsynced = self._unsynced, []
        lost = frozenset(self.spooling.sync())
        for record in spooled if lost else ():
            if frame_id(record.record_id) in lost:
                self._deliver_directly(record)

    def _deliver_directly(self, record: Record) -> None:
        if not self.delivery.direct(record):
            self.intake.drop("record_lost")

    def _coverage(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.intake.dropped:
            found["dropped"] = dict(self.intake.dropped)
        ephemeral = self.spooling.ephemeral
        if ephemeral is not None:
            found["spool_ephemeral"] = ephemeral
        return found

    def _tell_drops(self) -> None:
        """Signs counted drops as a gap, once for each cause and count; tried again where it could not be kept."""
        drops = self.health.new_drops(self.intake.dropped)
        if not drops or time.monotonic() < self._no_gap_before or not self.signer.ready:
            return
        for cause, count in drops.items():
            gap = trace_from_gap(Gap(cause, count=count), self.settings.default_agent)
            record = guard.run("sign", self.signer.sign, gap, {})
            if record is not None and (self._kept(record) or self.delivery.direct(record)):
                self.health.told(cause, count)
            else:
                self._no_gap_before = time.monotonic() + GAP_RETRY_S

    def _kept(self, gap: Record) -> bool:
        return self.spooling.keep(frame_id(gap.record_id), record_to_bytes(gap))

    def _open_windows(self) -> list[bytes]:
        """Windows whose journal frames must be carried into a new segment."""
        if self._assembler is None:
            return []
        return [frame_id(record_id) for record_id in [*self._assembler.open_windows(), *self.signer.waiting_ids()]]

    # -- from outside --------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Makes all that was captured durable, inline; with a DSN waits for one delivery."""
        deadline = time.monotonic() + timeout_s
        if not self._inline(deadline):
            return False
        if not self.signer.settled and not (self.delivery.settled(deadline) and self._inline(deadline)):
            return False
        return self.delivery.flush(deadline)

    def spool_now(self, timeout_s: float) -> bool:
        """Makes all that was captured durable on this machine, inline."""
        return self._inline(time.monotonic() + timeout_s)

    def finish(self, deadline: float, delivered_by: float) -> None:
        """The last turn of this process: journal, records, delivery, status. Starts no thread, imports nothing.

        Args:
            deadline: `time.monotonic()` by which all is done.
            delivered_by: The same for what waits for a database.
        """
        self._stopping = True
        self._finishing.set()
        self.intake.wake()
        self._inline(deadline)
        if not self.signer.settled:
            if not self.delivery.settled(delivered_by - SIGNING_S):
                self.delivery.settle(None)
            self._inline(deadline)
        self.delivery.finish(delivered_by)
        if self._lock.acquire(timeout=max(0.05, deadline - time.monotonic())):
            try:
                guard.run("status", self.health.write, at_exit=True)
                guard.run("spool", self.spooling.close)
            finally:
                self._lock.release()

    def _inline(self, deadline: float) -> bool:
        if not self._lock.acquire(timeout=max(0.05, deadline - time.monotonic())):
            return False
        token = context.attach(context.set_value(SUPPRESS, True))
        self._flushing_thread = threading.get_ident()
        try:
            guard.run("worker", self._process)
            guard.run("worker", self.signer.waiting, self._finished)
            guard.run("worker", self._sync)
        finally:
            self._flushing_thread = 0
            context.detach(token)
            self._lock.release()
        postponed, self._postponed = self._postponed, None
        if postponed is not None:
            postponed()
        return True

    def postponed(self, function: Callable[[], None]) -> bool:
        """Whether this thread is in the middle of a flush; `function`, a signal's, is then called at its end."""
        if self._flushing_thread != threading.get_ident():
            return False
        self._postponed = function
        return True

    def after_fork_in_child(self) -> None:
        """Lets go of the parent's descriptors; this object is not used again in the child."""
        self._stopping = True
        self.spooling.after_fork_in_child()
        self.delivery.after_fork_in_child()
