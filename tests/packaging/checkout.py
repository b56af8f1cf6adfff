"""The files of this checkout, and what is built from them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "amfs_otel": ROOT / "amfs_otel",
    "amfs_otel_instrumentation": ROOT / "instrumentation/amfs_otel_instrumentation",
}


def package_files() -> set[str]:
    """What the wheel must hold beside its metadata: every file of both packages that is not a cache."""
    return {
        f"{name}/{path.relative_to(directory).as_posix()}"
        for name, directory in PACKAGES.items()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def source_files() -> list[Path]:
    """The files that are tracked or would be; without git (in an unpacked sdist) all files that no tool left."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not _left_by_a_tool(path.relative_to(ROOT))]
    return sorted(path for path in paths if path.is_file())


def _left_by_a_tool(path: Path) -> bool:
    return path.parts[0] in {".venv", ".cache", ".demo", ".hypothesis", "build", "dist"} or "__pycache__" in path.parts


def build(source: Path, target: str, directory: Path) -> Path:
    """Build `target` (`sdist` or `wheel`) of the tree `source` into `directory`, without any network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (built,) = directory.glob("*.tar.gz" if target == "sdist" else "*.whl")
    return built
