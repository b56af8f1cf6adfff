"""How a command ends: exit codes, and one message instead of a traceback for what is to be expected."""

import functools
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec

import typer

from amfs_otel.errors import AmfsOtelError, ConfigurationError

_P = ParamSpec("_P")


class Code(IntEnum):
    """Exit codes; interfaces.md fixes them."""

    FINE = 0
    TAMPERED = 1
    USAGE = 2
    CANNOT_JUDGE = 3
    INCOMPLETE = 4
    INTERRUPTED = 130


class UsageError(AmfsOtelError):
    """The command cannot be used so."""


def command(app: typer.Typer, name: str, **options: object) -> Callable[[Callable[_P, int | None]], Callable[_P, None]]:
    """Registers a function as a command. It returns its exit code, `None` for 0, or raises.

    Args:
        app: Where to.
        name: The command's name.
        **options: For typer.
    """

    def registered(function: Callable[_P, int | None]) -> Callable[_P, None]:
        @functools.wraps(function)
        def ran(*args: _P.args, **kwargs: _P.kwargs) -> None:
            raise typer.Exit(_code(lambda: function(*args, **kwargs)))

        return app.command(name, **options)(ran)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    return registered


def _code(function: Callable[[], int | None]) -> int:
    try:
        code = int(function() or Code.FINE)
        sys.stdout.flush()
        return code
    except AmfsOtelError as error:
        tell(str(error))
        return code_of(error)
    except KeyboardInterrupt:
        return Code.INTERRUPTED
    except Exception:  # noqa: BLE001  shown in full, under a code that says nothing about the log
        # Never 1: that would say TAMPERED.
        traceback.print_exc()
        tell("this is a bug in amfs-otel; please report it with the lines above.")
        return Code.CANNOT_JUDGE


def code_of(error: AmfsOtelError) -> Code:
    """The exit code that an error leads to: 2 where the caller must change something, else 3."""
    from amfs_otel.drain.asking import NothingRecorded
    from amfs_otel.graph.finding import Ambiguous, NothingFound

    mistakes = (ConfigurationError, UsageError, NothingFound, NothingRecorded, Ambiguous)
    return Code.USAGE if isinstance(error, mistakes) else Code.CANNOT_JUDGE


def tell(message: str) -> None:
    """Says something beside the answer."""
    print(f"amfs-otel: {message}", file=sys.stderr)
