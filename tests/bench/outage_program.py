"""A program that calls a model and answers on its standard output what the calls cost the thread that makes them.

Each line of standard input is a number of calls; at its end the program ends. With `nowhere.test` in the environment's
endpoint or DSN, that name is looked up for ever.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOWHERE = "nowhere.test"


def costs(call: Callable[[], object], calls: int) -> dict[str, float]:
    """What `calls` calls cost this thread.

    Returns:
        `cpu`: median CPU of a call, as a multiple of a fixed piece of work done between the calls; `cpu_us`: the same
        in µs; `waits`: in how many of a hundred calls the thread gave the processor up by itself, for a lock or for the
        interpreter that another thread holds. What the scheduler takes away is in neither.
    """
    spent: list[int] = []
    fixed: list[int] = []
    waits = 0
    for _ in range(calls):
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        cpu_ns = time.thread_time_ns()
        call()
        spent.append(time.thread_time_ns() - cpu_ns)
        waits += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > switches
        cpu_ns = time.thread_time_ns()
        sum(range(5000))
        fixed.append(time.thread_time_ns() - cpu_ns)
    cpu_ns = statistics.median(spent)
    return {"cpu": cpu_ns / statistics.median(fixed), "cpu_us": cpu_ns / 1000, "waits": waits / calls * 100}


def lose_a_name() -> None:
    """Has the look-up of `NOWHERE` never end, as where no name server answers."""
    known = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **named: Any) -> Any:
        if host in (NOWHERE, NOWHERE.encode()):
            threading.Event().wait()
        return known(host, *arguments, **named)

    socket.getaddrinfo = look_up


def main() -> None:
    """Make calls until standard input ends."""
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from tests.bench import traffic

    if any(NOWHERE in value for value in os.environ.values()):
        lose_a_name()
    create, arguments = traffic.client().chat.completions.create, traffic.chat_arguments()
    for line in sys.stdin:
        print(json.dumps(costs(lambda: create(**arguments), int(line))), flush=True)


if __name__ == "__main__":
    main()
