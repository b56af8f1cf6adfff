"""The environments that programs are started in: mirrors of ours with and without us, and one for each peer.

Those of the peers stay in the cache: `$AMFS_OTEL_BENCH_CACHE`, else `$XDG_CACHE_HOME/amfs-otel/bench`, else `~/.cache/amfs-otel/bench`.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from tests.bench.adapters import PEERS
from tests.bench.processes import ROOT

INSTALL_S = 600
"""How long the installation of one peer's packages may take."""
_HERE = Path(__file__).resolve().parent


class EnvironmentFailedError(RuntimeError):
    """An environment could not be made; the message holds the installer's last line."""


def cache() -> Path:
    """The directory that holds the peers' environments."""
    chosen = os.environ.get("AMFS_OTEL_BENCH_CACHE")
    if chosen:
        return Path(chosen).absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "amfs-otel" / "bench"


@functools.cache
def mirror(*, with_us: bool) -> Path:
    """The interpreter of an environment with links to all that is installed here, this product among it or not.

    It holds us as a wheel would: two packages and their metadata, no path of a checkout. It goes when this process ends.
    """
    home = Path(tempfile.mkdtemp(prefix=f"amfs-otel-bench-{'with' if with_us else 'without'}-us-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    venv.create(home, symlinks=True)
    installed = Path(sysconfig.get_path("purelib"))
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    for entry in installed.iterdir():
        if not entry.name.startswith(("amfs_otel", "_editable_impl_amfs_otel", "__pycache__")):
            (site / entry.name).symlink_to(entry)
    if with_us:
        (site / "amfs_otel").symlink_to(ROOT / "amfs_otel")
        (site / "amfs_otel_instrumentation").symlink_to(ROOT / "instrumentation" / "amfs_otel_instrumentation")
        for metadata in installed.glob("amfs_otel-*.dist-info"):
            (site / metadata.name).symlink_to(metadata)
    return home / "bin" / "python"


def peer(name: str) -> Path:
    """The interpreter of the environment of peer `name`, made when it is first asked for.

    Raises:
        EnvironmentFailedError: Its packages cannot be installed, or not within `INSTALL_S`.
    """
    requirements = _HERE / "peers" / (PEERS[name].requirements or "")
    text = "\n".join([requirements.read_text(), (_HERE / "peers" / "common.in").read_text(), sys.version])
    home = cache() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, symlinks=True)
            try:
                _install(name, home / "bin" / "python", requirements)
            except EnvironmentFailedError:
                shutil.rmtree(home, ignore_errors=True)
                raise
            (home / "complete").touch()
    return home / "bin" / "python"


def pins(name: str) -> str:
    """What the environment of a peer is made for: its packages and their versions."""
    lines = (_HERE / "peers" / (PEERS[name].requirements or "")).read_text().splitlines()
    pinned = [line.partition("#")[0].strip().replace("==", " ") for line in lines if "==" in line]
    return ", ".join(one for one in pinned if one.split()[0] not in ("openai", "anthropic"))


def _install(name: str, python: Path, requirements: Path) -> None:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    try:
        done = subprocess.run(
            [*command, "--requirement", requirements], capture_output=True, text=True, check=False, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFailedError(
            f"{name}: not installed within {INSTALL_S} s; is a package index in reach?"
        ) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise EnvironmentFailedError(f"{name}: {lines[-1] if lines else 'uv failed'}")
