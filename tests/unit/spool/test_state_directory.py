"""The state directory: modes, owners, the spool key, key files under competition, kinds of disk."""

import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from amfs_otel.errors import SpoolError
from amfs_otel.spool import StateDirectory, ensure_key_file
from amfs_otel.spool.state_directory import file_system_from_mountinfo

MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /run rw,nosuid shared:2 - tmpfs tmpfs rw
31 30 254:1 / /run/with\040blank rw - xfs /dev/vdb rw
32 22 0:27 / /data rw - overlay overlay rw
33 22 254:2 / /data rw - ext4 /dev/vdc rw
nonsense
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_open_makes_a_private_tree_and_may_be_repeated(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "a" / "b")
    assert state.open() is state
    state.open()
    assert [mode(d) for d in (state.path, state.spool, state.keys, state.status, state.quarantine)] == [0o700] * 5


def test_making_the_object_touches_nothing(tmp_path: Path) -> None:
    StateDirectory(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_existing_directory_keeps_its_mode_and_what_lies_below_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys").chmod(0o755)
    StateDirectory(tmp_path).open()
    assert (mode(tmp_path), mode(tmp_path / "keys")) == (0o755, 0o700)


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(SpoolError, match="belongs to another user") as caught:
        StateDirectory(tmp_path).open()
    assert "AMFS_OTEL_STATE_DIR" in caught.value.hint


def test_a_file_in_the_way_is_a_spool_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="cannot be used"):
        StateDirectory(tmp_path / "file" / "state").open()


def test_the_spool_key_is_made_once_and_private(tmp_path: Path) -> None:
    key = StateDirectory(tmp_path).spool_key()
    path = tmp_path / "keys" / "spool.key"
    assert len(key) == 32
    assert StateDirectory(tmp_path).spool_key() == key
    assert mode(path) == 0o600
    assert path.read_text().startswith("hex:")


def test_a_removed_spool_key_is_put_back_by_who_used_it(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    key = state.spool_key()
    (tmp_path / "keys" / "spool.key").unlink()
    assert state.spool_key() == key
    assert StateDirectory(tmp_path).spool_key() == key


@pytest.mark.parametrize("content", ["hex:00", "", "hex:zz", "hex:" + "0" * 65])
def test_a_spoiled_spool_key_is_refused_without_repeating_it(tmp_path: Path, content: str) -> None:
    state = StateDirectory(tmp_path).open()
    (state.keys / "spool.key").write_text(content)
    with pytest.raises(SpoolError, match="spool key cannot be used") as caught:
        state.spool_key()
    assert not content or content not in str(caught.value)


def test_of_many_makers_of_a_key_file_one_wins_and_all_agree(tmp_path: Path) -> None:
    path = tmp_path / "development-writer.key"
    barrier = threading.Barrier(8)
    answers: list[str] = []

    def make(text: str) -> None:
        barrier.wait()
        answers.append(ensure_key_file(path, text))

    threads = [threading.Thread(target=make, args=(f"hex:{n:064x}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(answers) == {path.read_text().strip()}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert mode(path) == 0o600


def test_an_existing_key_file_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "writer.key"
    path.write_text("  hex:aa \n")
    assert ensure_key_file(path, "hex:bb") == "hex:aa"
    assert path.read_text() == "  hex:aa \n"


def test_a_key_file_that_is_not_text_or_has_no_directory_is_a_spool_error(tmp_path: Path) -> None:
    (tmp_path / "binary.key").write_bytes(b"\xff\xfe")
    with pytest.raises(SpoolError, match="not text"):
        ensure_key_file(tmp_path / "binary.key", "hex:aa")
    with pytest.raises(SpoolError, match="key file"):
        ensure_key_file(tmp_path / "missing" / "writer.key", "hex:aa")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/x", "ext4"),
        ("/run/user/0", "tmpfs"),
        ("/run/with blank/x", "xfs"),
        ("/running", "ext4"),
        ("/data/x", "ext4"),
    ],
)
def test_the_nearest_and_newest_mount_counts(path: str, expected: str) -> None:
    assert file_system_from_mountinfo(MOUNTS, Path(path)) == expected


def test_no_mount_no_answer() -> None:
    assert file_system_from_mountinfo("", Path("/x")) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the mount table is Linux's")
def test_a_directory_in_memory_is_ephemeral() -> None:
    assert StateDirectory(Path("/dev/shm/amfs-otel-never-made")).is_ephemeral() is True


def test_elsewhere_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert StateDirectory(tmp_path).is_ephemeral() is None


def test_a_destination_is_local_or_64_digits(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    assert mode(state.destination_directory("0" * 64)) == 0o700
    for wrong in ("postgresql://u:secret@h/d", "..", "A" * 64, ""):
        with pytest.raises(SpoolError) as caught:
            state.destination_directory(wrong)
        assert "secret" not in str(caught.value)
