"""`run CMD…`: a program under `opentelemetry-instrument`, with exporters off where nothing says otherwise."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from amfs_otel.cli.failure import UsageError, command, tell

if TYPE_CHECKING:
    from amfs_otel.settings import Settings

LAUNCHER = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
"""What the console script `opentelemetry-instrument` does; run by this interpreter, it needs no PATH."""

EXPORTERS = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")
NOT_EXECUTABLE, NOT_FOUND = 126, 127
_CANNOT = 42
_CAN_IMPORT = f"import importlib.util, sys; sys.exit({_CANNOT} if importlib.util.find_spec('amfs_otel') is None else 0)"
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def register(app: typer.Typer) -> None:
    """Registers the command."""
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    command(app, "run", context_settings=settings)(run)


def run(
    program: Annotated[list[str], typer.Argument(metavar="CMD...", help="The program and its arguments.")],
    *,
    keep_content: Annotated[
        bool,
        typer.Option("--keep-content", help="Also keep prompts, completions, tool arguments and results."),
    ] = False,
) -> int:
    """Run a program and record its decision traces. Its exit code and signals pass through.

    OpenTelemetry's exporters are switched off unless an endpoint or an exporter is set: the default is a collector on
    localhost, and waiting for one that is not there costs seconds.
    """
    words = program[1:] if program[0] == "--" else program
    if not words:
        raise UsageError("no program is named", where="run", hint="amfs-otel run python agent.py")
    found = shutil.which(words[0])
    if found is None:
        return _refused(words[0])
    environ = environment(dict(os.environ), keep_content=keep_content)  # noqa: TID251  handed on; settings reads ours
    if is_foreign_python(Path(found), environ):
        tell(
            f"{words[0]} is {found}, which has no amfs-otel, so nothing will be recorded. Activate the environment "
            f"that has it, or name its interpreter: amfs-otel run {shlex.quote(sys.executable)} …"
        )
    argv = [sys.executable, "-c", LAUNCHER, *words]
    if not sys.stderr.isatty():
        sys.stdout.flush()
        os.execve(sys.executable, argv, environ)  # noqa: S606  becoming the program is the point
    return _watched(argv, environ)


def _refused(name: str) -> int:
    """Says why a program cannot be run, and the exit code that shells give then."""
    path = Path(name)
    if os.sep not in name or not path.exists():
        example = name if path.suffix == ".py" and path.is_file() else "agent.py"
        tell(f"{name}: no such program. For example: amfs-otel run python {example}")
        return NOT_FOUND
    if path.is_dir():
        tell(f"{name}: is a directory, not a program.")
    else:
        tell(f"{name}: is not executable. Run it by its interpreter (amfs-otel run python {name}), or chmod +x it.")
    return NOT_EXECUTABLE


def is_foreign_python(program: Path, environ: Mapping[str, str]) -> bool:
    """Whether a program is an interpreter that cannot import us: most often an environment that was not activated.

    Costs a start of that interpreter, unless it lies beside ours.
    """
    if re.fullmatch(r"python[\d.]*", program.name) is None or program.parent == Path(sys.executable).parent:
        return False
    try:
        probe = subprocess.run((program, "-c", _CAN_IMPORT), env=environ, capture_output=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return probe.returncode == _CANNOT


def environment(environ: dict[str, str], *, keep_content: bool = False) -> dict[str, str]:
    """The program's environment: exporters off where neither an exporter nor an endpoint is set.

    Args:
        environ: The caller's.
        keep_content: Keep every text.
    """
    said = any(name in EXPORTERS or _is_endpoint(name) for name, value in environ.items() if value)
    added: dict[str, str] = {} if said else dict.fromkeys(EXPORTERS, "none")
    if keep_content:
        added["AMFS_OTEL_LEDGER_CONTENT"] = "all"
    return {**environ, **added}


def _is_endpoint(name: str) -> bool:
    return name == "AMFS_OTEL_ENDPOINT" or (name.startswith("OTEL_EXPORTER_") and name.endswith("_ENDPOINT"))


def _watched(argv: list[str], environ: dict[str, str]) -> int:
    """Runs the program as a child, and ends as it ended, with one line about what was recorded."""
    began_ns = time.time_ns()
    child = subprocess.Popen(argv, env=environ)  # noqa: S603  the person's own program

    def forward(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    # The terminal sends these to the whole group; the program decides what they mean.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    # An ignored signal stays ignored in a child started after this; this one was started before.
    code = child.wait()
    from amfs_otel.settings import Settings

    _say_what_was_recorded(Settings.from_env(environ), child.pid, began_ns)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _say_what_was_recorded(settings: "Settings", pid: int, began_ns: int) -> None:
    from amfs_otel.drain.just_recorded import just_recorded
    from amfs_otel.errors import AmfsOtelError

    if settings.disabled:
        return
    try:
        found = just_recorded(settings, pid, began_ns)
    except AmfsOtelError as error:
        tell(str(error))
        return
    if found is None:
        tell("nothing was recorded; `amfs-otel doctor` says why")
        return
    steps = f"{found.steps} step{'' if found.steps == 1 else 's'}"
    more = f", the last of {found.traces}" if found.traces > 1 else ""
    tell(f"recorded trace …{found.record_id[-8:]} ({steps}{more}): amfs-otel explain last")
