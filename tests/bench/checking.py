"""Runs the checks of one SDK under one instrumentation, in its environment, and says what happened, a JSON line each.

    python -m tests.bench.checking ADAPTER SDK [--content] [--native]

The last line tells of the whole process: spans that never ended, and spans that ended more than once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import gc
import importlib
import inspect
import json
import logging
import os
import sys
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench import adapters

LIMIT_S = 20.0
"""How long a check that awaits may take."""


@dataclass(slots=True)
class Outcome:
    """What one check showed.

    Attributes:
        check: Its name.
        error: Why it does not hold; nothing if it does.
        expected: Spans that it should have made.
        ended: Spans that it made and that ended, those of agent runs aside.
        lost: Names of spans that had not ended when it was over and all garbage was gone.
        twice: Names of spans that were ended more than once.
        logged: Warnings and errors in the log.
        clean: Whether no span was current afterwards.
    """

    check: str
    expected: int = 0
    error: str = ""
    ended: int = 0
    lost: list[str] = field(default_factory=list[str])
    twice: list[str] = field(default_factory=list[str])
    logged: list[str] = field(default_factory=list[str])
    clean: bool = True


class SpanBook:
    """Every span of this process: when it started, and how often `end` was called, whoever made the provider."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace import Span

        self.started: list[Any] = []
        self.ends = Counter[int]()
        # The two methods of the class, since some instrumentations bring providers and processors of their own.
        start, end = Span.start, Span.end

        def started(span: Any, *args: Any, **kwargs: Any) -> Any:
            self.started.append(span)
            return start(span, *args, **kwargs)

        def ended(span: Any, *args: Any, **kwargs: Any) -> Any:
            self.ends[id(span)] += 1
            return end(span, *args, **kwargs)

        Span.start, Span.end = started, ended  # type: ignore[method-assign]

    def judge(self, outcome: Outcome, since: int) -> None:
        """Fills in what became of the spans that started since the number `since`."""
        for span in self.started[since:]:
            ends = self.ends[id(span)]
            if ends > 1:
                outcome.twice.append(span.name)
            if is_root(span):
                continue
            outcome.ended += ends > 0
            if not ends:
                outcome.lost.append(span.name)


def is_root(span: Any) -> bool:
    """Whether a span stands for a run of an agent, which goes on after the call."""
    attributes: Any = span.attributes or {}
    return attributes.get("gen_ai.operation.name") == "invoke_agent"


class Listener(logging.Handler):
    """Keeps what was logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.name}: {record.getMessage()}"[:160])


def run(check: Any, kit: Any, book: SpanBook, heard: Listener, loop: asyncio.AbstractEventLoop) -> Outcome:
    """Runs one check in a context of its own."""
    from opentelemetry import trace

    since, outcome = len(book.started), Outcome(check.name, check.spans)
    heard.said.clear()

    def inside() -> None:
        result = check.run(kit)
        if inspect.iscoroutine(result):
            loop.run_until_complete(asyncio.wait_for(result, LIMIT_S))

    context = contextvars.Context()
    try:
        context.run(inside)
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"[:200]
    gc.collect()
    loop.run_until_complete(asyncio.sleep(0))
    outcome.clean = not context.run(trace.get_current_span).get_span_context().is_valid
    outcome.logged = list(dict.fromkeys(heard.said))[:3]
    book.judge(outcome, since)
    return outcome


def main() -> None:
    """Run all checks of an SDK."""
    parser = argparse.ArgumentParser()
    parser.add_argument("adapter", choices=list(adapters.ADAPTERS))
    parser.add_argument("sdk", choices=adapters.SDKS)
    parser.add_argument("--content", action="store_true")
    parser.add_argument("--native", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # some instrumentations print banners
    adapter = adapters.ADAPTERS[options.adapter]
    os.environ.update(adapter.environment(options.content))
    os.environ["ANTHROPIC_OPEN_TELEMETRY"] = str(options.native).lower()
    from opentelemetry import trace

    from tests.bench import pipeline
    from tests.bench.checks.kit import Kit

    checks = importlib.import_module(f"tests.bench.checks.{options.sdk}_checks").CHECKS
    coroutine = inspect.iscoroutinefunction(Kit(options.sdk).acreate)
    book, heard = SpanBook(), Listener()
    trace.set_tracer_provider(pipeline.provider())
    adapter.instrument(options.sdk, options.content)
    logging.getLogger().addHandler(heard)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, about: heard.said.append(f"event loop: {about.get('message')}"))
    gc.freeze()  # what was imported need not be looked at in every collection
    for check in checks:
        outcome = run(check, Kit(options.sdk, coroutine=coroutine), book, heard, loop)
        output.write(json.dumps(asdict(outcome)) + "\n")
        output.flush()
    output.write(json.dumps(asdict(at_the_end(book, heard))) + "\n")
    output.flush()
    sys.stderr.flush()
    os._exit(0)  # not every instrumentation ends its threads


def at_the_end(book: SpanBook, heard: Listener) -> Outcome:
    """What stands open, or ended twice, when the instrumentation was shut down; roots included."""
    heard.said.clear()
    product = sys.modules.get("amfs_otel.pipeline")
    if product is not None:
        product.stop()
    gc.collect()
    outcome = Outcome("the end of the process", len(book.started))
    for span in book.started:
        ends = book.ends[id(span)]
        outcome.ended += ends > 0
        if ends != 1:
            (outcome.twice if ends else outcome.lost).append(span.name)
    outcome.logged = heard.said[:3]
    return outcome


if __name__ == "__main__":
    main()
