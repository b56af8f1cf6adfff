"""The built distribution, made once for all tests of this folder: the wheel comes out of the sdist."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.checkout import ROOT, build


@dataclass(frozen=True, slots=True)
class Built:
    """Paths of one build."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment that holds the wheel, and sees the dependencies of the one that runs the tests."""

    python: Path
    home: Path

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the environment's interpreter with `arguments`, an empty home and no variable of ours but `environ`."""
        inherited = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "LD_LIBRARY_PATH"}}
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=self.home,
            env=inherited | {"HOME": str(self.home)} | environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of the checkout, and the wheel built from that sdist alone."""
    directory = tmp_path_factory.mktemp("a build")
    sdist = build(ROOT, "sdist", directory)
    with tarfile.open(sdist) as archive:
        # What is packed here is ours; Python before 3.11.4 knows no filter.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(directory / "unpacked", **safely)
    (source,) = (directory / "unpacked").iterdir()
    return Built(sdist, build(source, "wheel", directory))


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, installed by pip without an index."""
    directory = tmp_path_factory.mktemp("an environment")
    environment, home = directory / "venv", directory / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(built.wheel)]
    subprocess.run(install, check=True, timeout=120)
    installed = Installed(python, home)
    purelib = installed.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    dependencies = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (Path(purelib) / "dependencies.pth").write_text("\n".join(dependencies) + "\n", encoding="utf-8")
    return installed
