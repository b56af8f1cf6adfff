"""Whatever happens to the bytes of a segment: no frame is invented, none that is whole is lost, each loss is told."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from amfs_otel.spool import Damage, Frame, SpoolWriter, StateDirectory, list_segments, read_frames, read_stream
from amfs_otel.spool.frames import MAGIC
from amfs_otel.spool.open_segment import OpenSegment

KEY = b"k" * 32
payload_lists = st.lists(st.binary(max_size=80) | st.just(MAGIC + b"F") | st.just(MAGIC * 30), min_size=1, max_size=6)


@contextmanager
def written(payloads: list[bytes]) -> Generator[tuple[Path, list[int]]]:
    """A segment with these frames, and the offsets at which frames begin and the last one ends."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "local" / "0000000000000000001-1-records-000000.frames"
        path.parent.mkdir()
        segment = OpenSegment(path, KEY)
        bounds = [0, *(segment.append(number.to_bytes(16), payload).end for number, payload in enumerate(payloads))]
        segment.close()
        yield path, bounds


def frames(items: list[Frame | Damage]) -> list[tuple[int, bytes]]:
    return [(int.from_bytes(item.frame_id), item.payload) for item in items if isinstance(item, Frame)]


@settings(max_examples=80, deadline=None)
@given(payload_lists, st.data())
def test_any_truncation_gives_exactly_the_whole_frames_before_it(payloads: list[bytes], data: st.DataObject) -> None:
    with written(payloads) as (path, bounds):
        length = data.draw(st.integers(0, bounds[-1]))
        path.write_bytes(path.read_bytes()[:length])
        assert list(map(type, read_frames(path, KEY))) == [Frame] * sum(end <= length for end in bounds[1:])


@settings(max_examples=150, deadline=None)
@given(payload_lists, st.data())
def test_any_changed_byte_costs_its_frame_only_and_is_told(payloads: list[bytes], data: st.DataObject) -> None:
    with written(payloads) as (path, bounds):
        at = data.draw(st.integers(0, bounds[-1] - 1))
        content = bytearray(path.read_bytes())
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        hit = sum(end <= at for end in bounds[1:])
        items = list(read_frames(path, KEY))
        assert frames(items) == [pair for pair in enumerate(payloads) if pair[0] != hit]
        told = [(d.start, d.end, d.frames_lost) for d in items if isinstance(d, Damage)]
        if hit < len(payloads) - 1:
            assert told == [(bounds[hit], bounds[hit + 1], 1)]
        else:
            looks_torn = bounds[hit] + 4 <= at < bounds[hit] + 8
            assert told == [(bounds[hit], bounds[hit + 1], None)] or (looks_torn and told == [])


@settings(max_examples=120, deadline=None)
@given(payload_lists, st.binary(max_size=200), st.data())
def test_any_replaced_stretch_never_invents_or_reorders(
    payloads: list[bytes], patch: bytes, data: st.DataObject
) -> None:
    with written(payloads) as (path, bounds):
        start = data.draw(st.integers(0, bounds[-1]))
        end = data.draw(st.integers(start, bounds[-1]))
        content = path.read_bytes()
        path.write_bytes(content[:start] + patch + content[end:])
        items = list(read_frames(path, KEY))
        whole = [
            pair
            for pair, low, high in zip(enumerate(payloads), bounds, bounds[1:], strict=False)
            if high <= start or low >= end
        ]
        found = frames(items)
        assert found == sorted(set(found))
        assert set(whole) <= set(found) <= set(enumerate(payloads))
        positions = [(d.start, d.end) for d in items]
        assert positions == sorted(positions)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("wwwwrc"), st.integers(0, 3), st.integers(0, 300)), min_size=1, max_size=40))
def test_rotating_and_retiring_never_loses_a_frame_of_an_open_window(steps: list[tuple[str, int, int]]) -> None:
    """w: an event of a window; r: rotate and retire the older segments; c: the window closes."""
    with tempfile.TemporaryDirectory() as directory:
        state = StateDirectory(Path(directory))
        open_windows: dict[bytes, list[bytes]] = {}
        with SpoolWriter(state, "local", segment_bytes=700, open_windows=open_windows.keys) as writer:
            for count, (step, window, size) in enumerate(steps):
                window_id = bytes([window]) * 16
                if step == "w":
                    payload = count.to_bytes(4) + b"x" * size
                    open_windows.setdefault(window_id, [])
                    writer.append("journal", window_id, payload)
                    open_windows[window_id].append(payload)
                elif step == "c":
                    open_windows.pop(window_id, None)
                else:
                    writer.rotate("journal")
                    for segment in writer.segments("journal")[:-1]:
                        assert writer.retire(segment)
            stream = read_stream(list_segments(state, "local"), state.spool_key())
            read = [item for _, item in stream if isinstance(item, Frame)]
        for window_id, expected in open_windows.items():
            mine = [f.payload for f in read if f.frame_id == window_id]
            assert mine[len(mine) - len(expected) :] == expected
        assert len({f.payload for f in read}) == len(read)
