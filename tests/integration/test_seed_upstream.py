"""Every Python block of the seed, unedited, on the real SDK: what upstream answers by itself.

`tests/reference/seed_blocks/` holds the blocks as text, in the seed's order. They share one namespace, as a reader who
types them in would. `mem` and the two imports come from `PREAMBLE`, for the seed never shows them.
"""

from pathlib import Path
from typing import Any

import pytest
from amfs import AgentMemory
from amfs_filesystem import FilesystemAdapter

BLOCKS = Path(__file__).parents[1] / "reference" / "seed_blocks"
PREAMBLE = "from amfs import MemoryType, OutcomeType"
STORY = ("1-knew", "2-gathered", "3-decided", "4-happened", "5-why")


class Reader:
    """Runs blocks of the seed one after another in one namespace."""

    def __init__(self, root: Path) -> None:
        self.adapter = FilesystemAdapter(root=root, namespace="default")
        author: Any = AgentMemory(agent_id="platform-agent", adapter=self.adapter)
        for _ in range(3):
            author.write("checkout-service", "retry-pattern", {"max_retries": 3}, confidence=0.92)
        author.write("checkout-service", "risk-race-condition", "double charge", confidence=0.78)
        self.mem = AgentMemory(agent_id="deploy-agent", adapter=self.adapter)
        self.names: dict[str, Any] = {"mem": self.mem}
        exec(PREAMBLE, self.names)

    def run(self, *blocks: str) -> dict[str, Any]:
        for block in blocks:
            path = BLOCKS / f"{block}.txt"
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), self.names)
        return self.names


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "memory")


def test_no_block_is_left_out(reader: Reader) -> None:
    names = sorted(path.stem for path in BLOCKS.iterdir())
    assert names == [*STORY, "6-neighbors", "7-enriched", "8-replay"]
    reader.run(*names)


def test_reads_find_the_entries(reader: Reader) -> None:
    entry = reader.run("1-knew")["entry"]
    assert (entry.entry_key, entry.version, entry.confidence) == ("checkout-service/risk-race-condition", 1, 0.78)
    assert reader.mem.read_log == ["checkout-service/retry-pattern", "checkout-service/risk-race-condition"]


def test_contexts_write_nothing_to_storage(reader: Reader) -> None:
    before = [entry.entry_key for entry in reader.adapter.list()]
    reader.run("2-gathered")
    assert [entry.entry_key for entry in reader.adapter.list()] == before


def test_the_decision_is_versioned_with_provenance(reader: Reader) -> None:
    reader.run("3-decided")
    entry = reader.adapter.read("checkout-service", "decision-rollback-retry")
    assert entry is not None
    assert (entry.version, entry.confidence, entry.memory_type.value) == (1, 0.9, "experience")
    assert entry.provenance.agent_id == "deploy-agent"
    assert entry.provenance.pattern_refs == ["checkout-service/retry-pattern"]


def test_the_outcome_adjusts_the_causal_entries(reader: Reader) -> None:
    reader.run("1-knew", "4-happened")
    pattern = reader.adapter.read("checkout-service", "retry-pattern")
    risk = reader.adapter.read("checkout-service", "risk-race-condition")
    assert pattern is not None
    assert risk is not None
    assert (pattern.version, round(pattern.confidence, 6)) == (4, 0.937008)
    assert (risk.version, round(risk.confidence, 6)) == (2, 0.831418)


def test_explain_before_the_commit_has_the_seeds_shape(reader: Reader) -> None:
    chain = reader.run("1-knew", "2-gathered", "3-decided", "5-why")["chain"]
    assert (chain["outcome_ref"], chain["agent_id"], chain["causal_chain_length"]) == ("DEP-500", "deploy-agent", 2)
    assert chain["session_id"].startswith("sess-")
    assert [(entry["key"], entry["confidence"]) for entry in chain["causal_entries"]] == [
        ("retry-pattern", 0.92),
        ("risk-race-condition", 0.78),
    ]
    assert [(context["label"], context["source"]) for context in chain["external_contexts"]] == [
        ("pagerduty-incidents", "PagerDuty API"),
        ("git-log", "git"),
    ]


def test_explain_after_the_commit_is_empty_in_the_seeds_own_order(reader: Reader) -> None:
    chain = reader.run(*STORY)["chain"]
    assert chain["outcome_ref"] == "DEP-500"
    assert (chain["causal_chain_length"], chain["causal_entries"], chain["external_contexts"]) == (0, [], [])


def test_the_graph_has_no_neighbors(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    assert reader.run(*STORY, "6-neighbors")["edges"] == []
    assert capsys.readouterr().out == ""


def test_the_enriched_trace_stays_on_the_handle_without_id_latency_or_changes(reader: Reader) -> None:
    reader.run("7-enriched")
    trace: Any = reader.names["mem"]._last_trace
    assert trace.id == ""
    assert trace.decision_summary == "Deployed after verifying retry pattern"
    assert [entry.key for entry in trace.causal_entries] == ["retry-pattern"]
    assert [entry.duration_ms for entry in trace.causal_entries] == [None]
    assert [event.operation for event in trace.query_events] == ["search"]
    assert [event.duration_ms for event in trace.query_events] == [None]
    assert trace.state_diff.entries_created == 1
    assert trace.state_diff.confidence_changes == []
    assert reader.mem.list_traces() == []


def test_history_before_the_store_existed_is_empty(reader: Reader) -> None:
    names = reader.run("8-replay")
    assert names["versions"] == []
    assert names["state_at_decision"] is None


def test_history_until_the_decision_gives_a_version_made_after_it(reader: Reader) -> None:
    decision_time = reader.run("1-knew")["entry"].provenance.written_at
    reader.run("4-happened")
    versions = reader.mem.history("checkout-service", "retry-pattern", until=decision_time)
    assert [entry.version for entry in versions] == [1, 2, 3, 4]
    exact = reader.adapter.read_at_version("checkout-service", "retry-pattern", 3)
    assert exact is not None
    assert exact.confidence == 0.92
