"""What is left out while the spool is nearly full: message texts first, then new sessions. Always counted."""

import logging
from dataclasses import replace

from amfs_otel import guard
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.model import EventClosed, EventsMoved, Message, WindowClosed, WindowDropped, WindowOpened
from amfs_otel.pipeline.intake import Intake
from amfs_otel.settings import LedgerContent
from amfs_otel.spool import Pressure


class Admission:
    """Decides per message, by the pressure that the spool reports.

    Args:
        intake: Where what is left out is counted.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._refused: set[str] = set()
        self._pressure = Pressure.NONE

    def look(self, pressure: Pressure, place: object) -> None:
        """Notes the pressure; the first time that it rises it says so."""
        self._pressure = pressure
        if pressure >= Pressure.WARN:
            guard.once("spool_half", logging.WARNING, "amfs-otel: the spool in %s is half full; drain it", place)
        if pressure >= Pressure.NO_MESSAGE_PARTS:
            guard.once(
                "spool_nearly_full",
                logging.ERROR,
                "amfs-otel: the spool in %s is nearly full; evidence is being left out",
                place,
            )

    def preparer(self, usual: Preparer) -> Preparer:
        """The preparer under this pressure: without message texts from `NO_MESSAGE_PARTS` on."""
        if self._pressure < Pressure.NO_MESSAGE_PARTS or usual.content is not LedgerContent.ALL:
            return usual
        return replace(usual, content=LedgerContent.DECISION)

    def takes(self, message: Message) -> bool:
        """Whether `message` goes on; events of refused windows are counted as dropped."""
        if isinstance(message, WindowOpened):
            if self._pressure >= Pressure.NO_NEW_SESSIONS:
                self._refused.add(message.facts.record_id)
                return False
            return True
        if not self._refused:
            return True
        if isinstance(message, EventsMoved):
            if message.source in self._refused:
                self._intake.drop("spool_nearly_full", len(message.event_ids))
                return False
            if message.target in self._refused:
                self._intake.drop("spool_nearly_full", len(message.event_ids))
            return True
        if message.record_id not in self._refused:
            return True
        if isinstance(message, EventClosed):
            self._intake.drop("spool_nearly_full")
        elif isinstance(message, (WindowClosed, WindowDropped)):
            self._refused.discard(message.record_id)
        return False
