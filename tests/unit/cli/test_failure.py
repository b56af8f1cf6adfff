"""How commands end."""

import sys
from collections.abc import Callable

import pytest
import typer

from amfs_otel.cli.failure import Code, UsageError, command
from amfs_otel.cli.output import printable
from amfs_otel.errors import (
    AmfsOtelError,
    ConfigurationError,
    FormatError,
    KeyUnavailable,
    SpoolError,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    VerificationError,
)
from amfs_otel.graph.finding import Ambiguous, NothingFound


def ended(function: Callable[[], int]) -> int:
    """The exit code of a command."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    command(app, "only")(function)
    with pytest.raises(SystemExit) as end:
        app(args=[], prog_name="amfs-otel")
    code = end.value.code
    return code if isinstance(code, int) else 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (UsageError("x"), 2),
        (NothingFound("x", "y"), 2),
        (Ambiguous("x", ["a", "b"]), 2),
        (StoreUnavailable("x"), 3),
        (StoreError("x"), 3),
        (StoreConflict("x"), 3),
        (KeyUnavailable("x"), 3),
        (SpoolError("x"), 3),
        (FormatError("x"), 3),
        (VerificationError("x"), 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AmfsOtelError) else str(value),
)
def test_an_expected_error_is_one_line_and_a_code(
    error: AmfsOtelError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> int:
        raise error

    assert ended(fails) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("amfs-otel: ")
    assert printed.err.count("\n") == 1


def test_a_bug_of_ours_is_never_taken_for_tampering(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> int:
        raise KeyError("bug")

    assert ended(fails) == Code.CANNOT_JUDGE
    assert "please report it" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_a_command_returns_its_code(code: int) -> None:
    assert ended(lambda: code) == code


def test_an_interrupted_command_is_130() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert ended(interrupted) == 130


def test_nothing_heavy_is_imported_for_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    code = (
        "import sys; from amfs_otel.cli.app import app\n"
        "try: app(args=['--help'], prog_name='amfs-otel')\n"
        "except SystemExit: pass\n"
        "heavy = {'psycopg', 'rich', 'pydantic', 'opentelemetry', 'cryptography', 'amfs', 'openai'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == "[]"
    for name in ("init", "doctor", "demo", "run", "list", "show", "explain", "tree", "outcome", "verify", "drain"):
        assert f" {name} " in done.stdout


def test_content_reaches_a_terminal_as_text_alone() -> None:
    assert printable("a\x1b[2Jb\x9bc\u202ed\te\n") == "a\ufffd[2Jb\ufffdc\ufffdd\te\n"
