"""Build and find the real backends that the tests start: Jaeger, the Collector and Prometheus.

They are Go programs, built once from the modules beside this file into a cache directory outside the checkout's
tracked files: `$AMFS_OTEL_BACKENDS_CACHE`, else `$XDG_CACHE_HOME/amfs-otel/backends`, else
`~/.cache/amfs-otel/backends`. A binary's directory is named by version and by a hash of everything it is made from, so
a changed module is built anew, and a cached one is found without Go and without a network.

Only the standard library is imported: `python -m tests.backends` runs under any Python >= 3.11.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w")


class BuildFailedError(RuntimeError):
    """A program could not be built; the message holds what to do or Go's own words."""


@dataclass(frozen=True, slots=True)
class Program:
    """One Go program that the tests start.

    Attributes:
        name: The name of its binary.
        title: Its name and version as people say it.
        version: The release that go.mod pins.
        module: The directory beside this file that holds go.mod and go.sum.
        package: What `go build` is given, from that directory.
        tags: Build tags, comma separated.
    """

    name: str
    title: str
    version: str
    module: str
    package: str
    tags: str = ""


JAEGER = Program("jaeger", "Jaeger 1.76.0", "1.76.0", "jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger")
COLLECTOR = Program("otelcol", "OpenTelemetry Collector 0.161.0", "0.161.0", "collector", ".")
# Without the tag Prometheus links every cloud's service discovery, which nothing here uses.
_PROMETHEUS_COMMANDS = "github.com/prometheus/prometheus/cmd"
PROMETHEUS = Program(
    "prometheus", "Prometheus 3.14.0", "3.14.0", "prometheus", f"{_PROMETHEUS_COMMANDS}/prometheus", "remove_all_sd"
)
PROMTOOL = Program(
    "promtool", "promtool 3.14.0", "3.14.0", "prometheus", f"{_PROMETHEUS_COMMANDS}/promtool", "remove_all_sd"
)
PROGRAMS = (JAEGER, COLLECTOR)
"""What `make backends` builds."""
EXTRAS = (PROMETHEUS, PROMTOOL)
"""What only `python -m tests.backends --all` builds: a quarter of an hour more, for the alert rules."""


def _cache_from_environment() -> Path:
    chosen = os.environ.get("AMFS_OTEL_BACKENDS_CACHE")
    if chosen:
        return Path(chosen).absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "amfs-otel" / "backends"


CACHE = _cache_from_environment()
"""Where binaries are kept, as the environment said when this module was loaded; the directory need not exist yet."""


def binary_path(program: Program) -> Path:
    """Where `program` stands once it is built: a pure function of its sources, its flags and this platform."""
    digest = hashlib.sha256()
    sources = sorted(path for path in (_HERE / program.module).iterdir() if path.suffix in {".go", ".mod", ".sum"})
    for part in (*_FLAGS, program.package, program.tags, platform.system(), platform.machine()):
        digest.update(part.encode() + b"\0")
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return CACHE / f"{program.name}-{program.version}-{digest.hexdigest()[:16]}" / program.name


def is_built(program: Program) -> bool:
    """Whether the binary for the present sources is in the cache."""
    return os.access(binary_path(program), os.X_OK)


def build(program: Program) -> Path:
    """Build `program` with the Go on PATH and put it into the cache in one step; return where it stands.

    Needs Go >= 1.26 and, unless Go's own module cache holds the modules, the module proxy that Go is set up for.

    Raises:
        BuildFailedError: Go is missing, or the build failed.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildFailedError(f"{program.title}: no `go` on PATH; install Go >= 1.26 and run `make backends` again")
    target = binary_path(program)
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent.parent, prefix=f".{program.name}-") as scratch:
        made = Path(scratch) / program.name
        command = [go, "build", *_FLAGS, f"-tags={program.tags}", "-o", str(made), program.package]
        # Started from the module's directory, so that no go.work of a surrounding tree is looked for or used.
        environment = {**os.environ, "GOWORK": "off"}
        done = subprocess.run(
            command, cwd=_HERE / program.module, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BuildFailedError(f"{program.title}: `go build` failed\n{done.stderr.strip()}")
        target.parent.mkdir(exist_ok=True)
        made.replace(target)
    return target
