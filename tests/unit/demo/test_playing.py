"""A performance begins anew, whatever an earlier one left."""

from pathlib import Path

import pytest

from amfs_otel.demo import playing
from amfs_otel.settings import Settings


@pytest.mark.parametrize("left", [True, False], ids=["with its directory", "alone"])
def test_the_server_of_an_earlier_performance_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, left: bool
) -> None:
    """Also where the home was made anew: root's databases lie elsewhere and outlive it."""
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    if left:
        (playing.home_of(environ) / "state").mkdir()
    removed: list[Path] = []

    class Server:
        def __init__(self, settings: Settings) -> None:
            self._state_dir = settings.state_dir

        def remove(self) -> None:
            removed.append(self._state_dir)

    monkeypatch.setattr(playing, "embedded_server", Server)
    home = playing.home_of(environ)

    assert home.is_relative_to(tmp_path)
    assert removed == [home / "state"]
    assert [one.name for one in home.iterdir()] == [playing.MARK]


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    theirs = playing.home_of(environ)
    (theirs / playing.MARK).rename(theirs / "letters")

    assert playing.home_of(environ) != theirs
    assert (theirs / "letters").exists()
