"""The environments that programs are started in: mirrors of ours with and without us, and one for each peer.

All stand in the cache: `$AMFS_OTEL_BENCH_CACHE`, else `$XDG_CACHE_HOME/amfs-otel/bench`, else `~/.cache/amfs-otel/bench`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.bench.adapters import PEERS
from tests.bench.processes import ROOT

_HERE = Path(__file__).resolve().parent


class EnvironmentFailedError(RuntimeError):
    """An environment could not be made; the message holds the installer's last line."""


def cache() -> Path:
    """The directory that holds all environments."""
    chosen = os.environ.get("AMFS_OTEL_BENCH_CACHE")
    if chosen:
        return Path(chosen).absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "amfs-otel" / "bench"


def mirror(*, with_us: bool) -> Path:
    """The interpreter of an environment with links to all that is installed here, this product among it or not.

    It holds us as a wheel would: two packages and their metadata, no path of a checkout.
    """
    home = cache() / ("with-us" if with_us else "without-us")
    shutil.rmtree(home, ignore_errors=True)
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
        EnvironmentFailedError: Its packages cannot be installed.
    """
    requirements = _HERE / "peers" / (PEERS[name].requirements or "")
    text = "\n".join([requirements.read_text(), (_HERE / "peers" / "common.in").read_text(), sys.version])
    home = cache() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return python
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, symlinks=True, with_pip=True)
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "-r", requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(home, ignore_errors=True)
        lines = done.stderr.strip().splitlines()
        raise EnvironmentFailedError(f"{name}: {lines[-1] if lines else 'pip failed'}")
    (home / "complete").touch()
    return python
