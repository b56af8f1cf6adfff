"""The projection and the answers that are read from it: explanations, trees, lists."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from amfs_otel.chain.record import Record
from amfs_otel.graph.listing import ListFilter
from amfs_otel.graph.projection import project
from amfs_otel.graph.reading import Reader
from amfs_otel.store.postgres import Store
from tests.bench.report import Effort, Figure, Section
from tests.bench.store import LOG, Ledger, server
from tests.support.stories import Writer, event, window

PATHS, AGENTS = 500, 50
ANSWER_MS = 25.0
BAR_TRACES = 1_000_000
"""How many traces the bar is meant for."""


def measure(effort: Effort) -> Section:
    """The section."""
    traces = effort.of(5_000, 500)
    section = Section(f"Projection and answers ({traces:,} decisions)")
    with server() as ledger, Store.connect(ledger.dsn, LOG) as store:
        decisions = _stored(store, ledger, traces)
        started = time.perf_counter()
        count = 0
        while done := project(store.connection, LOG):
            count += done
        seconds = time.perf_counter() - started
        rate = f"{count / seconds:,.0f} records a second here"
        section.figures.append(Figure("projection, a record", seconds / count * 1000, "ms", note=rate))
        section.figures += _answers(Reader(store), decisions, effort)
    section.remarks.append(
        f"Decisions of five steps with an outcome, over {PATHS} entries and by {AGENTS} agents. The bar is meant for "
        f"{BAR_TRACES:,} traces, which this run is too short to fill."
    )
    return section


def _stored(store: Store, ledger: Ledger, traces: int) -> list[Record]:
    """So many sealed decisions."""
    writer = Writer(ledger.writer_key, LOG)
    records = [writer.record(_story(number), at=60.0 + number) for number in range(traces)]
    for start in range(0, traces, 200):
        store.append(records[start : start + 200])
        store.seal(ledger.log_key)
    while store.seal(ledger.log_key).count:
        pass
    return records


def _story(number: int) -> dict[str, object]:
    """What one agent did: read, asked, called, wrote, and how it ended."""
    where = {"entity_path": f"service-{number % PATHS}", "key": "retry-pattern"}
    events = [
        event("memory_read", 1, 1.5, operation="read", found=True, version=3, confidence=0.9, value={"n": 3}, **where),
        event("llm_call", 2, 900.0, operation="chat", provider="openai", request_model="gpt-4o-mini"),
        event("tool_call", 3, 40.0, operation="execute_tool", tool_name="find_order", call_id=f"call_{number}"),
        event("memory_write", 4, 2.0, operation="write", version=4, created=False, value="text", **where),
        event("outcome", 5, 3.0, outcome_ref=f"DEP-{number}", outcome_type="success"),
    ]
    return window(f"agent-{number % AGENTS}", events, session_id=f"sess-{number:08x}")


def _answers(reader: Reader, decisions: list[Record], effort: Effort) -> list[Figure]:
    chosen = random.Random(11)

    def any_of(count: int) -> int:
        return chosen.randrange(min(count, len(decisions)))

    asked: list[tuple[str, Callable[[], object]]] = [
        ("explain by ref", lambda: reader.explain(f"DEP-{any_of(len(decisions))}")),
        ("show by record id", lambda: reader.show(decisions[any_of(len(decisions))].record_id)),
        (
            f"tree of an entry with {max(1, len(decisions) // PATHS)} decisions",
            lambda: reader.tree(f"service-{any_of(PATHS)}/retry-pattern"),
        ),
        ("the newest of one agent", lambda: reader.list(ListFilter(agent=f"agent-{any_of(AGENTS)}"))),
    ]
    return [figure for what, ask in asked for figure in _timed(what, ask, effort.of(200, 30))]


def _timed(what: str, ask: Callable[[], object], count: int) -> list[Figure]:
    times: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        ask()
        times.append((time.perf_counter() - started) * 1000)
    times.sort()
    p99 = times[count * 99 // 100]
    return [Figure(f"{what}, p99", p99, "ms", ANSWER_MS, note=f"p50 {times[count // 2]:.1f} ms")]
