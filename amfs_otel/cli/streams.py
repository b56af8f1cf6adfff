"""stdout and stderr of a command: readers that went away, disks that are full, encodings that lack a character."""

import codecs
import io
import os
import sys
from signal import SIGPIPE

from amfs_otel.cli.failure import Code, tell
from amfs_otel.errors import AmfsOtelError

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
    """A descriptor that may refuse what is written: the command then ends, whatever library was writing.

    An exception would not do: click and rich turn `BrokenPipeError` into exit code 1, which says TAMPERED. What stderr
    refuses is lost instead, since there is nowhere left to say it, and the answer may well be written.
    """

    def write(self, data: object) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Writes, or ends the command: with `READER_GONE`, or with code 3 and one line on stderr."""
        try:
            return super().write(data)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except BrokenPipeError:
            self._end_here()
            raise SystemExit(READER_GONE) from None
        except OSError as error:
            self._end_here()
            if self.name == sys.stderr.fileno():
                return memoryview(data).nbytes  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            tell(str(AmfsOtelError("cannot be written", where="stdout", got=error.strerror)))
            raise SystemExit(Code.CANNOT_JUDGE) from None

    def _end_here(self) -> None:
        """What is still buffered goes nowhere, so that nothing complains again at exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def prepare_streams() -> None:
    """Replaces `sys.stdout` and `sys.stderr` by streams on the same descriptors that know these cases.

    What an encoding does not have is written in plain ASCII, or as an escape, not as a traceback.
    """
    codecs.register_error("amfs_otel.plain", plainly)
    for name in ("stdout", "stderr"):
        stream: io.TextIOWrapper | None = getattr(sys, name)
        setattr(sys, name, _never_open() if stream is None else _prepared(stream))


def _never_open() -> io.TextIOWrapper:
    """A stream in place of one that was closed before we began: it refuses what is written."""
    # As what is read only refuses it; no connection of ours can get the descriptor then.
    return _text(os.open(os.devnull, os.O_RDONLY), "utf-8")


def _prepared(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    return _text(stream.fileno(), stream.encoding, by_line=stream.line_buffering, at_once=stream.write_through)


def _text(descriptor: int, encoding: str, *, by_line: bool = False, at_once: bool = False) -> io.TextIOWrapper:
    pipe = _Pipe(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        # As the interpreter does: under PYTHONUNBUFFERED nothing may wait in a buffer, so there is none.
        pipe if at_once else io.BufferedWriter(pipe),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        encoding=encoding,
        errors="amfs_otel.plain",
        line_buffering=by_line,
        write_through=at_once,
    )


def flush_streams() -> None:
    """Writes what is buffered; at interpreter exit it would be too late to choose the exit code."""
    for stream in (sys.stdout, sys.stderr):
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
