"""What the demo tells a person to type next."""

from pathlib import Path

import pytest

from amfs_otel.cli.demo import command_for


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter of an environment in which the command is installed."""
    folder = tmp_path / "a clone" / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "amfs-otel").touch(mode=0o755)
    return folder / "python"


def test_on_the_path_the_name_is_enough(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(python.parent))
    assert command_for(python, Path("/")) == "amfs-otel"


@pytest.mark.parametrize("path", ["/nowhere", "other"])
def test_elsewhere_it_is_the_way_there(
    python: Path, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "amfs-otel").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / path))
    assert command_for(python, tmp_path / "a clone") == ".venv/bin/amfs-otel"
    assert command_for(python, tmp_path) == "'a clone/.venv/bin/amfs-otel'"
    assert command_for(python, Path("/etc")) == f"'{python.with_name('amfs-otel')}'"
