"""Listing, adoption and retirement: who is alive, who gets what, what may go."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from amfs_otel.errors import SpoolError
from amfs_otel.spool import SpoolWriter, StateDirectory, adopt, destinations, list_segments, retire

A = b"a" * 16
FAR = "f" * 64


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state")


def dead_writer(state: StateDirectory, *, segments: int = 1) -> None:
    """A process that spools and is killed."""
    code = f"""
import os, signal
from pathlib import Path
from amfs_otel.spool import *
writer = SpoolWriter(StateDirectory(Path({str(state.path)!r})), "local")
for _ in range({segments}):
    writer.rotate("records")
    writer.append("records", {A!r}, b"x")
writer.append("journal", {A!r}, b"x")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == -signal.SIGKILL


def test_an_empty_or_missing_spool_has_no_segments(state: StateDirectory) -> None:
    assert (destinations(state), list_segments(state, "local")) == ([], [])
    assert not state.path.exists()


def test_the_listing_knows_all_from_the_names(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as near, SpoolWriter(state, FAR) as far:
        near.append("records", A, b"")
        near.rotate("records")
        near.append("journal", A, b"")
        far.append("records", A, b"")
        (state.spool / "local" / "notes.txt").write_text("not ours")
        (state.spool / "elsewhere").mkdir()
        assert destinations(state) == [FAR, "local"]
        listed = list_segments(state, "local")
        assert [(s.stream, s.index, s.pid, s.start, s.destination, s.alive) for s in listed] == [
            (stream, index, os.getpid(), near.name.start, "local", True)
            for stream, index in (("journal", 0), ("records", 0), ("records", 1))
        ]
        assert [s.destination for s in list_segments(state, FAR)] == [FAR]
    assert not any(s.alive for s in list_segments(state, "local"))


def test_a_living_writer_is_not_adopted_not_even_by_its_own_process(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as writer:
        writer.append("records", A, b"")
        writer.rotate("records")
        for segment in list_segments(state, "local"):
            with adopt(segment) as adoption:
                assert adoption is None


def test_a_dead_writers_files_are_adopted_together_and_leave_nothing(state: StateDirectory) -> None:
    dead_writer(state, segments=2)
    listed = list_segments(state, "local")
    assert [(s.stream, s.index, s.alive) for s in listed] == [
        ("journal", 0, False),
        ("records", 0, False),
        ("records", 1, False),
    ]
    with adopt(listed[0]) as adoption:
        assert adoption is not None
        assert adoption.segments == listed
        assert all(s.alive for s in list_segments(state, "local")), "held, so nobody else's"
        with adopt(listed[1]) as second:
            assert second is None
        assert all(adoption.retire(segment) for segment in adoption.segments)
        assert not adoption.retire(listed[0])
    assert list((state.spool / "local").iterdir()) == []


def test_what_an_adopter_leaves_can_be_adopted_again(state: StateDirectory) -> None:
    dead_writer(state)
    listed = list_segments(state, "local")
    for _ in range(2):
        with adopt(listed[0]) as adoption:
            assert adoption is not None
            assert adoption.segments == listed


def test_an_adoption_does_not_reach_other_writers_files(state: StateDirectory) -> None:
    dead_writer(state)
    with SpoolWriter(state, "local") as writer:
        writer.append("records", A, b"")
        (own,) = writer.segments("records")
        with adopt(list_segments(state, "local")[0]) as adoption:
            assert adoption is not None
            assert not adoption.retire(own)
        assert own.path.exists()


def test_of_many_adopters_exactly_one_wins_while_others_look_on(state: StateDirectory) -> None:
    dead_writer(state)
    segment = list_segments(state, "local")[0]
    barrier = threading.Barrier(6)
    all_tried = threading.Barrier(6)
    wins: list[bool] = []

    def try_it() -> None:
        barrier.wait()
        list_segments(state, "local")
        with adopt(segment) as adoption:
            wins.append(adoption is not None)
            all_tried.wait(30)

    threads = [threading.Thread(target=try_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == [False] * 5 + [True]


def test_a_child_forked_during_an_adoption_holds_nothing(state: StateDirectory) -> None:
    dead_writer(state)
    segment = list_segments(state, "local")[0]
    reader, writer = os.pipe()
    with adopt(segment) as adoption:
        assert adoption is not None
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    os.close(reader)
    with adopt(segment) as again:
        assert again is not None
    os.close(writer)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_stranger_removes_a_living_writers_older_segments_only(state: StateDirectory) -> None:
    with SpoolWriter(state, "local") as writer:
        writer.append("records", A, b"")
        writer.append("journal", A, b"")
        writer.rotate("records")
        writer.append("records", A, b"")
        older, newest = writer.segments("records")
        assert retire(older)
        assert not retire(older)
        assert not retire(newest)
        assert not retire(writer.segments("journal")[0])
        assert newest.path.exists()
    assert retire(newest), "dead now"
    assert not newest.path.exists()


def test_without_locks_nothing_is_spooled_and_nobody_is_adopted(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    dead_writer(state)
    monkeypatch.setattr("fcntl.flock", no_locks)
    with SpoolWriter(state, "local") as writer, pytest.raises(SpoolError, match="No locks available"):
        writer.append("records", A, b"")
    segments = list_segments(state, "local")
    assert all(s.alive for s in segments)
    with pytest.raises(SpoolError, match="No locks available"), adopt(segments[0]):
        pass


def test_a_spool_that_cannot_be_listed_is_a_spool_error(state: StateDirectory) -> None:
    state.open()
    (state.spool / "local").write_text("a file")
    with pytest.raises(SpoolError, match="cannot be listed"):
        list_segments(state, "local")
