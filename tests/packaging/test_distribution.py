"""What a user gets: the contents of wheel and sdist, and the wheel at work."""

import email
import re
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser

import pytest

from tests.packaging.checkout import ROOT, package_files
from tests.packaging.conftest import Built, Installed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
INFO = f"amfs_otel-{PROJECT['project']['version']}.dist-info"
TARGETS = {"amfs", "openai"}
HOOKS = "opentelemetry_pre_instrument"
INSTRUMENT = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
QUIET = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}


def read(built: Built, name: str) -> str:
    """The text of a file of the wheel."""
    with zipfile.ZipFile(built.wheel) as archive:
        return archive.read(name).decode()


def entry_points(built: Built) -> dict[str, dict[str, str]]:
    """The entry points of the wheel, by group."""
    parser = ConfigParser()
    parser.read_string(read(built, f"{INFO}/entry_points.txt"))
    return {group: dict(parser[group]) for group in parser.sections()}


def test_wheel_holds_both_packages_and_nothing_else(built: Built) -> None:
    metadata = {f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    with zipfile.ZipFile(built.wheel) as archive:
        assert set(archive.namelist()) == package_files() | metadata


@pytest.mark.parametrize(
    "pattern",
    [
        r"amfs_otel/py\.typed",
        r"amfs_otel_instrumentation/py\.typed",
        r"amfs_otel_instrumentation/openai\.py",
        r"amfs_otel/chain/FORMAT\.md",
        r"amfs_otel/store/schema/0001_\w+\.sql",
        r"amfs_otel/demo/programs/\w+\.py",
    ],
)
def test_wheel_holds_what_is_needed_at_run_time(built: Built, pattern: str) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        assert any(re.fullmatch(pattern, name) for name in archive.namelist())


def test_wheel_is_for_every_platform(built: Built) -> None:
    assert built.wheel.name.endswith("-py3-none-any.whl")


def test_sdist_holds_only_what_is_listed(built: Built) -> None:
    listed = {path.removeprefix("/") for path in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    with tarfile.open(built.sdist) as archive:
        paths = [name.partition("/")[2] for name in archive.getnames()]
    assert {path.partition("/")[0] for path in paths} == listed | {"PKG-INFO", "pyproject.toml", ".gitignore"}
    assert [path for path in paths if re.search(r"__pycache__|\.(pyc|so|whl|key)$|(^|/)\.(venv|cache)/", path)] == []


def test_metadata_is_short(built: Built) -> None:
    """OpenTelemetry parses it again for each entry point, at the start of every process."""
    assert len(read(built, f"{INFO}/METADATA")) < 4096


def test_extras_leave_opentelemetry_s_names_alone(built: Built) -> None:
    extras = email.message_from_string(read(built, f"{INFO}/METADATA")).get_all("Provides-Extra")
    assert extras == ["demo", "embedded"]


def test_one_entry_point_per_group(built: Built) -> None:
    assert {group: set(points) for group, points in entry_points(built).items()} == {
        "console_scripts": {"amfs-otel"},
        HOOKS: {"amfs_otel"},
        "opentelemetry_instrumentor": {"amfs"},
    }


def test_entry_points_resolve(built: Built, installed: Installed) -> None:
    for group, points in entry_points(built).items():
        for name, value in points.items():
            load = f"from importlib.metadata import EntryPoint; EntryPoint({name!r}, {value!r}, {group!r}).load()"
            result = installed.run("-c", load)
            assert result.returncode == 0, result.stderr


def test_the_command_runs(installed: Installed) -> None:
    result = installed.run(str(installed.python.with_name("amfs-otel")), "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "explain" in result.stdout


def test_under_opentelemetry_instrument(installed: Installed) -> None:
    """The hook runs, says nothing, and imports nothing that it could patch."""
    program = f"import sys; print('amfs_otel._bootstrap' in sys.modules, {TARGETS} & sys.modules.keys())"
    result = installed.run("-c", INSTRUMENT, str(installed.python), "-c", program, **QUIET)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True set()\n", "")


def test_imported_from_the_wheel(installed: Installed) -> None:
    result = installed.run(
        "-c", "import amfs_otel, amfs_otel_instrumentation as i; print(amfs_otel.__file__, i.__file__)"
    )
    assert result.returncode == 0, result.stderr
    assert str(ROOT) not in result.stdout.replace(str(installed.python.parents[1]), "")
