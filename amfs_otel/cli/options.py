"""Options that several commands take, and the settings that come of them."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from amfs_otel.settings import Settings


def given(dsn: str | None) -> str | None:
    """A DSN that names something; a callback of typer's. libpq would take an empty one for some database of its own.

    Raises:
        typer.BadParameter: It is empty.
    """
    if dsn is not None and not dsn.strip():
        raise typer.BadParameter("it is empty; expected postgresql://USER@HOST:PORT/DATABASE.")
    return dsn


AsJson = Annotated[bool, typer.Option("--json", help="The answer as JSON, by its schema in docs/schemas/.")]
Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn", metavar="DSN", help="Server to use instead of AMFS_OTEL_DSN.", show_default=False, callback=given
    ),
]
Log = Annotated[
    str | None, typer.Option("--log", metavar="NAME", help="Log to use instead of AMFS_OTEL_LOG.", show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def said(text: str) -> str:
    """An argument that may not be empty; a callback of typer's.

    Raises:
        typer.BadParameter: It is.
    """
    if not text.strip():
        raise typer.BadParameter("it is empty; see `amfs-otel list`.")
    return text


def settings_for(dsn: str | None = None, log: str | None = None) -> "Settings":
    """The settings of a command, with the DSN that counts; see `open_store.settled`.

    Raises:
        ConfigurationError: A setting cannot be used; a command does not go on with a default instead.
    """
    from amfs_otel.drain.open_store import settled

    return settled(unsettled(dsn, log))


def unsettled(dsn: str | None = None, log: str | None = None) -> "Settings":
    """The same without asking any server about a fallback DSN.

    Raises:
        ConfigurationError: A setting cannot be used.
    """
    from amfs_otel.errors import ConfigurationError

    settings = laid_over(dsn, log)
    if settings.problems:
        raise ConfigurationError(settings.problems[0].removesuffix(" The default applies.").rstrip("."))
    return settings


def laid_over(dsn: str | None = None, log: str | None = None) -> "Settings":
    """The environment's settings, problems and all, with a command's options laid over them.

    Raises:
        ConfigurationError: `log` is no name of a log.
    """
    from amfs_otel.settings import Settings

    settings = Settings.from_env()
    if log is not None:
        settings = replace(settings, log=_log_name(log))
    if dsn is not None:
        settings = replace(settings, dsn=dsn, dsn_is_fallback=False)
    return settings


def _log_name(name: str) -> str:
    from amfs_otel.errors import ConfigurationError
    from amfs_otel.settings import Settings

    read = Settings.from_env({"AMFS_OTEL_LOG": name})
    if read.problems or read.log != name:
        raise ConfigurationError(
            "is no name of a log", where="--log", expected="1 to 64 of a-z, 0-9, '-', '_', '.'", got=repr(name[:40])
        )
    return name


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the person agrees. Where nobody can be asked, only `yes` counts.

    Args:
        question: Asked on stderr.
        yes: They said so already.

    Raises:
        UsageError: Nobody can be asked.
    """
    import sys

    from amfs_otel.cli.failure import UsageError

    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can be asked here: {question} With --yes that is agreed to")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
