"""One story over each of AMFS's adapters: a folder, a PostgreSQL database, a real `amfs-http-server`.

Whatever holds the memory, the trace says the same, but for two things. PostgreSQL keeps four decimals of a confidence,
so both what the agent reads and what an outcome makes of it are rounded to them. And what is elsewhere is `remote`: its
spans are a client's.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.postgres_servers import Server
from tests.support.agents import steps_of
from tests.support.otlp_decode import Span
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.programs import environment
from tests.support.spooled import Spooled, spooled

ADAPTERS = {
    "filesystem": "from amfs_filesystem import FilesystemAdapter\nfrom pathlib import Path\n"
    "def adapter(): return FilesystemAdapter(Path(sys.argv[1]), 'default')",
    "postgres": "from amfs_postgres import PostgresAdapter\ndef adapter(): return PostgresAdapter(sys.argv[1])",
    "http": "from amfs_adapter_http import HttpAdapter\ndef adapter(): return HttpAdapter(sys.argv[1], 'any')",
}
STORY = """
writer = AgentMemory("platform-agent", adapter=adapter())
writer.write("checkout-service", "retry-pattern", {"max_retries": 3}, confidence=0.92)
writer.write("checkout-service", "risk-race", "charges twice", confidence=0.78, memory_type=MemoryType.BELIEF)
writer.write("checkout-service", "retry-pattern", {"max_retries": 5}, confidence=0.92, pattern_refs=["shared/backoff"])
writer.close()

mem = AgentMemory("deploy-agent", adapter=adapter())
mem.read("checkout-service", "retry-pattern")
mem.read("checkout-service", "absent")
mem.read_from("platform-agent", "checkout-service", "risk-race")
mem.search(entity_path="checkout-service", min_confidence=0.8, sort_by="confidence")
mem.list("checkout-service")
mem.record_context("pagerduty-incidents", "3 SEV-1", source="PagerDuty API")
mem.record_action("rollback", {"to": "v41"}, result="done")
mem.write("deploys", "DEP-500", {"service": "checkout"}, memory_type=MemoryType.EXPERIENCE, shared=False)
with mem.transaction("two at once") as both:
    both.write("deploys", "first", 1)
    both.write("deploys", "second", {"n": 2}, confidence=0.4)
before = mem.explain("DEP-500")
mem.commit_outcome("DEP-500", OutcomeType.SUCCESS, decision_summary="Rolled back")
print(json.dumps([before, mem.explain("DEP-500")], default=str))
mem.close()
"""
STEPS = [
    "memory_read read", "memory_read read", "memory_read read_from", "agent_interaction", "memory_query search",
    "memory_query list", "context", "tool_call", "memory_write write", "commit transaction",
    "memory_write transaction", "memory_write transaction", "outcome",
]  # fmt: skip
CHANGED = {"retry-pattern": (2, 0.92, 3, 0.937008), "risk-race": (1, 0.78, 2, 0.831418)}
"""Entry → version and confidence as it was read, and as the outcome left it, to six decimals."""


@dataclass(frozen=True)
class Told:
    """What one telling of the story left.

    Attributes:
        decisions: Every trace, oldest first.
        spans: What the program's exporter sent.
        upstream: What `AgentMemory.explain` said before the commit.
        ours: What it says afterwards, answered by us.
    """

    decisions: list[Spooled]
    spans: list[Span]
    upstream: dict[str, Any]
    ours: dict[str, Any]

    @property
    def decision(self) -> dict[str, Any]:
        """The facts of the trace with the outcome."""
        (one,) = [one.facts for one in self.decisions if one.facts["agent"] == "deploy-agent"]
        return one


@contextmanager
def amfs_http_server(dsn: str, folder: Path) -> Iterator[str]:
    """A server process on a listening socket of ours, so that nobody waits for its port; gives its address."""
    settings = {"AMFS_POSTGRES_DSN": dsn, "AMFS_ENABLE_EMBEDDINGS": "0"}
    with socket.create_server(("127.0.0.1", 0)) as listening, (folder / "server.log").open("w") as log:
        fd = str(listening.fileno())
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "amfs_http.server:app", "--fd", fd],
            env={**os.environ, **settings},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[listening.fileno()],
        )
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def memory_of(adapter: str, folder: Path, postgres: Server) -> Iterator[str]:
    """Where the memory of this adapter is: its only argument."""
    if adapter == "http":
        with amfs_http_server(postgres.database(), folder) as address:
            yield address
    else:
        yield postgres.database() if adapter == "postgres" else str(folder / "memory")


def told(adapter: str, tmp_path: Path, postgres: Server) -> Told:
    """Tells the story over this adapter, by a program that knows nothing of us."""
    folder = tmp_path / adapter
    folder.mkdir()
    program = folder / "agent.py"
    imports = "import json, sys\nfrom amfs import AgentMemory, MemoryType, OutcomeType\n"
    program.write_text(imports + ADAPTERS[adapter] + STORY)
    with memory_of(adapter, folder, postgres) as memory, OtlpReceiver() as receiver:
        settings = {
            "AMFS_OTEL_ANSWER_EXPLAIN": "1",
            "AMFS_OTEL_LEDGER_CONTENT": "all",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.http_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_EXPORTER": "otlp",
        }
        done = subprocess.run(
            [Path(sys.executable).parent / "opentelemetry-instrument", sys.executable, program, memory],
            env=environment(folder / "state", **settings),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, "amfs-otel" in done.stderr) == (0, False), done.stderr
        return Told(spooled(folder / "state"), receiver.spans, *json.loads(done.stdout))


def rounded(value: Any) -> Any:
    """`value` with the four decimals that PostgreSQL keeps."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def steps(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a trace without what is drawn by chance and what the adapters may differ in."""
    shown = rounded(steps_of(facts))
    return [{key: value for key, value in step.items() if key not in ("commit_id", "remote")} for step in shown]


def known(answer: dict[str, Any]) -> dict[str, Any]:
    """What an `explain` says of what the decision rests on, without its times."""
    entry = ("entity_path", "key", "version", "value", "confidence", "memory_type", "written_by")
    entries = [{key: one[key] for key in entry} for one in answer["causal_entries"]]
    contexts = [{key: one[key] for key in ("label", "summary", "source")} for one in answer["external_contexts"]]
    return rounded({"outcome_ref": answer["outcome_ref"], "causal_entries": entries, "external_contexts": contexts})


def check_as_it_was_told(adapter: str, story: Told) -> None:
    decision = story.decision
    names = [" ".join(filter(None, (one["kind"], one.get("operation")))) for one in decision["events"]]
    assert names[: len(STEPS)] == STEPS
    assert set(names[len(STEPS) :]) == {"confidence_change"}
    assert (decision["closed_by"], decision["status"]) == ("commit", "complete")
    outcome = decision["events"][len(STEPS) - 1]
    causal = {one["key"]: one["version"] for one in outcome["causal_keys"]}
    changes = {one["key"]: one for one in decision["events"][len(STEPS) :]}
    for key, (read, confidence, made, after) in CHANGED.items():
        assert causal[key] == read
        change = changes[key]
        assert round(change["after"], 6) == (after if adapter == "filesystem" else round(after, 4))
        expected = {"before": confidence, "version_before": read, "version_after": made, "direction": "raised"}
        assert {**expected, "raced": False}.items() <= change.items()
    memory = [one for one in decision["events"] if one["kind"].startswith("memory_") or one["kind"] == "commit"]
    assert {one.get("remote", False) for one in memory} == {adapter != "filesystem"}
    kinds = {span.kind for span in story.spans if "amfs.operation" in span.attributes}
    assert kinds == {"internal" if adapter == "filesystem" else "client"}


def check_same(there: Told, here: Told) -> None:
    assert [one.facts["agent"] for one in there.decisions] == [one.facts["agent"] for one in here.decisions]
    for one, other in zip(there.decisions, here.decisions, strict=True):
        assert steps(one.facts) == steps(other.facts)
    assert known(there.upstream) == known(here.upstream)
    assert known(there.ours) == known(here.ours)
    assert sorted(span.name for span in there.spans) == sorted(span.name for span in here.spans)


def test_every_adapter_leaves_the_same_trace(tmp_path: Path, postgres: Server) -> None:
    with ThreadPoolExecutor(len(ADAPTERS)) as pool:
        stories = dict(zip(ADAPTERS, pool.map(lambda name: told(name, tmp_path, postgres), ADAPTERS), strict=True))
    for adapter, story in stories.items():
        check_as_it_was_told(adapter, story)
        check_same(story, stories["filesystem"])
