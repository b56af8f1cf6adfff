"""The demo's telemetry: how to play the story with an endpoint, and the spans that have to come of it."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from amfs_otel.demo.playing import LOG, Play
from amfs_otel.store.embedded import EmbeddedServer
from amfs_otel.store.postgres import Store

GPT, CLAUDE = "chat gpt-4o-mini", "chat claude-sonnet-5"
CHATS = (GPT, CLAUDE)
RECEIPT = "amfs.record"


class Step(NamedTuple):
    """A span of the story: its name, and the spans under it in the order in which they begin."""

    name: str
    below: tuple["Step", ...] = ()


STEPS: dict[str, tuple[Step, ...]] = {
    "deploy-agent": (Step("search_memory"), Step("search_memory"), Step(GPT), Step(GPT), Step("upsert_memory")),
    "review-agent": (
        Step("search_memory"),
        Step(
            "invoke_agent review-agent",  # the graph's run, within the decision
            (
                Step(CLAUDE),
                Step("execute_tool known_risks", (Step("search_memory"),)),
                Step("execute_tool sentry_errors"),
                Step(CLAUDE),
                Step("execute_tool note_risk", (Step("upsert_memory"),)),
                Step(CLAUDE),
            ),
        ),
    ),
    "onboard-agent": (Step("search_memory"), Step("search_memory"), Step(GPT), Step("upsert_memory")),
}
"""The spans under each agent's root; two tools at once begin in either order."""
ROOTS = tuple(f"invoke_agent {agent}" for agent in (*STEPS, "deploy-agent"))
"""The roots in the order in which the programs run: the late outcome is the deploy-agent's, too."""


def names_of(steps: Iterable[Step]) -> list[str]:
    """The names of all spans among and under `steps`."""
    return [name for step in steps for name in (step.name, *names_of(step.below))]


SPANS = sum(len(names_of(steps)) for steps in STEPS.values()) + len(ROOTS)


def steps_under(span_id: str, spans: Sequence[Any]) -> tuple[Step, ...]:
    """What stands under a span; tools that ran at once in the order of `STEPS`.

    Args:
        span_id: Its id.
        spans: In the order in which they began; each with `name`, `span_id` and `parent_id`.
    """
    told = [name for steps in STEPS.values() for name in names_of(steps)]
    found = [Step(span.name, steps_under(span.span_id, spans)) for span in spans if span.parent_id == span_id]
    together = groupby(found, key=lambda step: step.name.startswith("execute_tool"))
    return tuple(
        step
        for tools, group in together
        for step in (sorted(group, key=lambda one: told.index(one.name)) if tools else group)
    )


@dataclass(frozen=True)
class Sealed:
    """One entry of the demo's log, as its store has it; all hashes in hex, ids as record and header write them."""

    sequence_number: int
    record_id: str
    kind: str
    trace: str | None
    span: str | None
    record_hash: str
    content_hash: str
    parent_hash: str
    signing_key_id: str
    sealed_at: str


def environment(home: Path, endpoint: str, service: str) -> dict[str, str]:
    """What a person sets who wants the demo's telemetry at `endpoint` (OTLP over HTTP); `home` keeps everything."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AMFS_", "OTEL_", "OPENAI_"))},
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": service,
    }


def demo_home(home: Path) -> Path:
    """Where the demo that runs with `environment(home, …)` keeps its memory and its state."""
    return home / "state" / "amfs-otel-demo"


def run_demo(home: Path, endpoint: str, service: str) -> "subprocess.CompletedProcess[str]":
    """Runs `amfs-otel demo` as a process; its store goes on running until `clear_demo`."""
    return subprocess.run(
        [sys.executable, "-m", "amfs_otel", "demo"],
        env=environment(home, endpoint, service),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def play_demo(home: Path, endpoint: str, service: str) -> None:
    """The programs and the sealing of the demo alone: what sends telemetry, without what is shown of it."""
    play = Play(demo_home(home), environment(home, endpoint, service))
    for _ in play.acts():
        pass
    play.quietly("drain", codes=(0,))


def clear_demo(home: Path) -> None:
    """Stops the store of the demo and takes its files away."""
    EmbeddedServer(demo_home(home) / "state").remove()


def sealed(home: Path) -> list[Sealed]:
    """The demo's log, genesis first."""
    dsn = EmbeddedServer(demo_home(home) / "state").ensure(create=False)
    assert dsn is not None
    with Store.connect(dsn, LOG) as store:
        return [
            Sealed(
                sequence_number=stored.entry.sequence_number,
                record_id=stored.record.record_id,
                kind=stored.record.kind,
                trace=stored.record.trace,
                span=stored.record.span,
                record_hash=stored.record.record_hash.hex(),
                content_hash=stored.record.content_hash,
                parent_hash=stored.entry.parent_hash.hex(),
                signing_key_id=stored.record.signing_key_id,
                sealed_at=stored.entry.sealed_at,
            )
            for stored in store.stored_entries()
            if stored.record is not None
        ]
