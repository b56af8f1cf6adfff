"""What a dead process's files hold besides its finished records."""

from pathlib import Path
from typing import Any

import pytest

from amfs_otel.assemble.journal import ProcessBegan, encoded, frame_id
from amfs_otel.drain.adopt import orphans_of
from amfs_otel.spool import SpoolWriter, StateDirectory, list_segments
from tests.support.capturing import resolved
from tests.unit.assemble.test_assembler import Desk

BEGAN = ProcessBegan({"process_id": 77, "started_us": 5, "service": "s"}, "other-log", "all")


class Dead:
    """A process that journaled and then died."""

    def __init__(self, path: Path) -> None:
        self.state = StateDirectory(path)
        self.writer = SpoolWriter(self.state, "local")
        self.desk = Desk()
        self.written = 0
        self.writer.append("journal", bytes(16), encoded(BEGAN))

    def journal(self) -> None:
        """Writes what the desk has journaled since."""
        for frame, item in list(zip(self.desk.frames, self.desk.journal, strict=True))[self.written :]:
            record_id = getattr(item, "record_id", None) or getattr(item, "target", None) or item.facts.record_id  # type: ignore[union-attr]
            self.writer.append("journal", frame_id(record_id), frame)
        self.written = len(self.desk.frames)

    def orphans(self) -> Any:
        self.writer.close()
        return orphans_of(list_segments(self.state, "local"), self.state.spool_key())


@pytest.fixture
def dead(tmp_path: Path) -> Dead:
    return Dead(tmp_path / "state")


def test_closed_windows_without_a_record_are_signed_as_they_closed_and_open_ones_interrupted(dead: Dead) -> None:
    desk = dead.desk
    closed, opened, empty = desk.window("closed"), desk.window("open"), desk.window("empty")
    desk.done(closed, desk.event())
    desk.done(opened, desk.event())
    desk.close(closed)
    dead.journal()
    found = dead.orphans()
    told = [(resolved(trace)["agent"], resolved(trace)["closed_by"]) for trace in found.traces]
    assert told == [("closed", "exit"), ("open", "interrupted")]
    assert empty not in {trace.window.record_id for trace in found.traces}
    assert found.adopted_from == {"process_id": 77, "started_us": 5}
    assert (found.began.log, found.began.content) == ("other-log", "all")
    assert found.gaps == []


def test_what_has_a_record_is_left_alone(dead: Dead) -> None:
    desk = dead.desk
    window = desk.window()
    desk.done(window, desk.event())
    desk.close(window)
    dead.journal()
    dead.writer.append("records", frame_id(window), b"the record")
    found = dead.orphans()
    assert found.traces == []
    assert found.spooled == {window.replace("-", "")}


def test_an_amendment_that_was_spooled_is_not_made_again(dead: Dead) -> None:
    from amfs_otel.model import EventClosed, EventOpened

    desk = dead.desk
    window, step = desk.window(), desk.event()
    desk.put(EventOpened(window, step))
    desk.close(window)
    desk.end(step, success=True)
    desk.put(EventClosed(window, step))
    dead.journal()
    for trace in desk.traces:
        dead.writer.append("records", frame_id(trace.window.record_id), b"the record")
    assert dead.orphans().traces == []


@pytest.mark.parametrize("cut", [True, False])
def test_damage_is_a_gap_and_a_torn_tail_is_none(dead: Dead, cut: bool) -> None:
    desk = dead.desk
    window = desk.window()
    desk.done(window, desk.event())
    dead.journal()
    dead.writer.close()
    (segment,) = list_segments(dead.state, "local")
    data = bytearray(segment.path.read_bytes())
    if cut:
        data = data[:-7]
    else:
        data[len(data) // 2] ^= 1
    segment.path.write_bytes(data)
    found = dead.orphans()
    assert [(gap.cause, gap.file) for gap in found.gaps] == ([] if cut else [("spool_altered", segment.path.name)])


def test_a_frame_of_a_later_version_is_a_gap_and_the_rest_is_read(dead: Dead) -> None:
    desk = dead.desk
    window = desk.window()
    dead.writer.append("journal", bytes(16), b'{"t":"FromTheFuture"}')
    desk.done(window, desk.event())
    dead.journal()
    found = dead.orphans()
    assert [gap.cause for gap in found.gaps] == ["journal_unreadable"]
    assert len(found.traces) == 1


def test_frames_carried_into_a_new_segment_count_once(tmp_path: Path) -> None:
    dead = Dead(tmp_path / "state")
    dead.writer.close()
    desk, ids = Desk(), set[bytes]()
    writer = SpoolWriter(dead.state, "local", segment_bytes=400, open_windows=lambda: ids)
    window = desk.window()
    ids.add(frame_id(window))
    for _ in range(5):
        desk.done(window, desk.event())
    for frame in desk.frames:
        writer.append("journal", frame_id(window), frame)
    writer.close()
    dead.writer = writer
    segments = [s for s in list_segments(dead.state, "local") if s.writer == writer.name]
    assert len(segments) > 1
    (trace,) = orphans_of(segments, dead.state.spool_key()).traces
    assert len(trace.facts["events"]) == 5
