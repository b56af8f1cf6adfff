"""The command `amfs-otel`: each command parses, makes one library call, and renders what came.

Exit codes: 0 fine or INTACT, 1 TAMPERED, 2 wrong usage or nothing found, 3 cannot judge or unreachable, 4 incomplete,
130 interrupted, 141 whoever read the answer went away. stdout is the answer alone; all else goes to stderr. Nothing is
imported before it is needed.
"""


def main() -> None:
    """Runs the command named by `sys.argv` and exits with its code."""
    from amfs_otel.cli.app import app
    from amfs_otel.cli.streams import flush_streams, prepare_streams

    prepare_streams()
    try:
        app(prog_name="amfs-otel")
    finally:
        flush_streams()
