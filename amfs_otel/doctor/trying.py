"""What a process would do with the settings, done: mode bits and names do not tell whether it works."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from amfs_otel.errors import AmfsOtelError
from amfs_otel.spool import StateDirectory
from amfs_otel.spool.durable import temporary_name, write_private_file
from amfs_otel.spool.failures import SpoolFull, is_no_room


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the state directory takes nothing.

    Attributes:
        problem: A sentence.
        no_room: It is room that is missing, not the right to write.
    """

    problem: str
    no_room: bool


def refusal_of(state: StateDirectory) -> Refusal | None:
    """Why a process of this user cannot write in the state directory; `None` where it can.

    Opens it as a process does and writes a file. What was made for that is removed again, as far as it is still empty.
    """
    wanted = [*reversed(state.path.parents), state.path, state.spool, state.keys, state.status, state.quarantine]
    missing = [directory for directory in wanted if not os.path.lexists(directory)]
    try:
        state.open()
        probe = temporary_name(state.spool / "doctor")
        write_private_file(probe, b"amfs-otel doctor\n", durable=False)
        probe.unlink()
    except AmfsOtelError as error:
        return Refusal(f"{error.where}: {error.what}; got {error.got}.", isinstance(error, SpoolFull))
    except OSError as error:
        return Refusal(f"{state.spool}: a file cannot be written; got {error.strerror}.", is_no_room(error))
    finally:
        for directory in reversed(missing):
            _remove_empty(directory)
    return None


def mask_problems_of(path: Path | None) -> tuple[str, ...]:
    """What is wrong with the user's file of masking patterns, one text each; no pattern is repeated.

    Args:
        path: The file; `None` where none is set.
    """
    if path is None:
        return ()
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        return (f"{path} cannot be read ({error.strerror}): every text is masked as a whole.",)
    except UnicodeDecodeError:
        return (f"{path} is not UTF-8 text: every text is masked as a whole.",)
    checked = ((number, _refused_pattern(line)) for number, line in enumerate(lines, 1) if not line.startswith("#"))
    return tuple(f"{path} line {number}: {why}; it masks nothing." for number, why in checked if why is not None)


def _refused_pattern(line: str) -> str | None:
    try:
        re.compile(line)
    except re.error as error:
        return error.msg
    except (OverflowError, RecursionError) as error:
        return str(error)
    return None


def _remove_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return  # it was never made, or somebody uses it by now
