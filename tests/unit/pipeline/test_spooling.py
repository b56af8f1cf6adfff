"""Frames that wait for others: when they are written, and what becomes of those that find no room."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from amfs_otel import guard
from amfs_otel.assemble.prepare import LONG, Preparer
from amfs_otel.capture.content import Masker
from amfs_otel.pipeline import spooling
from amfs_otel.pipeline.spooling import Spooling
from amfs_otel.settings import LedgerContent, Settings
from amfs_otel.spool import LOCAL, Frame, StateDirectory, list_segments, read_stream

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))
FAR = "f" * 64


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state")


Made = Callable[..., Spooling]


@pytest.fixture
def made(state: StateDirectory) -> Iterator[Made]:
    """Makes one for the given open windows and settings; closed at the end, so that no lock stays taken."""
    guard.reset()
    all_made: list[Spooling] = []

    def make(windows: Sequence[bytes] = (), **settings: Any) -> Spooling:
        all_made.append(Spooling(Settings(state_dir=state.path, program="p", **settings), state, lambda: windows))
        return all_made[-1]

    yield make
    for one in all_made:
        one.close(journal_done=False)
    guard.reset()


def contents(state: StateDirectory, stream: str, destination: str = LOCAL) -> list[bytes]:
    segments = [s for s in list_segments(state, destination) if s.stream == stream]
    return [item.payload for _, item in read_stream(segments, state.spool_key()) if isinstance(item, Frame)]


def test_frames_wait_for_others_and_are_written_in_order(made: Made, state: StateDirectory) -> None:
    ours = made()
    ours.journal(A, b"one")
    ours.record(B, b"record")
    ours.journal(A, b"two")
    assert (contents(state, "journal"), ours.journaled, ours.spooled) == ([], 0, 0)
    ours.write()
    assert (contents(state, "journal"), contents(state, "records")) == ([b"one", b"two"], [b"record"])
    assert (ours.journaled, ours.spooled, ours.sync()) == (2, 1, [])


def test_no_frame_waits_longer_than_it_may(made: Made, state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ours = made()
    ours.journal(A, b"one")
    now += spooling.HELD_S / 2
    ours.journal(A, b"two")
    assert contents(state, "journal") == []
    now += spooling.HELD_S / 2
    ours.journal(A, b"three")
    assert contents(state, "journal") == [b"one", b"two", b"three"]


def test_no_more_bytes_wait_than_may(made: Made, state: StateDirectory) -> None:
    ours = made()
    ours.journal(A, b"x" * (spooling.HELD_BYTES - 1))
    assert contents(state, "journal") == []
    ours.journal(A, b"xx")
    assert len(contents(state, "journal")) == 2


@pytest.mark.parametrize("value", ["long " * LONG, ["long " * LONG], [{1: "not plain"}]], ids=["text", "json", "other"])
def test_what_waits_is_written_before_what_may_take_long(made: Made, state: StateDirectory, value: Any) -> None:
    ours = made()
    ours.journal(A, b"before")
    seen: list[list[bytes]] = []

    def look(text: str) -> str:
        seen.append(contents(state, "journal"))
        return text

    masker = Masker(functions=(look,))
    Preparer(LedgerContent.ALL, masker, None, before_long=ours.write).value("result", value, [])
    assert seen
    assert all(journal == [b"before"] for journal in seen)


def test_where_not_all_find_room_each_is_tried(
    made: Made, state: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    ours = made(spool_limit_bytes=2000)
    for identity, size in ((A, 500), (B, 1500), (C, 500)):
        ours.record(identity, identity[:1] * size)
    assert ours.sync() == [B]
    assert contents(state, "records") == [b"a" * 500, b"c" * 500]
    assert (ours.spooled, ours.lost, ours.usable) == (2, {"spool_full": 1}, True)
    assert "evidence is being lost" in caplog.text
    assert ours.sync() == [], "told once"


def test_what_may_not_be_on_the_medium_is_told(
    made: Made, state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    ours = made()
    ours.record(A, b"one")
    with monkeypatch.context() as disk:
        disk.setattr("amfs_otel.spool.open_segment.sync_data", broken)
        ours.record(B, b"two")
        assert ours.sync() == [A, B]
    ours.record(C, b"three")
    assert ours.sync() == []


def test_the_journal_moves_whole_or_stays(made: Made, state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = made([A, B])
    ours.begin(b"began")
    ours.journal(A, b"one")
    ours.journal(B, b"x" * 1000)
    real = os.writev

    def only_small(descriptor: int, buffers: Sequence[bytes]) -> int:
        if sum(map(len, buffers)) > 500:
            raise OSError(28, "No space left on device")
        return real(descriptor, buffers)

    ours.write()
    with monkeypatch.context() as disk:
        disk.setattr(os, "writev", only_small)
        ours.settle(FAR)
    assert contents(state, "journal") == [b"began", b"one", b"x" * 1000]
    assert contents(state, "journal", FAR) == [b"began", b"one"]
    ours.settle(LOCAL)
    assert contents(state, "journal", FAR) == []


def test_a_forked_child_writes_nothing_that_waited(made: Made, state: StateDirectory) -> None:
    ours = made()
    ours.journal(A, b"parent's")
    child = os.fork()
    if not child:
        ours.after_fork_in_child()
        ours.write()
        os._exit(len(contents(state, "journal")))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ours.write()
    assert contents(state, "journal") == [b"parent's"]
