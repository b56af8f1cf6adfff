"""Playing the story: a directory of its own, the programs one after the other, and commands of ours in between."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amfs_otel.demo import stage
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.story import LATE_PROGRAM
from amfs_otel.drain.open_store import embedded_server
from amfs_otel.errors import AmfsOtelError, ConfigurationError
from amfs_otel.settings import Settings

LOG = "demo"
MARK = "this-is-a-demo"
_PROGRAM_LIMIT_S = 120
_NEEDED = ("amfs", "langchain_anthropic", "langgraph", "openai")
_SENDS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "AMFS_OTEL_ENDPOINT")
_EXPORTERS = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")


@dataclass(frozen=True, slots=True)
class Said:
    """What one program of the story printed.

    Attributes:
        program: Its file.
        text: What it said, one line.
    """

    program: str
    text: str


class Play:
    """One performance.

    Args:
        home: A directory of its own; see `home_of`.
        environ: The caller's environment. No DSN, key or store of it reaches the demo; an OTLP endpoint does.
    """

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.home = home
        self.settings = Settings.from_env({**_kept(environ), **self._own()})
        self._environ = environ
        self.exports = any(environ.get(name) for name in _SENDS)

    def _own(self) -> dict[str, str]:
        return {"AMFS_OTEL_STATE_DIR": str(self.home / "state"), "AMFS_OTEL_LOG": LOG}

    @property
    def environment(self) -> dict[str, str]:
        """What our own commands get."""
        exporters = {} if self.exports else dict.fromkeys(_EXPORTERS, "none")
        return {**_kept(self._environ), **exporters, **self._own()}

    def acts(self) -> Iterator[Said]:
        """Runs the programs; before the late outcome everything is sealed.

        Raises:
            AmfsOtelError: A program failed; the message ends with its last line.
        """
        memory = self.home / "memory"
        stage.prepare_memory(memory)
        exporters = {} if self.exports else dict.fromkeys(_EXPORTERS, "none")
        with ModelServer() as model:
            for step in stage.steps(
                python=Path(sys.executable),
                state_dir=self.home / "state",
                memory_dir=memory,
                model_origin=model.origin,
                environ=self._environ,
                extra={**exporters, "AMFS_OTEL_LOG": LOG, "AMFS_OTEL_LEDGER_CONTENT": "all"},
            ):
                if step.program == LATE_PROGRAM:
                    self.quietly("drain", codes=(0,))
                yield Said(step.program, _run(step))

    def command(self, *words: str) -> int:
        """Runs one of our commands in a process of its own, on our streams, and returns its exit code."""
        argv = (sys.executable, "-m", "amfs_otel", *words)
        return subprocess.run(
            argv, env=self.environment, stdin=subprocess.DEVNULL, check=False, timeout=_PROGRAM_LIMIT_S
        ).returncode

    def quietly(self, *words: str, codes: Collection[int]) -> "subprocess.CompletedProcess[str]":
        """Runs one of our commands unseen.

        Raises:
            AmfsOtelError: It ended otherwise than with one of `codes`; the message ends with its last line.
        """
        done = _done((sys.executable, "-m", "amfs_otel", *words), self.environment, None)
        if done.returncode not in codes:
            raise AmfsOtelError(f"amfs-otel {words[0]} failed: {_last_line(done)}", where="demo")
        return done

    def dsn(self) -> str:
        """Connection string of the store that it made.

        Raises:
            StoreUnavailable: Its server does not answer.
        """
        dsn = embedded_server(self.settings).ensure(create=False)
        assert dsn is not None
        return dsn


def require_programs() -> None:
    """Refuses to begin without the libraries that the story's agents use.

    Raises:
        ConfigurationError: One is missing.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo's agents need {' and '.join(missing)}", hint="pip install 'amfs-otel[demo]'"
        )


def home_of(environ: Mapping[str, str]) -> Path:
    """Makes a fresh directory for one performance.

    It stays, so that a person can look around; the next performance takes its place.

    It lies beside the state directory; where nothing can be written there, in the system's temporary directory.
    """
    base = Settings.from_env({**environ, "AMFS_OTEL_STATE_DIR": ""}).state_dir
    home = base.with_name(f"{base.name}-demo")
    try:
        _clear(home)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / MARK).touch()
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="amfs-otel-demo-"))
        (home / MARK).touch()
    return home


def _clear(home: Path) -> None:
    """Removes an earlier performance, its server first. A directory that is not ours is left alone.

    Root's server lies elsewhere, and outlives a home that was made anew.
    """
    if home.exists() and not (home / MARK).exists() and any(home.iterdir()):
        raise FileExistsError(home)
    try:
        embedded_server(Settings(state_dir=home / "state")).remove()
    except AmfsOtelError as error:
        raise OSError(str(error)) from error
    if home.exists():
        shutil.rmtree(home)


def _run(step: stage.Step) -> str:
    done = _done(step.argv, step.env, step.cwd)
    if done.returncode != 0:
        raise AmfsOtelError(f"the program failed: {_last_line(done)}", where=f"demo, {step.program}")
    return " ".join(done.stdout.split())


def _done(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PROGRAM_LIMIT_S,
    )


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(stage.NOT_INHERITED)}


def caller_environment() -> Mapping[str, str]:
    """The environment that the demo was started in."""
    return os.environ
