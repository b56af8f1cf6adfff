"""The segment a writer is appending to: one `writev` for each append, and nothing half-written left behind."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from amfs_otel.errors import SpoolError
from amfs_otel.spool.durable import sync_data, sync_directory
from amfs_otel.spool.failures import SpoolFull, spool_error_from_os_error
from amfs_otel.spool.frames import COPIED, MAX_PAYLOAD_BYTES, WRITTEN, Frame, FrameSeal, copied_payload


@dataclass(frozen=True, slots=True)
class FrameAddress:
    """Where a frame stands.

    Attributes:
        path: Its segment.
        number: Its number there.
        start: Offset of its first byte.
        end: Offset after its last byte.
    """

    path: Path
    number: int
    start: int
    end: int


class OpenSegment:
    """A new segment, its name durable. Not safe in threads; after fork only `close` may be called.

    Args:
        path: Must not exist; its directory must.
        spool_key: `StateDirectory.spool_key`.

    Raises:
        SpoolError: It cannot be made.

    Attributes:
        path: The file.
        size: Bytes in it.
        carried_bytes: How many of them are copies from the segment before.
        broken: Set when the file can no longer be trusted to take frames: begin another segment.
    """

    def __init__(self, path: Path, spool_key: bytes) -> None:
        self.path = path
        self.size = 0
        self.carried_bytes = 0
        self.broken = False
        self._frames = 0
        self._synced_size = 0
        self._seal = FrameSeal(spool_key, path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(path, flags, 0o600)
            sync_directory(path.parent)
        except OSError as error:
            raise spool_error_from_os_error(error, "a spool segment could not be made", path, frames=True) from error

    def append(self, frame_id: bytes, payload: bytes) -> FrameAddress:
        """Write one frame. It survives this process at once and a power cut after `sync`.

        Raises:
            SpoolError: It was not written, and nothing of it stays in the file; `SpoolFull` when room is missing.
        """
        number, start = self._frames, self.size
        self._write(self._frame(WRITTEN, number, frame_id, payload), 1)
        return FrameAddress(self.path, number, start, self.size)

    def extend(self, frames: Sequence[tuple[bytes, bytes]]) -> None:
        """Write frames, each an id and a payload, with one system call; otherwise as `append`, for all of them or none.

        Raises:
            SpoolError: As `append`.
        """
        pieces: list[bytes] = []
        for number, (frame_id, payload) in enumerate(frames, self._frames):
            pieces += self._frame(WRITTEN, number, frame_id, payload)
        self._write((b"".join(pieces),), len(frames))

    def carry(self, frame: Frame) -> None:
        """Write a copy of a frame of the segment before.

        Raises:
            SpoolError: As `append`.
        """
        start = self.size
        self._write(self._frame(COPIED, self._frames, frame.frame_id, copied_payload(frame)), 1)
        self.carried_bytes += self.size - start

    def sync(self) -> None:
        """Block until all frames are on the medium; does nothing when they are.

        Raises:
            SpoolError: They may not be, and must be written again to another segment: after a failed sync the kernel
                forgets what it could not write, so that a second try would succeed without them. Also when somebody
                removed the file. Told once.
        """
        if self._synced_size == self.size:
            return
        try:
            sync_data(self._descriptor)
            named = os.fstat(self._descriptor).st_nlink > 0
        except OSError as error:
            self._give_up()
            raise spool_error_from_os_error(error, "spooled frames may not be on the medium", self.path) from error
        if not named:
            self._give_up()
            raise SpoolError(
                "a spool segment was removed while it was written",
                where=str(self.path),
                hint="Leave the state directory alone while agents run; the frames of this segment are lost.",
            )
        self._synced_size = self.size

    def close(self) -> None:
        """Close the descriptor, without a sync; idempotent, never raises, safe in a forked child."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _give_up(self) -> None:
        self.broken = True
        self._synced_size = self.size

    def _frame(self, kind: bytes, number: int, frame_id: bytes, payload: bytes) -> tuple[bytes, bytes]:
        if len(frame_id) != 16 or len(payload) > MAX_PAYLOAD_BYTES:
            raise SpoolError(
                "not a frame",
                expected="an id of 16 bytes and a payload below 4 GiB",
                got=f"{len(frame_id)} and {len(payload)} bytes",
            )
        return self._seal.header(kind, number, frame_id, payload), payload

    def _write(self, pieces: Sequence[bytes], frames: int) -> None:
        wanted = sum(map(len, pieces))
        try:
            written = os.writev(self._descriptor, pieces)
        except OSError as error:
            raise spool_error_from_os_error(error, "a frame could not be written", self.path, frames=True) from error
        if written != wanted:
            self._take_back(written, wanted)
        self.size += wanted
        self._frames += frames

    def _take_back(self, written: int, wanted: int) -> None:
        """A write that stopped halfway means a full disk or a file size limit: cut off again what was written.

        Where even that fails, whole frames of it may stay, and are written to another segment once more: what they hold
        is known by its id, so a reader takes it once.
        """
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self.broken = True
        raise SpoolFull(
            "a frame could not be written whole",
            where=str(self.path),
            expected=f"{wanted} bytes",
            got=f"{written}",
            hint="Make room on this disk; frames are taken again as soon as they fit.",
        )
