"""The watcher: a detached process that stops the local server when nobody has used it for a while, then ends.

One lives per server, by a lock that dies with it. It imports the standard library only until the idle time is over,
asks the server for open sessions once, and is gone as soon as the server is, however that ended. If it is killed, the
next use of the local store starts another.
"""

import os
import sys
import time
from pathlib import Path

from amfs_otel.store.embedded import EmbeddedServer

LONGEST_PAUSE_S = 5.0
START_GRACE_S = 90.0


def main() -> None:
    """Detach, watch, end. Arguments: state directory, directory of programs or nothing, idle seconds."""
    state_dir, binaries_dir, idle_limit_s = sys.argv[2:5]
    if os.fork():
        os._exit(0)
    server = EmbeddedServer(
        Path(state_dir), binaries_dir=Path(binaries_dir) if binaries_dir else None, idle_limit_s=float(idle_limit_s)
    )
    with server.watching() as alone:
        if alone:
            watch(server)


def watch(server: EmbeddedServer) -> None:
    """Return once the server is gone. It is started beside us, so for a while its absence means nothing.

    Without its state directory nobody can use the server any more: then it is stopped at once.
    """
    pause_s = min(LONGEST_PAUSE_S, server.idle_limit_s / 4)
    grace_until = time.monotonic() + START_GRACE_S
    while server.home.exists():
        if not server.state_dir.exists():
            server.stop()
            return
        running = (server.home / "data" / "postmaster.pid").exists()
        grace_until = 0.0 if running else grace_until
        if (running or time.monotonic() > grace_until) and server.stop_when_idle():
            return
        time.sleep(pause_s)
