"""The command `amfs-otel`: each command parses, makes one library call, and renders what came.

Exit codes: 0 fine or INTACT, 1 TAMPERED, 2 wrong usage or nothing found, 3 cannot judge or unreachable, 4 incomplete.
stdout is the answer alone; all else goes to stderr. Nothing is imported before it is needed.
"""

import sys


def main() -> None:
    """Runs the command named by `sys.argv` and exits with its code."""
    from amfs_otel.cli.app import app

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        # What its encoding does not have is written as an escape, not as a traceback.
        reconfigure(errors="backslashreplace")
    app(prog_name="amfs-otel")
