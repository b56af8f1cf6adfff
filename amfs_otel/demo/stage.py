"""How the story is put on: each program as a process of its own, in order, with the environment it gets.

Pure: nothing is started or written here except :func:`prepare_memory`, which writes one configuration file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amfs_otel.demo.story import BRANCHES, LATE_PROGRAM, SEED_PROGRAM

PROGRAMS = Path(__file__).parent / "programs"
"""Where the story's programs lie; the same files are shown in ``examples/quickstart``."""

LAUNCHER = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
"""What the console script ``opentelemetry-instrument`` does; run by interpreter, it needs no PATH."""

NOT_INHERITED = ("AMFS_", "ANTHROPIC_", "LANGCHAIN_", "LANGSMITH_", "OPENAI_")
"""Prefixes of variables that belong to the caller's own agents and stores: no DSN or key of theirs reaches the demo."""

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""``httpx`` and ``httpx2`` would send loopback traffic through these.

``NO_PROXY`` is then set, which also keeps the proxies of macOS' own settings away: they count only where none of these
variables is set.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One process of the story.

    Attributes:
        program: The file under ``programs/``.
        argv: The command.
        env: Its whole environment.
        cwd: Its working directory: the memory's, where ``amfs`` finds its configuration.
        instrumented: Whether it runs under ``opentelemetry-instrument``.
    """

    program: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    instrumented: bool

    @property
    def plain_argv(self) -> tuple[str, ...]:
        """The same program by itself, without ``opentelemetry-instrument``."""
        return self.argv[-2:]


def prepare_memory(memory_dir: Path) -> None:
    """Make ``memory_dir`` a memory of its own.

    Without this file ``amfs`` looks for one in every folder above and could find the user's own store.

    Args:
        memory_dir: Created if missing.
    """
    memory_dir.mkdir(parents=True, exist_ok=True)
    options = {"root": str(memory_dir.resolve() / "entries")}
    config = {"namespace": "demo", "layers": {"primary": {"adapter": "filesystem", "options": options}}}
    (memory_dir / "amfs.yaml").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def steps(
    *,
    python: Path,
    state_dir: Path,
    memory_dir: Path,
    model_origin: str,
    environ: Mapping[str, str],
    extra: Mapping[str, str] | None = None,
) -> tuple[Step, ...]:
    """The story's processes in the order in which they run: prior knowledge, three agents, the late outcome.

    Args:
        python: The interpreter that has `amfs_otel` and what the programs import; used as given, links unresolved.
        state_dir: Becomes ``AMFS_OTEL_STATE_DIR``.
        memory_dir: What :func:`prepare_memory` prepared.
        model_origin: The model server's ``origin``.
        environ: The caller's environment; see :data:`NOT_INHERITED` and :data:`PROXIES` for what is left out.
        extra: Laid over everything else; exporters, log name and the like.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(NOT_INHERITED) and name.lower() not in PROXIES
    }
    own = {
        "OPENAI_BASE_URL": f"{model_origin}/v1",
        "OPENAI_API_KEY": "demo",
        "ANTHROPIC_BASE_URL": model_origin,
        "ANTHROPIC_API_KEY": "demo",
        "LANGSMITH_TRACING": "false",
        "NO_PROXY": "127.0.0.1",
        "AMFS_OTEL_STATE_DIR": str(state_dir),
    }
    env = {**kept, **own, **(extra or {})}
    programs = ((SEED_PROGRAM, False), *((branch.program, True) for branch in BRANCHES), (LATE_PROGRAM, True))
    return tuple(
        Step(program, _command(python, program, instrumented), _named(program) | env, memory_dir, instrumented)
        for program, instrumented in programs
    )


def _named(program: str) -> dict[str, str]:
    """A service name for the telemetry backend, where the caller has set none."""
    return {"OTEL_SERVICE_NAME": program.removesuffix(".py").replace("_", "-")}


def _command(python: Path, program: str, instrumented: bool) -> tuple[str, ...]:
    launcher = (str(python), "-c", LAUNCHER) if instrumented else ()
    return (*launcher, str(python), str(PROGRAMS / program))
