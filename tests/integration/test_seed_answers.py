"""Every Python block of the seed, unedited, under our capture: what upstream answers then, and what we answer.

`test_seed_upstream.py` pins the same blocks without us.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_calls import check_schema
from tests.support.programs import Ran, ran

BLOCKS = Path(__file__).parents[1] / "reference" / "seed_blocks"
STORY = ("1-knew", "2-gathered", "3-decided", "4-happened", "5-why")
SEED_KEYS = {
    "outcome_ref", "agent_id", "session_id", "causal_chain_length", "causal_entries", "external_contexts",
}  # fmt: skip
ENTRY_KEYS = {"entity_path", "key", "confidence"}
CONTEXT_KEYS = {"label", "summary", "source", "recorded_at"}

READER = f"""
import json, logging
from pathlib import Path
from amfs import AgentMemory, MemoryType, OutcomeType
from amfs_filesystem import FilesystemAdapter

said = []
class Ears(logging.Handler):
    def emit(self, record):
        said.append((record.levelname, record.getMessage()))
logging.getLogger("amfs_otel").addHandler(Ears())
author = AgentMemory(agent_id="platform-agent", adapter=FilesystemAdapter(root=Path("memory"), namespace="default"))
for _ in range(3):
    author.write("checkout-service", "retry-pattern", {{"max_retries": 3}}, confidence=0.92)
author.write("checkout-service", "risk-race-condition", "double charge", confidence=0.78)
author.close()
mem = AgentMemory(agent_id="deploy-agent", adapter=FilesystemAdapter(root=Path("memory"), namespace="default"))

def block(name):
    path = Path({str(BLOCKS)!r}) / f"{{name}}.txt"
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), globals())

def tell(**answers):
    print(json.dumps(answers, default=str))
"""
STORY_TOLD = """
for name in ("1-knew", "2-gathered", "3-decided", "4-happened", "5-why"):
    block(name)
first = chain
block("5-why")
tell(upstream=first, again=chain, ours=amfs_otel.explain("DEP-500"), said=said)
"""
ENRICHED = """
block("7-enriched")
upstream = mem._last_trace
tell(
    ours=amfs_otel.explain("DEP-500"),
    upstream=json.loads(upstream.model_dump_json()),
    listed=mem.list_traces(),
    stored=mem._adapter.read("checkout-service", "retry-pattern").confidence,
)
"""
THE_REST = """
for name in ("1-knew", "2-gathered", "3-decided", "4-happened", "6-neighbors", "8-replay"):
    block(name)
tell(edges=edges, versions=versions, state=state_at_decision, said=said,
     kinds=amfs_otel.explain("DEP-500")["coverage"]["events"])
"""

Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Runs a program after `READER` in a directory of its own; gives what it told."""

    def run(program: str, **settings: str) -> dict[str, Any]:
        done: Ran = ran(f"os.chdir({str(tmp_path)!r})\n{READER}{program}", tmp_path / "state", **settings)
        assert done.code == 0, done.err
        return json.loads(done.out)

    return run


def _check_the_seeds_answer(chain: dict[str, Any]) -> None:
    """The JSON that the seed shows under "Returns:"."""
    assert chain.keys() >= SEED_KEYS
    assert (chain["outcome_ref"], chain["agent_id"], chain["causal_chain_length"]) == ("DEP-500", "deploy-agent", 2)
    assert chain["session_id"].startswith("sess-")
    entries, contexts = chain["causal_entries"], chain["external_contexts"]
    assert all(entry.keys() >= ENTRY_KEYS for entry in entries)
    assert all(context.keys() >= CONTEXT_KEYS and context["recorded_at"] for context in contexts)
    assert [(entry["entity_path"], entry["key"], entry["confidence"]) for entry in entries] == [
        ("checkout-service", "retry-pattern", 0.92),
        ("checkout-service", "risk-race-condition", 0.78),
    ]
    assert [(context["label"], context["summary"], context["source"]) for context in contexts] == [
        ("pagerduty-incidents", "3 SEV-1 incidents in last 24h for checkout-service", "PagerDuty API"),
        ("git-log", "15 commits since last deploy, 3 touching retry logic", "git"),
    ]


def test_upstream_stays_empty_and_one_warning_says_who_knows(told: Told) -> None:
    answers = told(STORY_TOLD)
    for chain in (answers["upstream"], answers["again"]):
        assert chain.keys() == SEED_KEYS
        assert (chain["causal_chain_length"], chain["causal_entries"], chain["external_contexts"]) == (0, [], [])
    ((level, message),) = answers["said"]
    assert level == "WARNING"
    assert "amfs_otel.explain(ref)" in message
    assert "AMFS_OTEL_ANSWER_EXPLAIN=1" in message
    _check_the_seeds_answer(answers["ours"])


def test_where_asked_to_upstreams_explain_answers_as_ours(told: Told) -> None:
    answers = told(STORY_TOLD, AMFS_OTEL_ANSWER_EXPLAIN="1")
    _check_the_seeds_answer(answers["upstream"])
    assert answers["upstream"] == answers["again"] == answers["ours"]
    assert answers["said"] == []
    check_schema(answers["ours"], "explain")


def test_before_the_commit_upstreams_own_answer_stands(told: Told) -> None:
    program = "for name in ('1-knew', '2-gathered', '3-decided', '5-why'): block(name)\ntell(chain=chain, said=said)"
    answers = told(program, AMFS_OTEL_ANSWER_EXPLAIN="1")
    _check_the_seeds_answer(answers["chain"])
    assert "record_id" not in answers["chain"]
    assert answers["said"] == []


def test_the_blocks_that_only_look_answer_as_without_us(told: Told) -> None:
    answers = told(THE_REST)
    assert (answers["edges"], answers["versions"], answers["state"], answers["said"]) == ([], [], None, [])
    assert answers["kinds"] == 8, "two reads, two contexts, a write, an outcome, two changes; looking is no event"


def test_each_field_of_the_enriched_trace_has_a_value(told: Told) -> None:
    """The seed's table, row by row; upstream's own trace beside it, where it is empty."""
    answers = told(ENRICHED)
    ours, upstream = answers["ours"], answers["upstream"]
    check_schema(ours, "explain")

    (entry,) = ours["causal_entries"]
    assert (entry["entity_path"], entry["key"], entry["version"]) == ("checkout-service", "retry-pattern", 3)
    assert entry["value"] == {"max_retries": 3}
    assert (entry["memory_type"], entry["written_by"]) == ("fact", "platform-agent")
    assert entry["read_at"] is not None
    assert entry["duration_ms"] > 0
    assert upstream["causal_entries"][0]["duration_ms"] is None

    (context,) = ours["external_contexts"]
    assert (context["label"], context["summary"]) == ("pagerduty", "No active incidents")
    assert context["recorded_at"] is not None

    (query,) = ours["query_events"]
    assert (query["operation"], query["result_count"]) == ("search", 2)
    assert query["parameters"] == {"entity_path": "checkout-service", "min_confidence": 0.5}
    assert query["duration_ms"] > 0
    assert upstream["query_events"][0]["duration_ms"] is None

    assert ours["error_events"] == []
    assert (ours["state_diff"]["entries_created"], ours["state_diff"]["entries_updated"]) == (1, 0)
    (change,) = ours["state_diff"]["confidence_changes"]
    assert (change["key"], change["before"], change["direction"]) == ("retry-pattern", 0.92, "raised")
    assert change["after"] == answers["stored"] > 0.92
    assert upstream["state_diff"]["confidence_changes"] == []

    assert ours["session_started_at"] < ours["session_ended_at"]
    assert ours["session_duration_ms"] > 0
    assert ours["decision_summary"] == "Deployed after verifying retry pattern"
    assert ours["record_id"]
    assert upstream["id"] == ""
    assert answers["listed"] == []


FAILING = """

def broken(*_args, **_kwargs):
    raise OSError("the disk is full")

mem.read("checkout-service", "retry-pattern")
mem._adapter.read, whole = broken, mem._adapter.read
try:
    mem.read("checkout-service", "risk-race-condition")
except OSError as error:
    raised = str(error)
mem._adapter.read = whole

@amfs_otel.tool("rollback")
def rollback(service):
    raise TimeoutError(service)

try:
    rollback("checkout-service")
except TimeoutError:
    pass
mem.commit_outcome("DEP-501", OutcomeType.FAILURE)
tell(raised=raised, ours=amfs_otel.explain("DEP-501"))
"""


def test_errors_of_reads_and_tools_are_error_events(told: Told) -> None:
    answers = told(FAILING)
    assert answers["raised"] == "the disk is full"
    errors = answers["ours"]["error_events"]
    assert [(error["kind"], error["error_type"]) for error in errors] == [
        ("memory_read", "OSError"),
        ("tool_call", "TimeoutError"),
    ]
    assert all(error["occurred_at"] is not None and error["step"] is not None for error in errors)
    assert [error["message"] for error in errors] == [None, None], "exception texts are message texts: not kept"
    assert {held["rule"] for held in answers["ours"]["withheld"]}
