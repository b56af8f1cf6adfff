"""The writer: streams, segments, copying forward, limits, full disks, removed directories, forks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from amfs_otel.errors import SpoolError
from amfs_otel.spool import (
    Damage,
    Frame,
    Pressure,
    SpoolFull,
    SpoolWriter,
    StateDirectory,
    adopt,
    list_segments,
    read_frames,
    read_stream,
)

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state")


def contents(state: StateDirectory, stream: str, destination: str = "local") -> list[bytes]:
    segments = [s for s in list_segments(state, destination) if s.stream == stream]
    return [item.payload for _, item in read_stream(segments, state.spool_key()) if isinstance(item, Frame)]


def test_nothing_is_touched_before_the_first_append(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as writer:
        writer.sync()
        writer.rotate("journal")
        writer.rotate_due()
    assert not state.path.exists()


def test_two_streams_and_the_address_of_a_frame(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as writer:
        address = writer.append("records", A, b"record")
        writer.append("journal", B, b"event")
        writer.sync()
        (frame,) = read_frames(address.path, state.spool_key())
        assert isinstance(frame, Frame)
        assert (frame.payload, frame.start, frame.end) == (b"record", address.start, address.end)
    assert (contents(state, "records"), contents(state, "journal")) == ([b"record"], [b"event"])
    assert [s.stream for s in list_segments(state, "local")] == ["journal", "records"]


def test_segments_are_cut_by_size(state: StateDirectory) -> None:
    with SpoolWriter(state, "local", segment_bytes=1000) as writer:
        for number in range(20):
            writer.append("records", A, bytes([number]) * 200)
        segments = writer.segments("records")
    assert [s.index for s in segments] == list(range(len(segments)))
    assert len(segments) == 7
    assert all(s.path.stat().st_size <= 1000 for s in segments)
    assert contents(state, "records") == [bytes([n]) * 200 for n in range(20)]


def test_a_frame_larger_than_a_segment_gets_one_of_its_own(state: StateDirectory) -> None:
    with SpoolWriter(state, "local", segment_bytes=1000) as writer:
        for size in (10, 5000, 10):
            writer.append("records", A, b"x" * size)
        assert len(writer.segments("records")) == 3


def test_segments_are_cut_by_age_when_asked(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with SpoolWriter(state, "local", max_age_s=600) as writer:
        writer.append("records", A, b"old")
        now += 599
        writer.rotate_due()
        assert len(writer.segments("records")) == 1
        now += 1
        writer.rotate_due()
        now += 1000
        writer.rotate_due()
        assert len(writer.segments("records")) == 2, "an empty segment is not cut again"
    assert len(list_segments(state, "local")) == 1, "closing removes the empty one"


def test_frames_of_open_windows_are_copied_forward_and_read_once(state: StateDirectory) -> None:
    open_windows = {A, B}
    with SpoolWriter(state, "local", open_windows=lambda: open_windows) as writer:
        for window, payload in ((A, b"a1"), (B, b"b1"), (C, b"c1"), (A, b"a2")):
            writer.append("journal", window, payload)
        writer.rotate("journal")
        writer.append("journal", A, b"a3")
        assert contents(state, "journal") == [b"a1", b"b1", b"c1", b"a2", b"a3"]
        assert writer.retire(writer.segments("journal")[0])
        assert contents(state, "journal") == [b"a1", b"b1", b"a2", b"a3"]
        open_windows.discard(B)
        writer.rotate("journal")
        assert contents(state, "journal") == [b"a1", b"b1", b"a2", b"a3"]
        assert writer.retire(writer.segments("journal")[0])
        assert contents(state, "journal") == [b"a1", b"a2", b"a3"]
        (segment,) = writer.segments("journal")
        frames = [f for f in read_frames(segment.path, state.spool_key()) if isinstance(f, Frame)]
        assert [f.origin for f in frames] == [(0, 0), (0, 3), (1, 3)]
        assert [f.number for f in frames] == [0, 1, 2]


def test_a_window_larger_than_a_segment_does_not_cut_one_for_each_event(state: StateDirectory) -> None:
    with SpoolWriter(state, "local", segment_bytes=1000, open_windows=lambda: {A}) as writer:
        for _ in range(40):
            writer.append("journal", A, b"x" * 200)
        assert len(writer.segments("journal")) == 14


def test_damage_met_while_copying_is_handed_to_the_caller(state: StateDirectory) -> None:
    with SpoolWriter(state, "local", open_windows=lambda: {A}) as writer:
        first = writer.append("journal", A, b"first")
        writer.append("journal", A, b"second")
        with first.path.open("r+b") as file:
            file.seek(first.end - 1)
            file.write(b"!")
        writer.rotate("journal")
        assert writer.damage_seen == [(first.path, Damage(0, first.end, "unreadable", 1))]


def test_the_limit_is_kept_and_the_reserve_is_for_losses(state: StateDirectory) -> None:
    with SpoolWriter(state, "local", limit_bytes=10_000) as writer:
        writer.append("records", A, b"x" * 4900)
        assert writer.pressure() is Pressure.NONE
        writer.append("records", A, b"x" * 100)
        assert writer.pressure() is Pressure.WARN
        writer.append("records", A, b"x" * 4000)
        assert writer.pressure() is Pressure.NO_MESSAGE_PARTS
        with pytest.raises(SpoolFull, match="limit"):
            writer.append("records", B, b"x" * 1000)
        writer.append("records", B, b"x" * 1000, reserved=True)
        assert writer.pressure() is Pressure.FULL
    assert [len(p) for p in contents(state, "records")] == [4900, 100, 4000, 1000]


def test_room_that_others_made_is_seen(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with (
        SpoolWriter(state, "local", limit_bytes=10_000) as other,
        SpoolWriter(state, "local", limit_bytes=10_000) as writer,
    ):
        other.append("records", A, b"x" * 9000)
        with pytest.raises(SpoolFull):
            writer.append("records", A, b"x" * 2000)
        other.rotate("records")
        assert other.retire(other.segments("records")[0])
        now += 1
        writer.append("records", A, b"x" * 2000)


FILE_LIMIT = """
import json, resource, sys
from pathlib import Path
from amfs_otel.spool import *
state = StateDirectory(Path(sys.argv[1]))
writer = SpoolWriter(state, "local", open_windows=lambda: {b"w" * 16})
address = writer.append("records", b"a" * 16, b"x" * 3000)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
try:
    writer.append("records", b"b" * 16, b"y" * 3000)
    outcome = "taken"
except SpoolFull as error:
    outcome = error.what
size = address.path.stat().st_size
writer.append("records", b"c" * 16, b"z" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.append("records", b"d" * 16, b"y" * 3000)
writer.sync()
writer.close()
print(json.dumps([outcome, size, address.end]))
"""


def test_a_write_that_stops_halfway_is_taken_back_and_the_writer_goes_on(state: StateDirectory) -> None:
    """A file size limit makes the kernel write half a frame, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(state.path)], check=True, capture_output=True, text=True, timeout=60
    )
    outcome, size, end = json.loads(done.stdout)
    assert outcome == "a frame could not be written whole"
    assert size == end
    assert [len(p) for p in contents(state, "records")] == [3000, 100, 3000]


def test_a_disk_that_refuses_is_told_and_the_writer_goes_on(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with SpoolWriter(state, "local") as writer:
        writer.append("records", A, b"one")
        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", no_space)
            with pytest.raises(SpoolFull, match="No space left"):
                writer.append("records", B, b"two")
        writer.append("records", C, b"three")
    assert contents(state, "records") == [b"one", b"three"]


def test_frames_of_one_append_are_written_at_once_and_read_one_by_one(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = os.writev

    def counted(descriptor: int, buffers: Sequence[bytes]) -> int:
        written.append(sum(map(len, buffers)))
        return real(descriptor, buffers)

    with SpoolWriter(state, "local", segment_bytes=2000, open_windows=lambda: {A}) as writer:
        writer.append("journal", A, b"first")
        monkeypatch.setattr(os, "writev", counted)
        writer.extend("journal", [(A, b"one"), (B, b"two"), (A, b"x" * 500)])
        assert len(written) == 1
        writer.extend("journal", [(C, b"y" * 1500)])
        assert len(writer.segments("journal")) == 2, "cut before them, where they do not fit"
        assert writer.used_bytes() >= sum(written)
    assert contents(state, "journal") == [b"first", b"one", b"two", b"x" * 500, b"y" * 1500]


def test_of_frames_that_could_not_be_written_whole_none_stays(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev

    def halfway(descriptor: int, buffers: Sequence[bytes]) -> int:
        return real(descriptor, [b"".join(buffers)[:150]])

    with SpoolWriter(state, "local") as writer:
        writer.append("records", A, b"before")
        with monkeypatch.context() as full:
            full.setattr(os, "writev", halfway)
            with pytest.raises(SpoolFull, match="could not be written whole"):
                writer.extend("records", [(A, b"1" * 30), (B, b"2" * 30)])
        with pytest.raises(SpoolError, match="not a frame"):
            writer.extend("records", [(A, b"good"), (b"short", b"bad")])
        writer.extend("records", [(C, b"after")])
    assert contents(state, "records") == [b"before", b"after"]


def test_frames_beyond_the_limit_are_refused_together(state: StateDirectory) -> None:
    with SpoolWriter(state, "local", limit_bytes=1000) as writer:
        with pytest.raises(SpoolFull, match="reached its limit"):
            writer.extend("records", [(A, b"x" * 300), (B, b"x" * 700)])
        writer.extend("records", [(A, b"x" * 300)])
    assert contents(state, "records") == [b"x" * 300]


def test_without_room_for_the_copies_the_old_segment_stays_in_use(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev

    def only_small(descriptor: int, buffers: tuple[bytes, ...]) -> int:
        if sum(map(len, buffers)) > 500:
            raise OSError(28, "No space left on device")
        return real(descriptor, buffers)

    with SpoolWriter(state, "local", segment_bytes=1000, open_windows=lambda: {A}) as writer:
        writer.append("journal", A, b"x" * 800)
        monkeypatch.setattr(os, "writev", only_small)
        for _ in range(3):
            writer.append("journal", A, b"y" * 200)
        assert len(writer.segments("journal")) == 1
    assert [len(p) for p in contents(state, "journal")] == [800, 200, 200, 200]


def test_a_failed_sync_is_told_once_and_a_new_segment_is_begun(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    with SpoolWriter(state, "local") as writer:
        first = writer.append("records", A, b"one")
        with monkeypatch.context() as patched:
            patched.setattr("amfs_otel.spool.open_segment.sync_data", broken)
            with pytest.raises(SpoolError, match="may not be on the medium"):
                writer.sync()
        writer.sync()
        again = writer.append("records", A, b"one")
        assert again.path != first.path
        writer.sync()


def test_a_removed_directory_is_told_and_made_again(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as writer:
        address = writer.append("records", A, b"lost")
        key = state.spool_key()
        address.path.unlink()
        for directory, _, files in os.walk(state.path, topdown=False):
            for name in files:
                Path(directory, name).unlink()
            Path(directory).rmdir()
        with pytest.raises(SpoolError, match="removed while it was written"):
            writer.sync()
        writer.append("records", A, b"kept")
        writer.sync()
        assert state.spool_key() == key
        assert contents(state, "records") == [b"kept"]
        assert [s.alive for s in list_segments(state, "local")] == [True]


def test_a_directory_that_cannot_be_made_is_a_spool_error_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = SpoolWriter(StateDirectory(tmp_path / "file"), "local")
    for _ in range(2):
        with pytest.raises(SpoolError, match="AMFS_OTEL_STATE_DIR"):
            writer.append("records", A, b"")
    writer.close()


def test_a_read_only_directory_is_told_and_taken_again_when_writable(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: object, flags: int, *_: object, **__: object) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system")
        return real(path, flags)  # type: ignore[arg-type]

    real = os.open
    with SpoolWriter(state, "local") as writer:
        state.spool_key()
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", read_only)
            with pytest.raises(SpoolError, match=r"Read-only.*AMFS_OTEL_STATE_DIR"):
                writer.append("records", A, b"one")
        writer.append("records", A, b"two")
    assert contents(state, "records") == [b"two"]


def test_a_closed_writer_refuses_and_closing_twice_is_fine(state: StateDirectory) -> None:
    writer = SpoolWriter(state, "local")
    writer.append("records", A, b"")
    writer.close()
    writer.close()
    with pytest.raises(SpoolError, match="closed"):
        writer.append("records", A, b"")


def test_a_writer_whose_work_is_done_leaves_no_file(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as writer:
        writer.append("records", A, b"done")
        writer.rotate("records")
        for segment in writer.segments("records"):
            writer.retire(segment)
    assert list((state.spool / "local").iterdir()) == []


def test_the_segment_in_use_and_strangers_are_not_retired(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as one, SpoolWriter(state, "local") as two:
        one.append("records", A, b"")
        two.append("records", A, b"")
        assert not one.retire(one.segments("records")[0])
        two.rotate("records")
        assert not one.retire(two.segments("records")[0])


def in_child(work: Callable[[], int]) -> int:
    """Fork, run, and give the child's exit status; the child never returns into the test."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("told", [True, False])
def test_a_forked_child_lets_go_and_the_parent_keeps_its_lock(state: StateDirectory, told: bool) -> None:
    writer = SpoolWriter(state, "local")
    address = writer.append("records", A, b"parent")
    open_before = len(list(Path("/dev/fd").iterdir()))

    def child() -> int:
        if told:
            writer.after_fork_in_child()
        try:
            writer.append("records", B, b"child")
        except SpoolError:
            writer.close()
        if len(list(Path("/dev/fd").iterdir())) != open_before - 2:
            return 3
        with SpoolWriter(state, "local") as own:
            own.append("records", B, b"child's own")
        return 0

    assert in_child(child) == 0
    segments = {s.path: s.alive for s in list_segments(state, "local")}
    assert segments.pop(address.path) is True
    assert list(segments.values()) == [False]
    writer.append("records", A, b"still")
    writer.close()
    assert sorted(contents(state, "records")) == [b"child's own", b"parent", b"still"]


def test_the_files_of_a_killed_parent_are_free_though_its_child_lives(state: StateDirectory) -> None:
    code = f"""
import os, signal, time
from pathlib import Path
from amfs_otel.spool import *
writer = SpoolWriter(StateDirectory(Path({str(state.path)!r})), "local")
writer.append("records", b"a" * 16, b"x")
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.write(tell, b"x")
    os.read(0, 1)
    os._exit(0)
os.read(ready, 1)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert process.wait(60) == -signal.SIGKILL
            os.kill(child, 0)
            (segment,) = list_segments(state, "local")
            with adopt(segment) as adoption:
                assert adoption is not None
        finally:
            os.kill(child, signal.SIGKILL)
