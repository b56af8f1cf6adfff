"""`python -m tests.bench [NAMES…] [--peers] [--quick]`: measure, print the tables, write `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.bench import calls, memory, outage, peers, spool, startup, store
from tests.bench.processes import ROOT
from tests.bench.report import Effort, Measure, Section, page

PARTS: dict[str, Measure] = {
    "calls": calls.measure,
    "startup": startup.measure,
    "memory": memory.measure,
    "outage": outage.measure,
    "spool": spool.measure,
    "store": store.measure,
}
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Run what the command line names; all parts but the peers when it names none."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(PARTS)}; default: all")
    parser.add_argument(
        "--peers", action="store_true", help="also other instrumentations, in environments of their own"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few rounds; good to a quarter only; the page stays as it is"
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    chosen = {name: PARTS[name] for name in PARTS if not options.names or name in options.names}
    if options.peers:
        chosen["peers"] = peers.measure
    before = os.getloadavg()[0]
    sections: list[Section] = []
    for name, measure in chosen.items():
        started = time.monotonic()
        section = measure(Effort(options.quick))
        sections.append(section)
        print(f"\n{section.markdown()}\n\n({name}: {time.monotonic() - started:.0f} s)", flush=True)
    if not options.names and not options.quick:
        text = page(sections, names=list(chosen), quick=options.quick, load=(before, os.getloadavg()[0]))
        PAGE.write_text(text, encoding="utf-8")
        print(f"\nwrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
