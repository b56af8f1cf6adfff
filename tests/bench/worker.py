"""One measured process: one instrumentation in its own environment, answering requests on standard input.

    python -m tests.bench.worker ADAPTER [--library openai|anthropic|langchain] [--content] [--native]
                                         [--spans none|sampled_out] [--suppressed] [--metrics]

Each request and each answer is one JSON object a line. Times are nanoseconds of the calling thread's CPU per unit.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import gc
import json
import os
import resource
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from tests.bench import adapters, profiles


class Worker:
    """The instrumented process.

    Args:
        options: The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        adapter = adapters.ADAPTERS[options.adapter]
        os.environ.update(adapter.environment(options.content))
        os.environ["ANTHROPIC_OPEN_TELEMETRY"] = str(options.native).lower()  # its client's own spans
        from opentelemetry import context, metrics, trace

        from tests.bench import pipeline, shortcut, workloads

        self._pipeline, self._workloads = pipeline, workloads
        # Below all that instruments, hence first.
        self._shortcut = shortcut.Shortcut(options.library) if options.library in adapters.SDKS else None
        self._floor = workloads.WORKLOADS["floor"](self._shortcut)
        if options.spans == "none":
            os.environ["OTEL_SDK_DISABLED"] = "true"  # only now: the floor is made of the SDK
        else:
            trace.set_tracer_provider(pipeline.provider(sampled_out=options.spans == "sampled_out"))
        if options.metrics:
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader

            metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
        adapter.instrument(options.library, options.content)
        if options.suppressed:
            context.attach(context.set_value("suppress_instrumentation", True))
        self._current: tuple[str, Any] = ("", None)
        self._ready: dict[str, Any] = {}

    def _workload(self, name: str) -> Any:
        """The workload `name`; the shortcut belongs to the one that was made last."""
        if self._current[0] != name:
            if name not in self._ready:
                made = self._workloads.WORKLOADS[name](self._shortcut)
                self._ready[name] = (made, *self._shortcut.state) if self._shortcut else (made,)
            made, *state = self._ready[name]
            if self._shortcut:
                self._shortcut.state = tuple(state)
            self._current = (name, made)
        return self._current[1]

    def batch(self, workload: str, calls: int) -> dict[str, Any]:
        """Times `calls` calls one by one, and the floor between them: the speed of a shared machine drifts."""
        work = self._workload(workload)
        call, floor, units = work.call, self._floor.call, work.units
        called: list[int] = []
        bare: list[int] = []
        block = max(1, 10 // units)
        for _ in range(max(1, calls // block)):
            called += _times(call, block)
            bare += _times(floor, 10)
        called.sort()
        bare.sort()
        return {"call": called[len(called) // 2] / units, "floor": bare[len(bare) // 2]}

    def patch(self, workload: str, calls: int) -> dict[str, Any]:
        """What the patch alone adds to a call, the SDK's method with and without it by turns; whether there is one.

        Two processes differ by more microseconds than a patch that only looks and goes on.
        """
        work = self._workload(workload)
        patched: list[int] = []
        bare: list[int] = []
        for _ in range(max(1, calls // 10)):
            patched += _times(work.call, 10)
            bare += _times(work.call_bare, 10)
        return {"over": statistics.median(patched) - statistics.median(bare), "patched": work.is_patched}

    def latency(self, workload: str, calls: int) -> dict[str, Any]:
        """Wall time of `calls` calls: what a user waits."""
        call = self._workload(workload).call
        times: list[int] = []
        for _ in range(calls):
            start = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - start)
        times.sort()
        return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}

    def spans(self, workload: str, calls: int) -> dict[str, Any]:
        """What is exported: bytes as OTLP per span, for each span name; also spans a call."""
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        exporter = self._pipeline.exporter
        call = self._workload(workload).call
        self._pipeline.flush()
        kept: list[Any] = []
        exporter.kept = kept
        for _ in range(calls):
            call()
        gc.collect()
        self._pipeline.flush()
        exporter.kept = None
        chats = [span for span in kept if span.attributes and "gen_ai.request.model" in span.attributes] or kept
        if not chats:
            return {"bytes": 0, "spans": 0.0, "attributes": 0.0}
        size = len(encode_spans(chats).SerializeToString()) / len(chats)
        return {
            "bytes": size,
            "spans": len(kept) / calls,
            "attributes": sum(len(span.attributes or ()) for span in chats) / len(chats),
        }

    def growth(self, workload: str, calls: int, session: int, pause: int = 0) -> dict[str, Any]:
        """KiB of resident memory after a tenth of `calls` and at the end, all that was captured being durable.

        A session of ours stands around each `session` calls, so that decision traces close; 0: around none. After
        each `pause` sessions the worker is given the time to catch up; 0: only at the end.
        """
        call = self._workload(workload).call
        product = sys.modules["amfs_otel"]

        def made(count: int) -> None:
            for number in range(count // max(1, session)):
                if pause and number % pause == 0:
                    self._settle()
                with product.session("bench-agent") if session else contextlib.nullcontext():
                    for _ in range(max(1, session)):
                        call()

        made(calls // 10)
        self._settle()
        before = resident_kib()
        made(calls - calls // 10)
        self._settle()
        return {"before": before, "growth": resident_kib() - before}

    def memory(self, workload: str, calls: int) -> dict[str, Any]:
        """KiB of resident memory of a process that made `calls` calls."""
        call = self._workload(workload).call
        for _ in range(calls):
            call()
        self._settle()
        return {"resident": resident_kib()}

    def threads(self, workload: str, calls: int) -> dict[str, Any]:
        """CPU per call that our worker and all other threads took, until all that was captured was durable."""
        call = self._workload(workload).call
        call()
        self._settle()
        ours, process, caller = worker_cpu_ns(), time.process_time_ns(), time.thread_time_ns()
        for _ in range(calls):
            call()
        settled = time.thread_time_ns()
        while self._backlog():
            time.sleep(0.05)
        time.sleep(0.2)
        others = time.process_time_ns() - process - (time.thread_time_ns() - caller)
        return {
            "worker": (worker_cpu_ns() - ours) / calls,
            "others": others / calls,
            "caller": (settled - caller) / calls,
        }

    def profile(self, workload: str, calls: int) -> dict[str, Any]:
        """Where the caller's time goes: function → calls of it and its own CPU, ns, in one call of the workload.

        What a function spends in built-in functions is its own. The profiler's cost is in every figure.
        """
        call = self._workload(workload).call
        for _ in range(3):
            call()
        self._settle()
        profiler = cProfile.Profile(time.thread_time_ns, 1e-9)
        profiler.enable()
        for _ in range(calls):
            call()
        profiler.disable()
        return {"functions": profiles.own_times(profiler.getstats(), calls)}

    def settle(self) -> dict[str, Any]:
        """Makes all that was captured durable, so that the worker does not run beside the next measurement."""
        self._settle()
        return {}

    def _settle(self) -> None:
        product = sys.modules.get("amfs_otel.pipeline")
        running = product.current() if product is not None else None
        if running is not None:
            running.flush(60)
        self._pipeline.flush()
        gc.collect()

    @staticmethod
    def _backlog() -> int:
        product = sys.modules.get("amfs_otel.pipeline")
        running = product.current() if product is not None else None
        return len(running.intake) if running is not None else 0


def _times(call: Callable[[], None], count: int) -> list[int]:
    """CPU of the calling thread for each of `count` calls, ns."""
    times: list[int] = []
    for _ in range(count):
        start = time.thread_time_ns()
        call()
        times.append(time.thread_time_ns() - start)
    return times


def resident_kib() -> int:
    """Resident memory of this process, KiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def worker_cpu_ns() -> int:
    """CPU time of our worker thread so far; 0 where there is none."""
    return sum(
        time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name == "amfs-otel" and thread.ident is not None
    )


@contextlib.contextmanager
def answers() -> Generator[Any]:
    """The real standard output, for our lines alone: some instrumentations print banners."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        yield output


def main() -> None:
    """Answer requests until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("adapter", choices=list(adapters.ADAPTERS))
    parser.add_argument("--library", choices=adapters.LIBRARIES, default="openai")
    parser.add_argument("--content", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--spans", choices=["all", "none", "sampled_out"], default="all")
    parser.add_argument("--suppressed", action="store_true")
    parser.add_argument("--metrics", action="store_true")
    warnings.simplefilter("ignore")
    with answers() as output:
        worker = Worker(parser.parse_args())

        def say(answer: dict[str, Any]) -> None:
            output.write(json.dumps(answer) + "\n")
            output.flush()

        say({})
        for line in sys.stdin:
            request = json.loads(line)
            try:
                say(getattr(worker, request.pop("do"))(**request))
            except Exception as error:
                say({"error": f"{type(error).__name__}: {error}"[:300]})


if __name__ == "__main__":
    main()
