"""Writers killed with SIGKILL again and again: nothing acknowledged is lost or doubled, whoever reads and adopts."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from amfs_otel.spool import Damage, Frame, StateDirectory, adopt, list_segments, read_frames, read_stream

WRITER = """
import os, sys
from pathlib import Path
from amfs_otel.spool import *
state = StateDirectory(Path(sys.argv[1]))
number = 0
windows = set()
writer = SpoolWriter(state, "local", segment_bytes=int(sys.argv[2]), open_windows=lambda: windows)
while True:
    window = os.urandom(16)
    windows.add(window)
    lines = []
    for _ in range(3):
        payload = b"%d.%d " % (os.getpid(), number) + os.urandom(number * 37 % 1500)
        writer.append("journal", window, payload)
        lines.append("journal %s\\n" % payload.partition(b" ")[0].decode())
        number += 1
    payload = b"%d.%d " % (os.getpid(), number) + os.urandom(number * 91 % 2500)
    writer.append("records", window, payload)
    number += 1
    writer.sync()
    windows.discard(window)
    lines.append("records %s\\n" % payload.partition(b" ")[0].decode())
    os.write(1, "".join(lines).encode())
"""


def writing(state: StateDirectory, segment_bytes: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(state.path), str(segment_bytes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def acknowledged(state: StateDirectory, seconds: float, segment_bytes: int = 4_000) -> set[tuple[str, str]]:
    """Run a writer, kill it after so many seconds from its first word; gives (stream, name) of what it was told is safe."""
    process = writing(state, segment_bytes)
    assert process.stdout is not None
    first = process.stdout.readline()
    killer = threading.Timer(seconds, process.kill)
    killer.start()
    rest = process.stdout.read()
    process.stdout.close()
    killer.join()
    assert process.wait(60) == -signal.SIGKILL
    lines = (first + rest).decode().splitlines(keepends=True)
    return {(line.split()[0], line.split()[1]) for line in lines if line.endswith("\n")}


def names(state: StateDirectory) -> list[tuple[str, str]]:
    """(stream, name) of every frame of every writer; fails on damage."""
    found: list[tuple[str, str]] = []
    for segment, item in read_stream(list_segments(state, "local"), state.spool_key()):
        assert isinstance(item, Frame), item
        found.append((segment.stream, item.payload.partition(b" ")[0].decode()))
    return found


def test_thirty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    dice = random.Random(20)
    told: set[tuple[str, str]] = set()
    for _ in range(30):
        told |= acknowledged(state, dice.uniform(0, 0.08))
    assert len(told) > 200
    found = names(state)
    assert len(found) == len(set(found))
    assert told <= set(found)
    assert any(s.index > 0 for s in list_segments(state, "local")), "the kills must also meet rotations"


ADOPTER = """
import sys
from pathlib import Path
from amfs_otel.spool import *
state = StateDirectory(Path(sys.argv[1]))
while True:
    for segment in list_segments(state, "local"):
        with adopt(segment) as adoption:
            if adoption is None:
                continue
            for own in adoption.segments:
                frames = [f for f in read_frames(own.path, state.spool_key()) if own.stream == "records"]
                for frame in frames:
                    print(frame.payload.partition(b" ")[0].decode(), flush=True)
                adoption.retire(own)
    if not list_segments(state, "local"):
        break
"""


def test_competing_adopters_take_each_dead_record_once_and_leave_nothing(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    told: set[tuple[str, str]] = set()
    for _ in range(6):
        told |= acknowledged(state, 0.03)
    adopters = [
        subprocess.Popen([sys.executable, "-c", ADOPTER, str(state.path)], stdout=subprocess.PIPE) for _ in range(3)
    ]
    taken: list[str] = []
    for adopter in adopters:
        taken += adopter.communicate(timeout=60)[0].decode().split()
        assert adopter.returncode == 0
    assert len(taken) == len(set(taken))
    assert {name for stream, name in told if stream == "records"} <= set(taken)
    assert list((state.spool / "local").iterdir()) == []


def test_a_living_writers_files_are_read_without_its_lock_and_without_a_false_alarm(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    process = writing(state, 4_000)
    assert process.stdout is not None
    drained = threading.Thread(target=process.stdout.read)
    process.stdout.readline()
    drained.start()
    try:
        for _ in range(40):
            assert all(segment.alive for segment in list_segments(state, "local"))
            found = names(state)
            assert len(found) == len(set(found))
    finally:
        process.kill()
        process.wait(60)
        drained.join(60)
        process.stdout.close()


def test_torn_and_damaged_files_of_dead_writers_cost_only_what_was_hit(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    for _ in range(4):
        acknowledged(state, 0.03, segment_bytes=10_000)
    dice = random.Random(7)
    key = state.spool_key()
    hurt = 0
    for segment in list_segments(state, "local"):
        before = [item for item in read_frames(segment.path, key) if isinstance(item, Frame)]
        if len(before) < 4:
            continue
        victim = before[dice.randrange(0, len(before) - 3)]
        with segment.path.open("r+b") as file:
            at = dice.randrange(victim.start, victim.end)
            file.seek(at)
            old = file.read(1 + dice.randrange(20))
            file.seek(at)
            file.write(bytes(byte ^ 0x55 for byte in old))
        os.truncate(segment.path, before[-1].end - 1)
        after = list(read_frames(segment.path, key))
        lost = {f.number for f in before} - {f.number for f in after if isinstance(f, Frame)}
        (damage,) = [d for d in after if isinstance(d, Damage)]
        assert victim.number in lost or damage.start >= victim.end
        assert damage.frames_lost == len(lost) - 1
        assert before[-1].number in lost
        assert len(lost) <= 3, "at most the frame hit, its neighbour, and the torn one"
        hurt += 1
        with adopt(segment) as adoption:
            assert adoption is not None
    assert hurt >= 4
