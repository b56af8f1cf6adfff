"""The bytes of a segment: frames, how they are made, and a reader that survives damage and names it.

A segment is a row of frames and nothing else::

    magic[3] kind[1] | length u32 | crc32 u32 | number u64 | hmac[32] | id[16] | payload[length]      (big-endian)

- *magic* holds two bytes that no UTF-8 text contains, so that text an application chose cannot look like a frame.
- *kind* is ``F``, or ``C`` for a journal frame copied forward from an older segment. A copy's payload begins with the
  segment index (u32) and frame number (u64) of its first writing, so that it is recognised as the same frame.
- *number* counts from 0 in each segment without a hole: a frame that was cut out or repeated is seen.
- *hmac* is HMAC-SHA256 under the state directory's spool key over destination, file name and every field but magic and
  crc: a frame from another file, or edited with its crc put right, does not authenticate.

A write that a kill cut short is the beginning of a frame at the end of the file: the reader stops there without a word,
for nobody was told that this frame is safe. Anything else that does not hold is `Damage`; reading goes on at the next
whole frame. Frames cut off at the very end leave no trace here: whoever can shorten the file looks like a kill.
"""

import hmac
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amfs_otel.errors import SpoolError
from amfs_otel.spool.failures import spool_error_from_os_error
from amfs_otel.spool.names import segment_name_from_path

MAGIC = b"\xf5\xffA"
WRITTEN = b"F"
COPIED = b"C"
HEADER_BYTES = 68
"""Size of everything before the payload."""
MAX_PAYLOAD_BYTES = 2**32 - 1 - 12

_HEADER = struct.Struct(">4sIIQ32s16s")
_AUTHENTICATED = struct.Struct(">sIQ16s")
_ORIGIN = struct.Struct(">IQ")
_SCAN_BYTES = 1 << 20

DamageReason = Literal["unreadable", "altered", "missing"]
_Fault = Literal["unreadable", "altered", "torn"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that held: crc, HMAC and number.

    Attributes:
        number: Its number in this segment.
        frame_id: 16 bytes: the record id, for journal frames that of the window.
        payload: The bytes that were appended.
        start: Offset of its first byte in the segment.
        end: Offset after its last byte.
        origin: (segment index, number) of its first writing; equal in a frame and its copies, unique in a stream.
    """

    number: int
    frame_id: bytes
    payload: bytes
    start: int
    end: int
    origin: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are not what its writer wrote. Whoever drains signs it as a `gap` (SPOOL_ALTERED).

    Attributes:
        start: Offset of the first byte concerned.
        end: Offset after the last one; equal to `start` where frames were cut out.
        reason: ``unreadable`` (no frame, or its crc fails), ``altered`` (a well-formed frame that does not
            authenticate, or a repeated one), ``missing`` (a hole in the numbers).
        frames_lost: How many frames are gone; None where no whole frame follows to tell.
    """

    start: int
    end: int
    reason: DamageReason
    frames_lost: int | None


class FrameSeal:
    """Makes and checks the headers of one segment's frames.

    Args:
        spool_key: 32 bytes, `StateDirectory.spool_key`.
        path: The segment; only its last two components count, so the state directory may be moved.

    Raises:
        SpoolError: `path` is not named as a segment is.
    """

    def __init__(self, spool_key: bytes, path: Path) -> None:
        name = segment_name_from_path(path)
        if name is None:
            raise SpoolError("not the path of a spool segment", where=str(path))
        _, _, self.index = name
        context = f"amfs-otel/v1/frame\0{path.parent.name}/{path.name}\0".encode("ascii")
        self._hmac = hmac.new(spool_key, context, "sha256")

    def header(self, kind: bytes, number: int, frame_id: bytes, payload: bytes) -> bytes:
        """The 68 bytes that go before `payload`."""
        fields = _AUTHENTICATED.pack(kind, len(payload), number, frame_id)
        mac = self._mac(fields, payload)
        return _HEADER.pack(MAGIC + kind, len(payload), _crc(fields, mac, payload), number, mac, frame_id)

    def fault(self, header: bytes, payload: bytes) -> Literal["unreadable", "altered"] | None:
        """What is wrong with a complete frame, None when it is as its writer wrote it."""
        magic, length, crc, number, mac, frame_id = _HEADER.unpack(header)
        fields = _AUTHENTICATED.pack(magic[3:], length, number, frame_id)
        if crc != _crc(fields, mac, payload):
            return "unreadable"
        return None if hmac.compare_digest(mac, self._mac(fields, payload)) else "altered"

    def _mac(self, fields: bytes, payload: bytes) -> bytes:
        running = self._hmac.copy()
        running.update(fields)
        running.update(payload)
        return running.digest()


def _crc(fields: bytes, mac: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(mac, zlib.crc32(fields)))


def copied_payload(frame: Frame) -> bytes:
    """The payload of a copy of `frame`: where it was first written, then its bytes."""
    return _ORIGIN.pack(*frame.origin) + frame.payload


def read_frames(path: Path, spool_key: bytes, *, offset: int = 0, number: int = 0) -> Iterator[Frame | Damage]:
    """Read a segment from its beginning, or on from the end of a frame seen before.

    Takes no lock and may be used while the writer appends: it gives what was whole when the reading began. One frame
    is in memory at a time. A segment that is gone was retired by whoever finished it and gives nothing.

    Args:
        path: The segment.
        spool_key: `StateDirectory.spool_key`.
        offset: Where to begin: 0 or the `end` of a frame.
        number: The number of the frame expected there: 0 or that frame's number plus one.

    Raises:
        SpoolError: The file is not a segment or cannot be read.
    """
    seal = FrameSeal(spool_key, path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError as error:
        raise spool_error_from_os_error(error, "a spool segment could not be opened", path) from error
    try:
        yield from _frames(_Source(descriptor, seal), offset, number)
    except OSError as error:
        raise spool_error_from_os_error(error, "a spool segment could not be read", path) from error
    finally:
        os.close(descriptor)


class _Source:
    """An open segment, as long as it was when it was opened.

    Positional reads only: a mapped file that its writer shortens after a full disk would kill the reader.
    """

    def __init__(self, descriptor: int, seal: FrameSeal) -> None:
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._seal = seal

    def bytes_at(self, offset: int, count: int) -> bytes:
        return os.pread(self._descriptor, min(count, self.size - offset), offset)

    def frame_at(self, offset: int, expected: int) -> Frame | _Fault:
        header = self.bytes_at(offset, HEADER_BYTES)
        if not _begins_like_a_frame(header):
            return "unreadable"
        if len(header) < HEADER_BYTES:
            return "torn"
        kind_and_magic, length, _, number, _, frame_id = _HEADER.unpack(header)
        end = offset + HEADER_BYTES + length
        payload = self.bytes_at(offset + HEADER_BYTES, length) if end <= self.size else b""
        if len(payload) < length:
            return "torn"
        fault = self._seal.fault(header, payload)
        if fault is not None:
            return fault
        if number < expected:
            return "altered"
        origin = (self._seal.index, number)
        if kind_and_magic[3:] == COPIED:
            origin = _ORIGIN.unpack_from(payload)
            payload = payload[_ORIGIN.size :]
        return Frame(number, frame_id, payload, offset, end, origin)

    def next_frame(self, offset: int, expected: int) -> Frame | None:
        """The first whole frame that begins at or after `offset`."""
        while offset < self.size:
            window = self.bytes_at(offset, _SCAN_BYTES)
            if not window:  # the writer took a torn frame back meanwhile
                return None
            at = window.find(MAGIC)
            while at >= 0:
                found = self.frame_at(offset + at, expected)
                if isinstance(found, Frame):
                    return found
                at = window.find(MAGIC, at + 1)
            offset += max(len(window) - len(MAGIC) + 1, 1)
        return None


def _begins_like_a_frame(header: bytes) -> bool:
    return MAGIC.startswith(header[:3]) and header[3:4] in (b"", WRITTEN, COPIED)


def _frames(source: _Source, offset: int, expected: int) -> Iterator[Frame | Damage]:
    while offset < source.size:
        found: Frame | _Fault | None = source.frame_at(offset, expected)
        if isinstance(found, Frame):
            if found.number > expected:
                yield Damage(offset, offset, "missing", found.number - expected)
        else:
            fault = found
            found = source.next_frame(offset + 1, expected)
            if found is None:
                if fault != "torn":
                    yield Damage(offset, source.size, fault, None)
                return
            yield Damage(offset, found.start, "unreadable" if fault == "torn" else fault, found.number - expected)
        yield found
        offset, expected = found.end, found.number + 1
