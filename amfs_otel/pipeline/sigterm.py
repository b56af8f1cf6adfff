"""SIGTERM, which ends a program without its exit functions: in a process that captures, its default is ours.

The handler stands in the place of SIG_DFL alone; what a program or a server has set itself is never displaced. But a
server that was there first puts SIG_DFL back when it has stopped, and raises the signal once more (uvicorn), and pools
of processes set it in each child (Celery, gunicorn's uvicorn worker). So whoever sets SIG_DFL gets the handler:
`signal.signal` is wrapped, once per process, and transparent where nothing is captured.
"""

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import wrapt


@dataclass(frozen=True, slots=True)
class Taker:
    """What runs before SIGTERM kills.

    Attributes:
        postponed: Takes a function to be called later, where it is too early to finish; whether it did.
        finish: Finishes; called more than once.
    """

    postponed: Callable[[Callable[[], None]], bool]
    finish: Callable[[], None]


LATEST_S = 5.0
"""The handler may have interrupted the holder of a lock that finishing needs; then the process ends all the same."""

_taker: Taker | None = None
_wrapped = False


def take(taker: Taker) -> None:
    """From now on `taker` finishes before SIGTERM's default kills this process; a forked child takes it anew.

    A handler can only be set in the main thread; elsewhere the next one who sets SIG_DFL does it.
    """
    global _taker, _wrapped  # noqa: PLW0603  one process has one SIGTERM
    _taker = taker
    if not _wrapped:
        _wrapped = True
        wrapt.wrap_function_wrapper("signal", "signal", _set)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _on_sigterm)


def give_back(taker: Taker) -> None:
    """Takes `take` back."""
    global _taker  # noqa: PLW0603  see `take`
    if _taker is not taker:
        return
    _taker = None
    if signal.getsignal(signal.SIGTERM) is _on_sigterm and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _set(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _taker is not None and args == (signal.SIGTERM, signal.SIG_DFL):
        args = (signal.SIGTERM, _on_sigterm)
    return wrapped(*args, **kwargs)


def _on_sigterm(number: int, _frame: FrameType | None) -> None:
    taker = _taker
    if taker is not None:
        if taker.postponed(lambda: _on_sigterm(number, None)):
            return
        _thread.start_new_thread(_kill_late, ())  # takes no lock of threading's, which may be the one that is held
        taker.finish()
        give_back(taker)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _kill_late() -> None:
    time.sleep(LATEST_S)
    os.kill(os.getpid(), signal.SIGKILL)
