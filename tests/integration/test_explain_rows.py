"""Each row of `explain --json`: the event that it comes from, and what it shows without its texts and without its names.

One program calls the real AMFS SDK and the real openai client, three times: with all texts kept, with none kept, and
with all kept and erased afterwards. What it did went through the spool into one embedded PostgreSQL, from which the
command answers. `tests/unit/graph/test_explain.py` has the cases that no such program can make.
"""

import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from amfs_otel.chain.keys import key_from_file
from amfs_otel.chain.record import make_record, new_record_id
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Reply, ToolCall, Usage
from amfs_otel.store.embedded import EmbeddedServer
from amfs_otel.store.postgres import Store
from tests.integration.cli_calls import Cli
from tests.support.programs import environment

PROGRAM = """
import os
from pathlib import Path
from amfs import AgentMemory, MemoryType, OutcomeType
from amfs_filesystem import FilesystemAdapter
from openai import OpenAI, RateLimitError
import amfs_otel

def memory(agent):
    return AgentMemory(agent, adapter=FilesystemAdapter(Path("memory"), "default"))

with memory("review-agent") as reviewer:
    reviewer.write("checkout", "retries", {"max": 3}, confidence=0.92)
    reviewer.write("checkout", "risk", "charges twice", confidence=0.78)

mem = memory("deploy-agent")
mem.set_session_attributes({"tenant": "blue"})
mem.read("checkout", "retries")
mem.search(query="retries", entity_path="checkout", min_confidence=0.5)
mem.read_from("review-agent", "checkout", "risk")
mem.record_context("git-log", "15 commits", source="git")

client = OpenAI(max_retries=0)
tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
messages = [{"role": "user", "content": "May it be deployed?"}]

def ask(model="gpt-4o-mini"):
    return client.chat.completions.create(model=model, messages=messages, tools=tools, temperature=0.2)

asked = ask().choices[0].message
messages.append(asked.model_dump(exclude_none=True))
messages.append({"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "two orders are stuck"})
ask()
try:
    ask("gpt-4o-mini+rate-limited")
except RateLimitError:
    pass

mem.write(
    "checkout", "decision", "roll back", confidence=0.9, memory_type=MemoryType.EXPERIENCE,
    pattern_refs=["checkout/retries"],
)
mem.write("checkout", "retries", {"max": 5}, confidence=0.8)
amfs_otel.record_decision("Roll back", alternatives=["Wait"], inputs=["checkout/retries"], confidence=0.7)
mem.commit_outcome(os.environ["STORY_REF"], OutcomeType.SUCCESS, decision_summary="Rolled back in time")
mem.close()
"""
REPLIES = (
    Reply(tool_calls=(ToolCall("call_1", "look_up", '{"order": "7"}'),)),
    Reply(text="Roll it back.", usage=Usage(prompt=1000, completion=100, cached=500, reasoning=20)),
)
LEDGERS = {"KEPT-1": "all", "BARE-1": "none", "GONE-1": "all"}
"""Outcome ref of each run, and the texts that its trace keeps."""
NOT_KEPT = r"\[\d+ bytes not kept[¹²]\]"
OF_ITS_OWN = {"outcome_ref", "response_id"}
"""Names that differ from run to run."""
ERASED = r"\[(?:\d+ bytes )?erased by record …[0-9a-f]{8}\]"


@dataclass(frozen=True)
class Row:
    """One item of the answer.

    Attributes:
        path: Where it stands.
        event: Kind and source of the event that it comes from.
        item: What it shows when everything was kept; times and ids beside.
        line: The line for people; `{text}` stands for each text, `{name}` for each name, `{entry}` for two of them that
            make one, `{given}` for what only erasable call ids tell.
        texts: The texts in it, by path and as the line shows them.
        names: The names in it, likewise; None where the line does not show it.
    """

    path: str
    event: tuple[str, str]
    item: Mapping[str, Any]
    line: str
    texts: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    names: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])


RETRIES = {"entity_path": "checkout", "key": "retries"}
ENTRY_NAMES = {"entity_path": "checkout", "key": "retries"}
ROWS = (
    Row(
        "causal_entries[0]",
        ("memory_read", "amfs"),
        {
            **RETRIES, "version": 1, "value": {"max": 3}, "confidence": 0.92, "memory_type": "fact",
            "written_by": "review-agent", "operation": "read",
        },
        "{entry} v1, confidence 0.92, by {name}: {text}",
        {"value": '{"max": 3}'},
        {**ENTRY_NAMES, "written_by": "review-agent"},
    ),
    Row(
        "query_events[0]",
        ("memory_query", "amfs"),
        {
            "operation": "search",
            "parameters": {"query": "retries", "entity_path": "checkout", "min_confidence": 0.5},
            "result_count": 1,
            "results": [{**RETRIES, "version": 1, "confidence": 0.92}],
        },
        "search {text} {parameters} → 1 result, {ms}",
        {"parameters.query": "retries"},
        {"parameters.entity_path": None, "results[0].entity_path": None, "results[0].key": None},
    ),
    Row(
        "agent_interactions[0]",
        ("agent_interaction", "amfs"),
        {
            "direction": "read_from", "this_agent_id": "deploy-agent", "other_agent_id": "review-agent",
            "entity_path": "checkout", "key": "risk", "version": 1,
        },
        "learned from {name}: {entry} v1",
        {},
        {"other_agent_id": "review-agent", "entity_path": "checkout", "key": "risk", "this_agent_id": None},
    ),
    Row(
        "external_contexts[0]",
        ("context", "amfs"),
        {"label": "git-log", "summary": "15 commits", "source": "git"},
        "{name}: {text}",
        {"summary": "15 commits"},
        {"label": "git log", "source": None},
    ),
    Row(
        "llm_calls[1]",
        ("llm_call", "openai"),
        {
            "model": "gpt-4o-mini", "provider": "openai", "input_tokens": 1000, "cached_tokens": 500,
            "output_tokens": 100, "reasoning_tokens": 20, "temperature": 0.2, "finish_reason": "stop", "status": "ok",
            "error": None,
        },
        "model gpt-4o-mini: 1000 in, 500 cached, 100 out, {cost}, {ms}, stop{given}",
        {},
        {"response_id": None},
    ),
    Row(
        "llm_calls[2]",
        ("llm_call", "openai"),
        {
            "model": "gpt-4o-mini+rate-limited", "input_tokens": None, "output_tokens": None, "cost_usd": None,
            "finish_reason": None, "status": "error", "error_type": "openai.RateLimitError",
            "error": "Error code: 429 - Rate limit reached for requests.",
        },
        "model gpt-4o-mini+rate-limited, {ms}{given}, failed: openai.RateLimitError: {text}",
        {"error": "Error code: 429 - Rate limit reached for requests."},
    ),
    Row(
        "tool_calls[0]",
        ("tool_call", "openai"),
        {
            "call_id": "call_1", "tool_name": "look_up", "arguments": {"order": "7"}, "duration_ms": None,
            "result_summary": "two orders are stuck", "source": "openai", "success": True, "observed": "messages",
        },
        "tool {name} {text} → {text}",
        {"arguments": '{"order": "7"}', "result_summary": "two orders are stuck"},
        {"tool_name": "look_up", "call_id": None},
    ),
    Row(
        "write_events[0]",
        ("memory_write", "amfs"),
        {
            "entity_path": "checkout", "key": "decision", "version": 1, "value": "roll back", "previous_version": None,
            "previous_value": None, "confidence": 0.9, "memory_type": "experience",
            "pattern_refs": ["checkout/retries"], "created": True, "written_by": "deploy-agent",
        },
        "wrote {entry} v1, confidence 0.9: {text}",
        {"value": "roll back"},
        {"entity_path": "checkout", "key": "decision", "pattern_refs[0]": None, "written_by": None},
    ),
    Row(
        "write_events[1]",
        ("memory_write", "amfs"),
        {**RETRIES, "version": 2, "value": {"max": 5}, "previous_version": 1, "previous_value": {"max": 3}},
        "wrote {entry} v2, confidence 0.8: {text}",
        {"value": '{"max": 5}', "previous_value": None},
        ENTRY_NAMES,
    ),
    Row(
        "decisions[0]",
        ("statement", "amfs_otel"),
        {"summary": "Roll back", "alternatives": ["Wait"], "inputs": ["checkout/retries"], "confidence": 0.7},
        "decided: {text}; not: {text}; on: {name}",
        {"summary": "Roll back", "alternatives[0]": "Wait"},
        {"inputs[0]": "checkout/retries"},
    ),
    Row(
        "error_events[0]",
        ("llm_call", "openai"),
        {
            "kind": "llm_call", "error_type": "openai.RateLimitError",
            "message": "Error code: 429 - Rate limit reached for requests.",
        },
        "model gpt-4o-mini+rate-limited, {ms}{given}, failed: openai.RateLimitError: {text}",
        {"message": "Error code: 429 - Rate limit reached for requests."},
    ),
    Row(
        "outcomes[0]",
        ("outcome", "amfs"),
        {
            "outcome_ref": "KEPT-1", "outcome_type": "success", "decision_summary": "Rolled back in time",
            "source": None, "score": None,
        },
        "outcome {name} success: {text} {when}",
        {"decision_summary": "Rolled back in time"},
        {"outcome_ref": "KEPT-1"},
    ),
    Row(
        "state_diff.confidence_changes[0]",
        ("confidence_change", "amfs"),
        {"entity_path": "checkout", "key": "risk", "before": 0.78, "version_before": 1, "version_after": 2}
        | {"direction": "raised", "raced": False, "before_from": "read"},
        "{entry} confidence 0.78 → {after} raised",
        {},
        {"entity_path": "checkout", "key": "risk"},
    ),
)  # fmt: skip
PLACES = {
    "{ms}": r"[\d.]+ (?:ms|s)",
    "{cost}": r"\$0\.\d+",
    "{when}": r"\([-0-9: ]+, record …[0-9a-f]{8}\)",
    "{after}": r"0\.8\d+",
    "{parameters}": r"\{.*\}",
}


@dataclass(frozen=True)
class Told:
    """The answers about one run: `explain` as JSON and as lines, the events of `show` by step."""

    json: dict[str, Any]
    lines: list[str]
    events: dict[int, dict[str, Any]]

    def line(self, step: int) -> str:
        (found,) = [line for line in self.lines if line.startswith(f"{step:>4}  ")]
        return found

    def withheld(self, path: str) -> dict[str, Any] | None:
        return next((one for one in self.json["withheld"] if one["path"] == path), None)


@dataclass(frozen=True)
class Answers:
    """What the command said of the three runs, and of the log in which one of them was erased."""

    kept: Told
    bare: Told
    gone: Told
    erasure: str
    verdict: str


def _ran(ref: str, state: Path, folder: Path) -> None:
    folder.mkdir()
    with ModelServer() as model:
        model.queue(*REPLIES)
        settings = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "no key", "STORY_REF": ref}
        done = subprocess.run(
            [sys.executable, "-m", "amfs_otel", "run", sys.executable, "-c", PROGRAM],
            env=environment(state, AMFS_OTEL_LEDGER_CONTENT=LEDGERS[ref], **settings),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory of the three runs; its local server is gone afterwards."""
    folder = tmp_path_factory.mktemp("rows")
    state = folder / "state"
    with ThreadPoolExecutor() as threads:
        for run in [threads.submit(_ran, ref, state, folder / ref) for ref in LEDGERS]:
            run.result()
    yield state
    EmbeddedServer(state).remove()


def _erase(state: Path, record_id: str) -> str:
    """Erases all of a record but its skeleton, as an eraser does; gives the erasure record's id."""
    dsn = EmbeddedServer(state).ensure(create=False)
    assert dsn is not None
    now = time.time_ns()
    with Store.connect(dsn, "default") as store:
        stored = store.record(record_id)
        assert stored is not None
        numbers = [part.number for part in stored.record.parts if part.number > 1]
        erasure = make_record(
            kind="erasure",
            log="default",
            record_id=new_record_id(now),
            session=secrets.token_hex(16),
            parts=[],
            key=key_from_file(state / "keys" / "development-writer.key"),
            captured_at_ns=now,
            erases=[(record_id, number) for number in numbers],
        )
        assert [one.outcome for one in store.append([erasure])] == ["stored"]
        store.connection.execute("DELETE FROM amfs_otel.part WHERE record = %s AND number > 1", (record_id,))
    return erasure.record_id


@pytest.fixture(scope="module")
def looked() -> list[Answers]:
    """Filled by `told`: one look at the store serves all tests."""
    return []


@pytest.fixture
def told(
    recorded: Path, looked: list[Answers], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Answers:
    """The command's answers."""
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(recorded))
    if not looked:
        cli = Cli(capsys)
        ids = {row["outcome_ref"]: row["record_id"] for row in cli.answer("list")}
        erasure = _erase(recorded, ids["GONE-1"])
        runs = [_told(cli, ids[ref]) for ref in LEDGERS]
        looked.append(Answers(*runs, erasure, cli.answer("verify")["verdict"]))
    return looked[0]


def _told(cli: Cli, record_id: str) -> Told:
    shown = cli("explain", record_id)
    assert (shown.code, shown.err) == (0, "")
    events = {event["step"]: event for event in cli.answer("show", record_id)["events"]}
    return Told(cli.answer("explain", record_id), shown.out.splitlines(), events)


def at(answer: Any, path: str) -> Any:
    """What stands at a path such as ``results[0].key``."""
    for name, place in re.findall(r"(\w+)|\[(\d+)\]", path):
        answer = answer[name] if name else answer[int(place)]
    return answer


def line_of(row: Row, *, text: str | None = None, name: str | None = None) -> str:
    """The line as a pattern; what stands in place of texts and names, None for themselves."""
    pattern = re.escape(row.line).replace(r"\{", "{").replace(r"\}", "}")
    names = {key: words for key, words in row.names.items() if words is not None}
    if "{entry}" in row.line:
        entry = f"{names.pop('entity_path')}/{names.pop('key')}"
        pattern = pattern.replace("{entry}", name or re.escape(entry))
    for mark, given, instead in (("{text}", row.texts, text), ("{name}", names, name)):
        for words in given.values():
            if words is not None:
                pattern = pattern.replace(mark, instead or re.escape(words), 1)
    pattern = pattern.replace("{given}", r", given \d+" if name is None else "")
    for mark, place in PLACES.items():
        pattern = pattern.replace(mark, place)
    return rf" +\d+  {pattern}"


@pytest.fixture(params=ROWS, ids=[row.path for row in ROWS])
def row(request: pytest.FixtureRequest) -> Row:
    return request.param


def test_a_row_names_the_event_that_it_comes_from(told: Answers, row: Row) -> None:
    for run in (told.kept, told.bare, told.gone):
        item = at(run.json, row.path)
        event = run.events[item["step"]]
        assert (event["kind"], event["source"]) == row.event
        assert item["event_id"] == event["event_id"]
    item = at(told.kept.json, row.path)
    assert {name: item[name] for name in row.item} == row.item
    assert re.fullmatch(line_of(row), told.kept.line(item["step"]))


def test_a_row_whose_texts_are_not_kept(told: Answers, row: Row) -> None:
    bare, kept = at(told.bare.json, row.path), at(told.kept.json, row.path)
    for path in row.texts:
        held = told.bare.withheld(f"{row.path}.{path}")
        assert at(bare, path) is None
        assert held is not None
        assert (held["reason"], held["erased_by"]) == ("policy", None)
        assert 'not kept under the policy "none"' in held["rule"]
        assert held["setting"] in ("AMFS_OTEL_LEDGER_CONTENT=decision", "AMFS_OTEL_LEDGER_CONTENT=all")
        assert held["bytes"] > 0
    for path in row.names.keys() - OF_ITS_OWN:
        assert at(bare, path) == at(kept, path), "a name is not a text"
    line = told.bare.line(bare["step"]).replace("BARE-1", "KEPT-1")
    assert re.fullmatch(line_of(row, text=NOT_KEPT), line)


def test_a_row_whose_texts_and_names_are_erased(told: Answers, row: Row) -> None:
    gone, kept = at(told.gone.json, row.path), at(told.kept.json, row.path)
    for path in (*row.texts, *row.names):
        held = told.gone.withheld(f"{row.path}.{path}")
        assert at(gone, path) is None
        assert held is not None, path
        assert (held["reason"], held["erased_by"]) == ("erased", told.erasure)
        assert (held["rule"], held["setting"]) == (None, None)
    assert re.fullmatch(line_of(row, text=ERASED, name=ERASED), told.gone.line(gone["step"]))
    structure = row.item.keys() - {re.split(r"[.\[]", path)[0] for path in (*row.texts, *row.names)}
    assert {name: gone[name] for name in structure} == {name: kept[name] for name in structure}


def test_what_the_answer_says_of_the_whole(told: Answers) -> None:
    for run, agent, summary, attributes in (
        (told.kept, "deploy-agent", "Rolled back in time", {"tenant": "blue"}),
        (told.bare, "deploy-agent", None, None),
        (told.gone, None, None, None),
    ):
        answer = run.json
        assert (answer["agent_id"], answer["decision_summary"], answer["attributes"]) == (agent, summary, attributes)
        assert (answer["causal_chain_length"], answer["events"], answer["status"]) == (2, 14, "complete")
        assert (answer["state_diff"]["entries_created"], answer["state_diff"]["entries_updated"]) == (1, 1)
        assert re.fullmatch("[0-9a-f]{64}", answer["tool_calls"][0]["result_hash"]), "the part's commitment stays"
    assert told.verdict == "INTACT", "neither texts that are not kept nor erased ones are tampering"


def test_what_was_withheld_is_null_and_stands_nowhere_else(told: Answers) -> None:
    assert told.kept.json["withheld"] == []
    for run, reason, words in (
        (told.bare, "policy", ("charges twice", "stuck", "Rolled back", "15 commits", "blue")),
        (
            told.gone,
            "erased",
            ("charges twice", "stuck", "blue", "deploy-agent", "review-agent", "checkout", "look_up"),
        ),
    ):
        assert {held["reason"] for held in run.json["withheld"]} == {reason}
        assert all(at(run.json, held["path"]) is None for held in run.json["withheld"])
        for word in words:
            assert word not in str(run.json)
            assert word not in "\n".join(run.lines)
            assert word not in str(run.events)
