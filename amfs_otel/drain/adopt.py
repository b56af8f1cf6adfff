"""A dead process's journal → its windows, finished and signed by whoever adopts them.

Windows that it had closed but not signed are signed as they were closed; open ones become `interrupted`. The texts'
salts and commitments were journaled, so two adopters that share a key make the very same bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from amfs_otel.assemble.assembler import Assembler, DecisionTrace
from amfs_otel.assemble.gaps import Gap
from amfs_otel.assemble.journal import ProcessBegan, decoded
from amfs_otel.assemble.prepare import PreparedEvent, Preparer
from amfs_otel.capture.content import Masker
from amfs_otel.errors import FormatError
from amfs_otel.settings import LedgerContent
from amfs_otel.spool import Damage, Frame, Segment, read_stream


@dataclass(slots=True)
class Orphans:
    """What a dead process's files hold besides its finished records.

    Attributes:
        began: What the process said of itself; `None` where that frame is gone.
        traces: Windows without a record.
        spooled: Ids (32 hex digits) of the records that it had spooled.
        gaps: Damage met on the way.
    """

    began: ProcessBegan | None = None
    traces: list[DecisionTrace] = field(default_factory=list[DecisionTrace])
    spooled: set[str] = field(default_factory=set[str])
    gaps: list[Gap] = field(default_factory=list[Gap])

    @property
    def adopted_from(self) -> dict[str, Any]:
        """The skeleton's `adopted_from`."""
        origin = self.began.origin if self.began is not None else {}
        return {"process_id": origin.get("process_id"), "started_us": origin.get("started_us")}


def orphans_of(segments: Iterable[Segment], spool_key: bytes) -> Orphans:
    """Reads a dead process's segments, journal and records.

    Raises:
        SpoolError: A segment cannot be read.
    """
    segments = list(segments)
    found = Orphans()
    for _, item in read_stream([s for s in segments if s.stream == "records"], spool_key):
        if isinstance(item, Frame):
            found.spooled.add(item.frame_id.hex())
    assembler = Assembler(Preparer(LedgerContent.NONE, Masker(), None))
    finished: list[DecisionTrace] = []
    for segment, item in read_stream([s for s in segments if s.stream == "journal"], spool_key):
        if isinstance(item, Damage):
            found.gaps.append(gap_from_damage(segment, item))
            continue
        finished.extend(_applied(found, assembler, segment, item))
    finished.extend(assembler.interrupt_all(_last_seen_us))
    found.traces = [t for t in finished if t.window.record_id.replace("-", "") not in found.spooled]
    return found


def _applied(found: Orphans, assembler: Assembler, segment: Segment, frame: Frame) -> Iterator[DecisionTrace]:
    try:
        item = decoded(frame.payload)
    except FormatError:
        found.gaps.append(Gap("journal_unreadable", file=segment.path.name))
        return
    if isinstance(item, ProcessBegan):
        found.began = item
        return
    trace = assembler.apply(item)
    if trace is not None:
        yield trace


def _last_seen_us(events: Iterable[PreparedEvent]) -> int:
    return max(int(event.facts.get("end_us") or event.facts["start_us"]) for event in events)


def gap_from_damage(segment: Segment, damage: Damage) -> Gap:
    """The gap that a damaged range of a spool file leaves. A torn tail is no damage: it was never acknowledged."""
    return Gap("spool_altered", file=segment.path.name, first_byte=damage.start, last_byte=damage.end)
