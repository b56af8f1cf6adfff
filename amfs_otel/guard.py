"""The only place that swallows exceptions in somebody else's process.

Whatever we do around the agent's call runs inside `guard`: an error of ours is counted, logged once per cause, and the
agent goes on as if we were not there. After `LIMIT` errors one patch switches itself off and says so once.
`amfs-otel doctor` shows the counters (they are part of the process's status file).
"""

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

LIMIT = 20
"""Internal errors of one patch after which it is switched off."""

PARTS = frozenset(
    {
        *("assemble", "attach", "boundary", "capture", "drain", "exit", "fork", "journal"),
        *("masking", "metrics", "receipts", "sign", "spans", "spool", "status", "worker"),
    }
)
"""Names of parts of ours that are no patch: they go on after any number of errors."""

logger = logging.getLogger("amfs_otel")

_lock = threading.Lock()
_errors: dict[str, int] = {}
_causes: dict[str, str] = {}
_said: set[str] = set()
_off: set[str] = set()


def run(patch: str, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T | None:
    """Calls `function`; an exception of ours becomes a count and `None`.

    Only `Exception` is swallowed: a `KeyboardInterrupt` or `CancelledError` that arrives while our code runs belongs
    to the application.

    Args:
        patch: Name of the patch (`openai`) or part (one of `PARTS`) on whose account the error goes.
        function: Our code. It must not call the application's.
        *args: Passed on.
        **kwargs: Passed on.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  the one place that does
        failed(patch, error)
        return None


def failed(patch: str, error: BaseException) -> None:
    """Counts an internal error of `patch`, logs its cause once, switches the patch off at `LIMIT`."""
    cause = _cause(error)
    with _lock:
        count = _errors[patch] = _errors.get(patch, 0) + 1
        _causes[patch] = cause
        turned_off = count == LIMIT and patch not in PARTS
        if turned_off:
            _off.add(patch)
    once(
        f"{patch}:{cause}",
        logging.WARNING,
        "amfs-otel: internal error in %s (%s); the agent's call is not affected, this event may be missing",
        patch,
        cause,
    )
    if turned_off:
        once(
            f"{patch}:off",
            logging.WARNING,
            "amfs-otel: patch %s switched itself off after %d internal errors; see `amfs-otel doctor`",
            patch,
            LIMIT,
        )


def once(cause: str, level: int, message: str, *args: object) -> None:
    """Logs `message` the first time that `cause` occurs in this process."""
    with _lock:
        if cause in _said:
            return
        _said.add(cause)
    logger.log(level, message, *args)


def is_off(patch: str) -> bool:
    """Whether `patch` has switched itself off."""
    return patch in _off


def counters() -> dict[str, dict[str, object]]:
    """Internal errors so far: patch → count, newest cause, whether it is off."""
    with _lock:
        return {name: {"errors": n, "cause": _causes[name], "off": name in _off} for name, n in _errors.items()}


def reset() -> None:
    """Forgets all counts (after a fork, and in tests)."""
    global _lock  # noqa: PLW0603  a lock held by another thread at fork time would stay locked in the child
    _lock = threading.Lock()
    _errors.clear()
    _causes.clear()
    _said.clear()
    _off.clear()


def _cause(error: BaseException) -> str:
    """Type and place of an error, never its message: messages can hold content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__qualname__
    module = trace.tb_frame.f_globals.get("__name__", "?")
    return f"{type(error).__qualname__} at {module}:{trace.tb_lineno}"


def current_cause() -> str:
    """Type and place of the exception being handled."""
    error = sys.exc_info()[1]
    return _cause(error) if error is not None else "unknown"
