"""Trying what a process would do, on a real file system."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs_otel.doctor.trying import mask_problems_of, refusal_of
from amfs_otel.spool import StateDirectory
from tests.support.no_room import no_room

NOBODY = 65534


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    """A directory into which this test's user may not look; root becomes somebody else meanwhile."""
    directory = tmp_path / "forbidden"
    (directory / "inner").mkdir(parents=True)
    directory.chmod(0)
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    yield directory / "inner" / "state"
    os.seteuid(was)
    directory.chmod(0o700)


def test_a_directory_that_would_be_made_is_made_and_removed_again(tmp_path: Path) -> None:
    assert refusal_of(StateDirectory(tmp_path / "a" / "b" / "state")) is None
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_use_stays_as_it_is(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state").open()
    (state.keys / "writer.key").write_text("x", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    assert refusal_of(state) is None
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_where_one_may_not_look(forbidden: Path) -> None:
    refusal = refusal_of(StateDirectory(forbidden))
    assert refusal is not None
    assert "Permission denied" in refusal.problem
    assert not refusal.no_room


def test_a_disk_without_room_is_told_from_a_missing_right(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state").open()
    with no_room():
        refusal = refusal_of(state)
    assert refusal is not None
    assert refusal.no_room
    assert "File too large" in refusal.problem


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("", encoding="utf-8")
    assert refusal_of(StateDirectory(tmp_path / "state")) is not None


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has /proc, writable by its mode bits and by nothing else"
)
def test_a_file_system_that_takes_nothing_whatever_its_mode_bits_say() -> None:
    refusal = refusal_of(StateDirectory(Path("/proc/state-of-amfs-otel")))
    assert refusal is not None
    assert "/proc/state-of-amfs-otel" in refusal.problem


def test_good_patterns_have_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "patterns"
    file.write_text("# ( a comment\n\nEMP-[0-9]{6}\n", encoding="utf-8")
    assert mask_problems_of(file) == ()
    assert mask_problems_of(None) == ()


def test_each_bad_pattern_is_named_by_its_line_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "patterns"
    file.write_text("EMP-[0-9]{6}\nsecret(\na{99999999999999999999}\n", encoding="utf-8")
    first, second = mask_problems_of(file)
    assert "line 2" in first
    assert "secret" not in first
    assert "line 3" in second


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "patterns"
    if content is not None:
        file.write_bytes(content)
    (problem,) = mask_problems_of(file)
    assert str(file) in problem
