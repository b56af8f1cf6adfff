"""`python -m tests.bench [NAMES…] [--no-peers] [--quick]`: measure, print the tables, write `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.bench import (
    agents,
    anthropic_calls,
    calls,
    correctness,
    memory,
    outage,
    peers,
    profiled,
    reading,
    spool,
    startup,
    store,
)
from tests.bench.processes import ROOT
from tests.bench.report import Effort, Measure, Section, page

PARTS: dict[str, Measure] = {
    "calls": calls.measure,
    "peers": peers.measure,
    "anthropic": anthropic_calls.measure,
    "agents": agents.measure,
    "correctness": correctness.measure,
    "startup": startup.measure,
    "memory": memory.measure,
    "outage": outage.measure,
    "spool": spool.measure,
    "store": store.measure,
    "reading": reading.measure,
}
ON_REQUEST: dict[str, Measure] = {"profile": profiled.measure}
"""What only runs when it is named."""
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Run what the command line names; all parts when it names none."""
    every = {**PARTS, **ON_REQUEST}
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(every)}; default: all")
    parser.add_argument("--no-peers", action="store_true", help="without other instrumentations")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds; good to a quarter only; the page stays as it is"
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(every)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    names = [name for name in every if name in options.names] or [
        name for name in PARTS if name != "peers" or not options.no_peers
    ]
    before = os.getloadavg()[0]
    effort = Effort(options.quick, peers=not options.no_peers)
    sections = [_measured(name, every[name], effort) for name in names]
    if not options.names and not options.quick:
        text = page(sections, names=names, quick=options.quick, load=(before, os.getloadavg()[0]))
        PAGE.write_text(text, encoding="utf-8")
        print(f"\nwrote {PAGE.relative_to(ROOT)}")
    return int(any(section.failed for section in sections))


def _measured(name: str, measure: Measure, effort: Effort) -> Section:
    """The section of one part, printed; a part that fails says so and takes no other with it."""
    started = time.monotonic()
    try:
        section = measure(effort)
    except Exception as error:
        section = Section(name, remarks=[f"**Not measured**: {type(error).__name__}: {error}"], failed=True)
    print(f"\n{section.markdown()}\n\n({name}: {time.monotonic() - started:.0f} s)", flush=True)
    return section


if __name__ == "__main__":
    sys.exit(main())
