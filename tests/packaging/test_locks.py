"""The locks hold what pyproject.toml asks for, with hashes, and name no index."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SUPPORTED = ("3.11", "3.12", "3.13")


def pinned(lock: str, environment: dict[str, str] | None = None) -> dict[str, Requirement]:
    """The requirements of a lock by their normalised name: all, or what is installed in an `environment`."""
    lines = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    requirements = [Requirement(line.partition(" --hash=")[0]) for line in lines]
    return {
        _normalised(requirement.name): requirement
        for requirement in requirements
        if environment is None or requirement.marker is None or requirement.marker.evaluate(environment)
    }


def wanted(groups: list[str]) -> list[Requirement]:
    """What pyproject.toml asks for at run time, by its extras, and in `groups`."""
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    lists += [PROJECT["dependency-groups"][group] for group in groups]
    requirements = [Requirement(text) for texts in lists for text in texts]
    return [requirement for requirement in requirements if requirement.name != project["name"]]


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_pin_has_hashes_and_nothing_else_stands_there(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    pin = r"[a-z0-9._-]+==\S+(?: ; [^\\\n]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+"
    assert re.fullmatch(rf"(?:{pin}\n)+", text)


@pytest.mark.parametrize("python", SUPPORTED)
@pytest.mark.parametrize(("lock", "groups"), [("demo", ["build"]), ("dev", ["build", "test", "check"])])
def test_locks_are_fresh(lock: str, groups: list[str], python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    pins = pinned(lock, environment)
    for requirement in wanted(groups):
        pin = pins.get(_normalised(requirement.name))
        assert pin is not None, f"{requirement} is not in {lock}.txt for Python {python}: run `make locks`"
        (version,) = pin.specifier
        assert requirement.specifier.contains(version.version, prereleases=True), f"{requirement}: run `make locks`"


def test_dev_agrees_with_demo() -> None:
    demo, dev = pinned("demo"), pinned("dev")
    assert {name: str(pin.specifier) for name, pin in demo.items()}.items() <= {
        name: str(pin.specifier) for name, pin in dev.items()
    }.items()


def test_the_installer_is_what_its_group_asks_for() -> None:
    (requirement,) = [Requirement(text) for text in PROJECT["dependency-groups"]["installer"]]
    (pin,) = pinned("pip").values()
    assert pin.name == requirement.name
    (version,) = pin.specifier
    assert requirement.specifier.contains(version.version), "run `make locks`"
