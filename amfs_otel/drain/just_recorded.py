"""What a process that has just ended left in the spool, for the one line after `amfs-otel run`. Starts no server."""

from collections.abc import Iterable
from dataclasses import dataclass

from amfs_otel import spool
from amfs_otel.chain.record import record_from_bytes
from amfs_otel.chain.skeleton import decompose
from amfs_otel.errors import FormatError
from amfs_otel.settings import Settings
from amfs_otel.spool import Frame, StateDirectory

_KINDS = ("decision", "outcome")


@dataclass(frozen=True, slots=True)
class JustRecorded:
    """What there is.

    Attributes:
        record_id: Of the newest trace.
        steps: Its events.
        traces: How many traces there are.
    """

    record_id: str
    steps: int
    traces: int


def just_recorded(settings: Settings, pid: int, began_ns: int) -> JustRecorded | None:
    """The traces that process `pid` and what it started have spooled since `began_ns`; `None` where there are none.

    Args:
        settings: Names the state directory.
        pid: The program's; where it recorded nothing itself, any process that began since counts.
        began_ns: When it was started, nanoseconds since the epoch.

    Raises:
        SpoolError: The spool cannot be read.
    """
    state = StateDirectory(settings.state_dir)
    segments = [
        segment
        for destination in spool.destinations(state)
        for segment in spool.list_segments(state, destination)
        if segment.stream == "records" and segment.start >= began_ns
    ]
    own = [segment for segment in segments if segment.pid == pid] or segments
    if not own:
        return None
    return _newest(item.payload for _, item in spool.read_stream(own, state.spool_key()) if isinstance(item, Frame))


def _newest(payloads: Iterable[bytes]) -> JustRecorded | None:
    found: JustRecorded | None = None
    traces = 0
    for payload in payloads:
        try:
            record = record_from_bytes(payload)
            events = decompose(record).facts.get("events", []) if record.kind in _KINDS else None
        except FormatError:
            continue
        if events is not None:
            traces += 1
            found = JustRecorded(record.record_id, len(events), traces)
    return found
