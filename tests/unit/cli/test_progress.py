"""The bar of a long `verify`: on stderr, on a terminal alone, and only where there is something to wait for."""

import io
import sys

import pytest

from amfs_otel.cli import verifying


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal_in(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal; called in the test itself, because pytest sets stderr anew after the fixtures."""
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def said(steps: int = 5) -> None:
    with verifying._progress() as report:
        for done in range(steps + 1):
            report(done, steps)


def failing() -> None:
    with verifying._progress() as report:
        report(1, 5)
        _ = 1 / 0


def test_what_is_done_at_once_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)
    said()
    assert terminal.getvalue() == ""


def test_what_takes_long_shows_one_and_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)
    monkeypatch.setattr(verifying, "BAR_AFTER_S", 0.0)
    said()
    assert "verifying" in terminal.getvalue()
    assert "5/5" in terminal.getvalue()


def test_a_bar_that_was_begun_is_ended_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)
    monkeypatch.setattr(verifying, "BAR_AFTER_S", 0.0)
    with pytest.raises(ZeroDivisionError):
        failing()
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1, "the cursor is back"


def test_in_a_pipe_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "BAR_AFTER_S", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    said()
    assert isinstance(sys.stderr, io.StringIO)
    assert sys.stderr.getvalue() == ""
