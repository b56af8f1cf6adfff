"""`python -m tests.backends [--all]`: build what is not built yet and say where it is and how long it took."""

from __future__ import annotations

import sys
import time

from tests.backends.programs import EXTRAS, PROGRAMS, BuildFailedError, binary_path, build, is_built


def main() -> int:
    """Build the programs; return the exit code."""
    for program in (*PROGRAMS, *EXTRAS) if "--all" in sys.argv[1:] else PROGRAMS:
        if is_built(program):
            print(f"{program.title}: already built, {binary_path(program)}")
            continue
        print(f"{program.title}: building ...", flush=True)
        started = time.monotonic()
        try:
            path = build(program)
        except BuildFailedError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{program.title}: {time.monotonic() - started:.0f} s, {path.stat().st_size / 1e6:.0f} MB, {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
