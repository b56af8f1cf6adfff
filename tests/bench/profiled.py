"""Where the caller's time goes, workload by workload; for whoever wants to make it less."""

from __future__ import annotations

from tests.bench.beside import OFF, ON, US, processes
from tests.bench.processes import Process
from tests.bench.profiles import table
from tests.bench.report import Effort, Section

_WORKLOADS = {
    "openai": ("chat", "stream_long", "async_stream_long"),
    "anthropic": ("message", "message_stream_long"),
    "langchain": ("agent",),
}


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("Profiles")
    for library, workloads in _WORKLOADS.items():
        variants = processes(US, library)
        with Process(variants["none"]) as bare:
            for key in (OFF, ON):
                with Process(variants[key]) as ours:
                    for workload in workloads:
                        calls = effort.of(20, 5) if workload == "agent" else effort.of(300, 100)
                        section.tables.append(table(f"{workload}, content {key}", ours, bare, workload, calls))
    return section
