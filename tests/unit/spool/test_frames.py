"""Frames: layout, what the reader gives, and what it says about bytes that are not as they were written."""

import os
import struct
import zlib
from pathlib import Path

import pytest

from amfs_otel.errors import SpoolError
from amfs_otel.spool import Damage, Frame, read_frames
from amfs_otel.spool.frames import HEADER_BYTES, MAGIC
from amfs_otel.spool.open_segment import OpenSegment

KEY = bytes(range(32))
IDS = [bytes([number]) * 16 for number in range(8)]


def segment_path(tmp_path: Path, index: int = 0, destination: str = "local") -> Path:
    directory = tmp_path / destination
    directory.mkdir(exist_ok=True)
    return directory / f"0000000000000000001-7-records-{index:06d}.frames"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return segment_path(tmp_path)


def write(path: Path, payloads: list[bytes]) -> list[int]:
    """Write frames; returns the offsets of their ends."""
    segment = OpenSegment(path, KEY)
    ends = [segment.append(IDS[n % 8], payload).end for n, payload in enumerate(payloads)]
    segment.close()
    return ends


def read(path: Path, key: bytes = KEY) -> list[Frame | Damage]:
    return list(read_frames(path, key))


def payloads(items: list[Frame | Damage]) -> list[bytes]:
    return [item.payload for item in items if isinstance(item, Frame)]


def damages(items: list[Frame | Damage]) -> list[Damage]:
    return [item for item in items if isinstance(item, Damage)]


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_frames_come_back_in_order_with_ids_numbers_and_addresses(path: Path) -> None:
    ends = write(path, [b"one", b"", b"x" * 100_000])
    items = read(path)
    assert payloads(items) == [b"one", b"", b"x" * 100_000]
    assert [(f.number, f.frame_id, f.end, f.origin) for f in items if isinstance(f, Frame)] == [
        (n, IDS[n], ends[n], (0, n)) for n in range(3)
    ]
    assert path.stat().st_size == ends[-1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_layout_is_as_documented(path: Path) -> None:
    write(path, [b"payload"])
    data = path.read_bytes()
    magic, kind, length, crc, number, mac, frame_id = struct.unpack(">3scIIQ32s16s", data[:HEADER_BYTES])
    assert (magic, kind, length, number, frame_id) == (MAGIC, b"F", 7, 0, IDS[0])
    fields = struct.pack(">sIQ16s", kind, length, number, frame_id)
    assert crc == zlib.crc32(fields + mac + b"payload")
    with pytest.raises(UnicodeDecodeError):
        MAGIC.decode("utf-8")


def test_reading_goes_on_from_a_frame_seen_before(path: Path) -> None:
    segment = OpenSegment(path, KEY)
    first = segment.append(IDS[0], b"one")
    assert payloads(read(path)) == [b"one"]
    segment.append(IDS[1], b"two")
    assert payloads(list(read_frames(path, KEY, offset=first.end, number=first.number + 1))) == [b"two"]
    segment.close()


@pytest.mark.parametrize("cut", [1, 3, 4, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 4])
def test_a_torn_tail_stops_the_reader_without_a_word(path: Path, cut: int) -> None:
    ends = write(path, [b"first", b"second"])
    os.truncate(path, ends[0] + cut)
    items = read(path)
    assert payloads(items) == [b"first"]
    assert damages(items) == []


@pytest.mark.parametrize("at", [0, 3, 5, 9, 13, 25, 55, HEADER_BYTES, HEADER_BYTES + 3])
def test_damage_in_the_middle_is_named_and_reading_goes_on(path: Path, at: int) -> None:
    ends = write(path, [b"first", b"second", b"third"])
    patch(path, ends[0] + at, bytes([path.read_bytes()[ends[0] + at] ^ 0x10]))
    items = read(path)
    assert payloads(items) == [b"first", b"third"]
    assert damages(items) == [Damage(ends[0], ends[1], "unreadable", 1)]


def test_an_edited_frame_with_its_crc_put_right_is_altered(path: Path) -> None:
    ends = write(path, [b"first", b"amount 10", b"third"])
    data = path.read_bytes()[ends[0] : ends[1]]
    fields = struct.pack(">sIQ16s", b"F", 9, 1, IDS[1])
    mac = data[20:52]
    forged = (
        data[:8] + struct.pack(">I", zlib.crc32(fields + mac + b"amount 99")) + data[12:HEADER_BYTES] + b"amount 99"
    )
    patch(path, ends[0], forged)
    items = read(path)
    assert payloads(items) == [b"first", b"third"]
    assert damages(items) == [Damage(ends[0], ends[1], "altered", 1)]


def test_an_altered_last_frame_is_reported_too(path: Path) -> None:
    ends = write(path, [b"first", b"last"])
    patch(path, ends[1] - 1, b"!")
    assert damages(read(path)) == [Damage(ends[0], ends[1], "unreadable", None)]


def test_a_frame_cut_out_is_a_hole_in_the_numbers(path: Path) -> None:
    ends = write(path, [b"first", b"second", b"third", b"fourth"])
    data = path.read_bytes()
    path.write_bytes(data[: ends[0]] + data[ends[2] :])
    items = read(path)
    assert payloads(items) == [b"first", b"fourth"]
    assert damages(items) == [Damage(ends[0], ends[0], "missing", 2)]


def test_a_repeated_frame_is_altered_and_no_frame_is_lost_by_it(path: Path) -> None:
    ends = write(path, [b"first", b"second"])
    data = path.read_bytes()
    path.write_bytes(data[: ends[0]] + data[: ends[0]] + data[ends[0] :])
    items = read(path)
    assert payloads(items) == [b"first", b"second"]
    assert damages(items) == [Damage(ends[0], 2 * ends[0], "altered", 0)]


def test_frames_of_another_file_destination_or_key_do_not_authenticate(tmp_path: Path, path: Path) -> None:
    ends = write(path, [b"first", b"second"])
    for other in (segment_path(tmp_path, index=1), segment_path(tmp_path, destination="a" * 64)):
        other.write_bytes(path.read_bytes())
        assert read(other) == [Damage(0, ends[1], "altered", None)]
    assert read(path, key=bytes(32)) == [Damage(0, ends[1], "altered", None)]


def test_text_that_looks_like_a_frame_is_only_text(path: Path) -> None:
    inner = path.with_name("0000000000000000001-7-journal-000000.frames")
    write(inner, [b"planted"])
    ends = write(path, [b"first" + inner.read_bytes(), MAGIC * 1000, b"last"])
    assert payloads(read(path))[2] == b"last"
    patch(path, 4, b"\xff")
    items = read(path)
    assert payloads(items) == [MAGIC * 1000, b"last"]
    assert damages(items) == [Damage(0, ends[0], "unreadable", 1)]


def test_zeros_that_a_power_cut_left_are_damage_not_frames(path: Path) -> None:
    ends = write(path, [b"first"])
    with path.open("ab") as file:
        file.write(bytes(100))
    assert damages(read(path)) == [Damage(ends[0], ends[0] + 100, "unreadable", None)]


def test_resynchronises_beyond_the_scan_window(path: Path) -> None:
    ends = write(path, [b"first", b"z" * (3 << 20), b"last"])
    patch(path, ends[0] + 4, b"\x7f")
    items = read(path)
    assert payloads(items) == [b"first", b"last"]
    assert damages(items) == [Damage(ends[0], ends[1], "unreadable", 1)]


def test_a_retired_segment_gives_nothing_and_a_strange_name_is_refused(tmp_path: Path, path: Path) -> None:
    assert read(path) == []
    with pytest.raises(SpoolError, match="not the path of a spool segment"):
        read(tmp_path / "local" / "notes.txt")


def test_an_id_of_another_length_is_refused(path: Path) -> None:
    segment = OpenSegment(path, KEY)
    with pytest.raises(SpoolError, match="16 bytes"):
        segment.append(b"short", b"")
    segment.close()
    assert path.stat().st_size == 0
