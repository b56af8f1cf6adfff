"""stdout and stderr of a command: a reader that went away, and encodings that lack a character."""

import codecs
import io
import os
import sys
from signal import SIGPIPE

READER_GONE = 128 + SIGPIPE
"""Exit code where whoever read us has seen enough; what a shell reports of a program that SIGPIPE ended."""

_PLAIN = {
    "…": "...",
    "·": "-",
    "→": "->",
    "—": "-",
    "│": "|",
    "├": "|",
    "└": "`",
    "─": "-",
    "¹": "^1",
    "²": "^2",
    "³": "^3",
}


class _Pipe(io.FileIO):
    """A descriptor whose reader may go away: the command then ends, whatever library was writing.

    `BrokenPipeError` would not do: click and rich turn it into exit code 1, which says TAMPERED.
    """

    def write(self, data: object) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Writes, or ends the command with `READER_GONE`."""
        try:
            return super().write(data)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except BrokenPipeError:
            # What is still buffered goes nowhere, so that nothing complains again at exit.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            raise SystemExit(READER_GONE) from None


def prepare_streams() -> None:
    """Replaces `sys.stdout` and `sys.stderr` by streams on the same descriptors that know both cases.

    What an encoding does not have is written in plain ASCII, or as an escape, not as a traceback.
    """
    codecs.register_error("amfs_otel.plain", plainly)
    for name in ("stdout", "stderr"):
        stream: io.TextIOWrapper | None = getattr(sys, name)
        if stream is not None:
            setattr(sys, name, _prepared(stream))


def _prepared(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    pipe = _Pipe(stream.fileno(), "w", closefd=False)
    # As the interpreter does: under PYTHONUNBUFFERED nothing may wait in a buffer, so there is none.
    return io.TextIOWrapper(
        pipe if stream.write_through else io.BufferedWriter(pipe),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        encoding=stream.encoding,
        errors="amfs_otel.plain",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def flush_streams() -> None:
    """Writes what is buffered; at interpreter exit it would be too late to choose the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # pyright: ignore[reportUnnecessaryComparison] - closed descriptors leave None
            stream.flush()


def plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    """A codec error handler: the signs that we draw with become ASCII, all others backslash escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    if sign in _PLAIN:
        return _PLAIN[sign], error.start + 1
    one = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    return codecs.backslashreplace_errors(one)
