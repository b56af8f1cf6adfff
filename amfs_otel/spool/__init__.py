"""Durable local frames between the agent and the store: nothing acknowledged is lost, whatever dies.

::

    with SpoolWriter(StateDirectory(path), "local") as writer:
        writer.append("records", record_id, data)
        writer.sync()

    for segment in list_segments(state, "local"):
        for item in read_frames(segment.path, state.spool_key()):
            ...                                     # a Frame, or a Damage to report

Standard library only, Linux and macOS. names.py says what the files are called, frames.py what is in them,
segments.py who may remove them.
"""

from amfs_otel.spool.failures import SpoolFull
from amfs_otel.spool.frames import Damage, Frame, read_frames
from amfs_otel.spool.names import LOCAL, STREAMS, Stream, WriterName
from amfs_otel.spool.open_segment import FrameAddress
from amfs_otel.spool.quarantine import Quarantined, quarantine, quarantined
from amfs_otel.spool.running import OpenTraces, open_traces
from amfs_otel.spool.segments import Adoption, Segment, adopt, destinations, list_segments, read_stream, retire
from amfs_otel.spool.state_directory import StateDirectory, ensure_key_file
from amfs_otel.spool.status import ProcessStatus, StatusFile, read_newest
from amfs_otel.spool.usage import DEFAULT_LIMIT_BYTES, Pressure, pressure_from_usage, usage_bytes
from amfs_otel.spool.writer import SEGMENT_BYTES, SpoolWriter

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "LOCAL",
    "SEGMENT_BYTES",
    "STREAMS",
    "Adoption",
    "Damage",
    "Frame",
    "FrameAddress",
    "OpenTraces",
    "Pressure",
    "ProcessStatus",
    "Quarantined",
    "Segment",
    "SpoolFull",
    "SpoolWriter",
    "StateDirectory",
    "StatusFile",
    "Stream",
    "WriterName",
    "adopt",
    "destinations",
    "ensure_key_file",
    "list_segments",
    "open_traces",
    "pressure_from_usage",
    "quarantine",
    "quarantined",
    "read_frames",
    "read_newest",
    "read_stream",
    "retire",
    "usage_bytes",
]
