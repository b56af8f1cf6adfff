"""Status files: atomic, at most one a second, newest first, not without end."""

import errno
import os
from pathlib import Path

import pytest

from amfs_otel.errors import SpoolError
from amfs_otel.spool import StateDirectory, StatusFile, read_newest
from amfs_otel.spool.failures import SpoolFull
from amfs_otel.spool.state_directory import ensure_key_file
from tests.support.no_room import no_room


def test_a_status_is_written_at_most_once_a_second_and_at_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    state = StateDirectory(tmp_path)
    status = StatusFile(state, 7)
    assert status.write({"n": 1})
    assert not status.write({"n": 2})
    now += 1
    assert status.write({"n": 3})
    assert status.write({"n": 4}, at_exit=True)
    (read,) = read_newest(state)
    assert (read.start, read.pid, read.facts) == (7, os.getpid(), {"n": 4})
    assert [p.name for p in state.status.iterdir()] == [f"{7:019d}-{os.getpid()}.json"]


def test_the_newest_come_first_and_what_is_not_json_is_not_hidden(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path).open()
    for start in range(1, 31):
        (state.status / f"{start}-{start + 100}.json").write_text(f'{{"start": {start}}}')
    (state.status / "30-130.json").write_text("{half")
    (state.status / "29-129.json").write_text("[]")
    (state.status / "notes.json").write_text("{}")
    read = read_newest(state, 4)
    assert [(s.start, s.pid, s.facts) for s in read] == [
        (30, 130, None),
        (29, 129, None),
        (28, 128, {"start": 28}),
        (27, 127, {"start": 27}),
    ]
    assert len(read_newest(state)) == 20


def test_short_lived_processes_do_not_fill_the_disk(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path).open()
    for start in range(250):
        (state.status / f"{start:019d}-1.json").write_text("{}")
    StatusFile(state, 1000).write({})
    kept = read_newest(state, 1000)
    assert (len(kept), kept[0].start, kept[-1].start) == (201, 1000, 50)


def test_an_unwritable_directory_is_a_spool_error_and_a_missing_one_reads_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError):
        StatusFile(StateDirectory(tmp_path / "file"), 1).write({})
    assert read_newest(StateDirectory(tmp_path / "none")) == []


def test_a_full_disk_keeps_the_old_status_and_is_no_error(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    status = StatusFile(state, 7)
    with no_room():
        assert not status.write({"n": 1})
    assert status.is_due(), "it is tried again"
    assert status.write({"n": 2})
    with no_room():
        assert not status.write({"n": 3}, at_exit=True)
    (read,) = read_newest(state)
    assert read.facts == {"n": 2}


def test_a_directory_for_which_there_is_no_room_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.mkdir", full)
    assert not StatusFile(StateDirectory(tmp_path / "state"), 7).write({"n": 1})


def test_a_key_file_without_room_says_nothing_of_frames(tmp_path: Path) -> None:
    with no_room(), pytest.raises(SpoolFull) as raised:
        ensure_key_file(tmp_path / "spool.key", "text")
    assert str(raised.value).endswith("Make room on this disk.")
    assert not list(tmp_path.iterdir())
