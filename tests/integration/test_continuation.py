"""Interrupted runs and their resumption: the edge `continues`, in whatever order records come."""

import itertools
import json
import threading

import pytest

from amfs_otel.graph.projection import project
from amfs_otel.store import append, schema
from tests.integration.cli_calls import Cli, run_program
from tests.integration.ledgers import Ledger
from tests.integration.test_projection import Projected
from tests.integration.test_reading import Asked, fits_schema
from tests.support.seed_story import ENTRY, changed, committed, deploy_agent, read
from tests.support.stories import event, window

CONTINUES = (
    "SELECT s.name, t.name, e.evidence_count FROM amfs_otel.edge AS e"
    " JOIN amfs_otel.node AS s ON s.id = e.source JOIN amfs_otel.node AS t ON t.id = e.target"
    " WHERE e.{mine} AND e.relation = 'continues' AND s.kind = 'trace' AND t.kind = 'trace' ORDER BY 1"
)
COLUMNS = "SELECT record_id::text, continues::text FROM amfs_otel.v_decisions WHERE {mine} AND continues IS NOT NULL"


def run(at: float, status: str = "complete", session: str = "thread-7", agent: str = "deploy-agent", **facts) -> dict:
    """A run of a thread that started `at` seconds after the first moment."""
    start = 1_772_900_000_000_000 + int(at * 1e6)
    return window(
        agent, [read("retry-pattern", 0.9, 3, at)], session_id=session, status=status, started_us=start,
        ended_us=start + 1000, closed_by="run_end", opened_by="langgraph", **facts,
    )  # fmt: skip


@pytest.fixture
def log(one_ledger):
    return Asked(one_ledger)


def records(log, *stories, **options):
    return [log.writer.record(story, at=100 + place, **options) for place, story in enumerate(stories)]


def joined(log: Projected, *made) -> set[tuple[int, int]]:
    """(place of the later, place of the earlier), the same in the columns and in the graph."""
    ids = {record.record_id: place for place, record in enumerate(made)}
    columns = {(ids[later], ids[earlier]) for later, earlier in log.sql(COLUMNS)}
    assert {(ids[later], ids[earlier]) for later, earlier, count in log.sql(CONTINUES) if count == 1} == columns
    return columns


@pytest.mark.parametrize("limit", [1, 200], ids=["one by one", "at once"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=lambda order: "".join(map(str, order)))
def test_in_any_order_of_the_log(log, order, limit):
    made = records(log, run(0, "paused"), run(60, "paused"), run(120))
    for place in order:
        log.seal(made[place])
    log.project(limit)
    assert joined(log, *made) == {(1, 0), (2, 1)}
    before = log.everything()
    log.rebuild()
    assert log.everything() == before


def test_one_that_comes_late_goes_between(log):
    made = records(log, run(0, "paused"), run(120), run(60))
    log.seal(made[0], made[1])
    log.project()
    assert joined(log, *made) == {(1, 0)}
    log.seal(made[2])
    log.project()
    assert joined(log, *made) == {(2, 0)}


def test_projectors_side_by_side_give_the_same(log):
    made = records(log, *(run(60 * place, "paused" if place % 3 else "complete") for place in range(60)))
    for start in range(0, 60, 20):
        log.seal(*made[start : start + 20])
    begun = threading.Barrier(3)

    def work() -> None:
        with log.ledger.store() as store:
            begun.wait()
            while log.sql("SELECT count(*) FROM amfs_otel.projected WHERE {mine}") != [(61,)]:
                project(store.connection, log.ledger.log, limit=7)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert joined(log, *made) == {(place, place - 1) for place in range(1, 60) if (place - 1) % 3}
    before = log.everything()
    log.rebuild()
    assert log.everything() == before


def test_a_ref_in_the_record_counts_before_the_session(log):
    first, paused = records(log, run(0), run(30, "paused"))
    named = log.writer.record(run(60), at=110, refs={"continues": first.record_id})
    log.seal(named, paused, first)
    log.project()
    assert joined(log, first, paused, named) == {(2, 0)}


def test_a_trace_without_names_is_still_named_by_another(log):
    (first,) = records(log, run(0))
    named = log.writer.record(run(60, session="thread-8"), at=110, refs={"continues": first.record_id})
    log.seal(first, named)
    log.erase((first.record_id, 2))
    log.project()
    assert log.ask("explain", first.record_id)["continued_by"] == [named.record_id]
    assert log.ask("show", named.record_id)["continues"] == first.record_id


def test_logs_and_sessions_are_apart(log):
    made = records(log, run(0, "paused"), run(60, session="thread-8"))
    log.seal(*made)
    log.project()
    assert joined(log, *made) == set()


@pytest.mark.parametrize("limit", [1, 200], ids=["one by one", "at once"])
@pytest.mark.parametrize(
    "other", [{"agent": "billing-agent"}, {"origin": {"service": "billing"}}], ids=["agent", "service"]
)
def test_applications_that_use_one_thread_id_are_apart(log, other, limit):
    """Two agents whose threads are both number 7, and each pauses and goes on while the other one does."""
    made = records(log, run(0, "paused"), run(60, "paused", **other), run(120), run(180, **other))
    log.seal(*made)
    log.project(limit)
    assert joined(log, *made) == {(2, 0), (3, 1)}
    for place, continued_by in ((0, 2), (1, 3)):
        assert log.ask("explain", made[place].record_id)["continued_by"] == [made[continued_by].record_id]
    before = log.everything()
    log.rebuild()
    assert log.everything() == before


def test_a_session_id_of_any_length_has_its_place(log):
    long = "t" * 5000
    made = records(log, run(0, "paused", long), run(60, session=long))
    log.seal(*made)
    log.project()
    assert joined(log, *made) == {(1, 0)}


@pytest.mark.parametrize("erased", [0, 1], ids=["the paused one", "the resumed one"])
def test_erasing_the_names_takes_the_edge(log, erased):
    made = records(log, run(0, "paused"), run(60), run(120))
    log.seal(*made)
    log.project()
    assert joined(log, *made) == {(1, 0)}
    log.erase((made[erased].record_id, 2))
    log.project()
    # Without the resumed one, the run after it is the next that is known.
    assert joined(log, *made) == ({(2, 0)} if erased else set())
    names = {name for (name,) in log.sql("SELECT name FROM amfs_otel.node WHERE {mine} AND kind = 'trace'")}
    assert names == ({made[0].record_id, made[2].record_id} if erased else set())
    before = log.everything()
    log.rebuild()
    assert log.everything() == before


def test_an_amendment_keeps_the_edge(log):
    slow = event("tool_call", 1.0, status="incomplete", tool_name="deploy", call_id="c1", observed="call")
    made = records(log, run(0, "paused"), run(60) | {"events": [slow]})
    log.seal(*made)
    log.project()
    done = slow | {"status": "ok", "end_us": slow["start_us"] + 5_000}
    log.seal(
        log.writer.record(
            {"step": slow["id"], "event": done}, kind="amendment", refs={"amends": made[1].record_id}, at=130
        )
    )
    log.project()
    assert joined(log, *made) == {(1, 0)}


@pytest.mark.parametrize("state", ["unsealed", "sealed", "projected", "first projected", "second projected"])
def test_every_answer_says_it(log, state):
    made = records(log, run(0, "paused"), run(60))
    paused, resumed = (record.record_id for record in made)
    if state == "unsealed":
        log.append(*made)
    elif state in ("first projected", "second projected"):
        first = made if state == "first projected" else made[::-1]
        log.seal(first[0])
        log.project()
        log.append(first[1])
    else:
        log.seal(*made)
        if state == "projected":
            log.project()
    rows = log.ask("list")
    fits_schema("list", rows)
    assert {row["record_id"]: row["continues"] for row in rows} == {resumed: paused, paused: None}
    tree = log.ask("tree", ENTRY)
    fits_schema("tree", tree)
    answers = {question: [log.ask(question, one) for one in (paused, resumed)] for question in ("explain", "show")}
    for question, found in (*answers.items(), ("tree", tree["branches"])):
        said = [(one["continues"], one["continued_by"]) for one in found]
        assert said == [(None, [resumed]), (paused, [])], question
    for question, found in answers.items():
        for answer in found:
            fits_schema(question, answer)


def test_a_projected_answer_gives_way_to_one_that_comes_between(log):
    made = records(log, run(0, "paused"), run(120))
    log.seal(*made)
    log.project()
    (between,) = log.append(log.writer.record(run(60), at=140))
    paused, later = (record.record_id for record in made)
    assert {row["record_id"]: row["continues"] for row in log.ask("list")} == {
        paused: None,
        between: paused,
        later: None,
    }
    assert log.ask("explain", paused)["continued_by"] == [between]
    assert log.ask("explain", later)["continues"] is None


STORED_BEFORE_0004 = """
WITH stored AS (
    INSERT INTO amfs_otel.record (header, record_hash, signature, commitments) VALUES (%s, %b, %b, %b)
)
INSERT INTO amfs_otel.part (record, number, salt, bytes)
SELECT %s::uuid, number, salt, bytes
FROM unnest(%b::int4[], %b::bytea[], %b::bytea[]) AS given (number, salt, bytes)
"""


def test_a_projection_of_an_older_schema_is_made_anew(database, monkeypatch):
    """The tables of 0002 do not hold what 0003 adds, so it empties them and the projector fills them again."""
    log = Projected(Ledger(database))
    every = schema.migrations()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: every[:2])
        patch.setattr(append, "INSERT_ONE", STORED_BEFORE_0004)
        log.ledger.prepare()
        made = records(log, run(0, "paused"), run(60))
        log.seal(*made)
    log.sql(
        "INSERT INTO amfs_otel.projected VALUES ('default', 0, NULL, 'genesis', NULL), ('default', 1, NULL, 'decision', NULL)"
    )
    log.ledger.prepare()
    assert log.project() == 3
    assert joined(log, *made) == {(1, 0)}


def test_inputs_as_a_table_name_the_event_that_each_comes_from(log):
    asked = event("llm_call", 1, 5.0, model="m", requested_tools=[{"call_id": "c1", "tool_name": "look"}])
    ran = event("tool_call", 2, 5.0, tool_name="look", call_id="c1", observed="call")
    retrieved = event("retrieval", 2.1, 1.0, parent=ran["id"], results=[{"document_id": "doc-1"}])
    entry = read("retry-pattern", 0.9, 3, 2.2)
    took = event("llm_call", 3, 5.0, model="m", answered_tools=[{"call_id": "c1"}])
    unused = event("tool_call", 4, 5.0, tool_name="look", call_id="c2", observed="call")
    (decision,) = log.tell(window("a", [asked, ran, retrieved, entry, took, unused]))
    assert {one["kind"] for one in log.ask("explain", decision)["inputs"]} == {"tool_result", "document", "entry"}
    rows = log.sql(
        "SELECT kind, name, version, number, event_id, used_by FROM amfs_otel.v_inputs WHERE record_id = %s ORDER BY 4",
        decision,
    )
    assert rows == [
        ("tool_result", "c1", None, 2, ran["id"], [5]),
        ("document", "doc-1", None, 3, retrieved["id"], [5]),
        ("entry", ENTRY, 3, 4, entry["id"], []),
    ]
    assert log.edges()["a", "consulted", "doc-1"] == (1.0, 1)


def rows_that_inputs_look_at(log, count: int) -> int:
    """How many rows the server makes for the inputs of a decision with `count` model calls and tools."""
    events = []
    for place in range(count):
        asked = [{"call_id": f"c{place}", "tool_name": "look"}]
        answered = [{"call_id": f"c{before}"} for before in range(max(0, place - 4), place)]
        events.append(event("llm_call", place, 5.0, model="m", requested_tools=asked, answered_tools=answered))
        events.append(event("tool_call", place + 0.5, 5.0, tool_name="look", call_id=f"c{place}", observed="call"))
    (decision,) = log.tell(window("a", events))
    query = "SELECT * FROM amfs_otel.v_inputs WHERE record_id = %s"
    assert len(log.sql(query, decision)) == count - 1
    ((plans,),) = log.sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", decision)
    return rows_in(plans[0]["Plan"])


def rows_in(plan) -> int:
    """Rows that a plan's nodes gave, and rows that they looked at for nothing."""
    removed = sum(value for name, value in plan.items() if name.startswith("Rows Removed by"))
    own = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    return own + sum(rows_in(child) for child in plan.get("Plans", ()))


def test_inputs_cost_what_the_decision_holds(log):
    """Twice as many calls are twice the rows; where each call was held against each input, they were four times."""
    small, large = rows_that_inputs_look_at(log, 60), rows_that_inputs_look_at(log, 240)
    assert small < large < 6 * small


def test_a_tools_result_is_found_in_the_trace_that_this_one_continues(log):
    asked = event("llm_call", 1, 5.0, model="m", requested_tools=[{"call_id": "c1", "tool_name": "look"}])
    ran = event("tool_call", 2, 5.0, tool_name="look", call_id="c1", observed="call")
    took = event("llm_call", 61, 5.0, model="m", answered_tools=[{"call_id": "c1"}])
    made = records(log, run(0, "paused") | {"events": [asked, ran]}, run(60) | {"events": [took]})
    log.seal(*made)
    log.project()
    (item,) = log.ask("explain", made[1].record_id)["inputs"]
    assert (item["record_id"], item["event_id"]) == (made[0].record_id, ran["id"])
    assert item["asked_by"]["event_id"] == asked["id"]
    assert item["used_by"] == [{"step": 1, "event_id": took["id"]}]


def test_many_at_once_are_what_they_are_one_by_one(log):
    """Batches that hold decisions, outcomes that name them or their ref, amendments and an erasure."""
    slow = event("tool_call", 1.0, status="incomplete", tool_name="deploy", call_id="c1", observed="call")
    made = []
    for place in range(12):
        judged = log.writer.record(deploy_agent(), at=60 + place)
        open_one = log.writer.record(window("b", [slow, read("k", 0.6, place)], session_id="s"), at=60 + place)
        change = changed("k", None, 0.5, None, version=place, before_from=None, version_before=None)
        late = window("ops", [committed("DEP-500" if place % 2 else "LATE", "failure", 90.0 + place), change])
        named = log.writer.record(
            window("ops", [committed("LATE", "success")]), kind="outcome", refs={"outcome_of": open_one.record_id}
        )
        amendment = log.writer.record(
            {"step": slow["id"], "event": slow | {"status": "ok", "end_us": slow["start_us"] + 5}},
            kind="amendment", refs={"amends": open_one.record_id},
        )  # fmt: skip
        some = [log.writer.record(late, kind="outcome"), judged, amendment, open_one, named]
        made += some if place % 3 else some[::-1]
    log.seal(*made)
    log.erase((made[2].record_id, 2))
    assert log.project(limit=1) == len(made) + 2
    one_by_one = log.everything()
    for limit in (7, 200):
        with log.ledger.store() as store, store.connection.transaction():
            for table in ("projected", "decision", "step", "outcome", "amendment", "erased", "edge_evidence", "edge",
                          "node", "counter"):  # fmt: skip
                store.connection.execute(f"DELETE FROM amfs_otel.{table}")
        log.project(limit)
        assert log.everything() == one_by_one


GRAPH = '''
import pickle, sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import amfs_otel
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

FILE, ANSWER = Path("threads"), sys.argv[1:]


class Kept(InMemorySaver):
    """Keeps its threads in a file."""

    def load(self):
        if FILE.exists():
            storage, writes, blobs = pickle.loads(FILE.read_bytes())
            for thread, spaces in storage.items():
                for space, found in spaces.items():
                    self.storage[thread][space].update(found)
            self.writes.update(writes)
            self.blobs.update(blobs)

    def save(self):
        storage = {thread: {space: dict(found) for space, found in spaces.items()} for thread, spaces in self.storage.items()}
        FILE.write_bytes(pickle.dumps((storage, dict(self.writes), dict(self.blobs))))


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


@tool
def look(service: str) -> str:
    """Looks at a service."""
    return "3 SEV-1 in " + service


@tool
def ask(question: str) -> str:
    """Asks somebody."""
    return interrupt(question)


calls = [
    {"name": "look", "args": {"service": "checkout"}, "id": "call_look"},
    {"name": "ask", "args": {"question": "roll back?"}, "id": "call_ask"},
]
model = FakeMessagesListChatModel(responses=[AIMessage("", tool_calls=calls), AIMessage("rolled back")], i=len(ANSWER))
graph = StateGraph(State)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([look, ask]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
saver = Kept()
saver.load()
made = graph.compile(checkpointer=saver)
made.name = "deploy-agent"
given = Command(resume=ANSWER[0]) if ANSWER else {"messages": [{"role": "user", "content": "deploy?"}]}
made.invoke(given, {"configurable": {"thread_id": "thread-7"}})
saver.save()
'''


def test_a_graph_is_interrupted_and_resumed_in_another_process(tmp_path, database, monkeypatch, capsys):
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_OTEL_DSN", database)
    cli = Cli(capsys)
    assert cli("init").code == 0
    first = run_program(GRAPH, tmp_path)
    assert first.returncode == 0, first.stderr
    second = run_program(GRAPH.replace("sys.argv[1:]", '["yes"]'), tmp_path)
    assert second.returncode == 0, second.stderr
    assert cli("drain").code == 0
    rows = cli.answer("list")
    assert [(row["session_id"], row["status"]) for row in rows] == [("thread-7", "complete"), ("thread-7", "paused")]
    resumed, paused = (row["record_id"] for row in rows)
    assert [row["continues"] for row in rows] == [paused, None]
    later, earlier = cli.answer("explain", resumed), cli.answer("explain", paused)
    assert (later["continues"], earlier["continued_by"]) == (paused, [resumed])
    assert cli.answer("show", resumed)["continues"] == paused
    for question in ("explain", "show"):
        assert f"continues …{paused[-8:]}" in cli(question, resumed).out
        assert f"continued by …{resumed[-8:]}" in cli(question, paused).out
    assert f"complete, continues …{paused[-8:]}" in " ".join(cli("list").out.split())
    # The tool ran, and was asked for, before the interruption; its result went into the model call after it.
    result = {one["call_id"]: one for one in later["inputs"]}
    asked = earlier["llm_calls"][0]
    assert result["call_ask"]["record_id"] == resumed
    assert {one["asked_by"]["event_id"] for one in result.values()} == {asked["event_id"]}
    assert {one["asked_by"]["record_id"] for one in result.values()} == {paused}
    looked = {(answer["record_id"], call["event_id"]) for answer in (earlier, later) for call in answer["tool_calls"]
              if call["call_id"] == "call_look" and call["success"]}  # fmt: skip
    assert (result["call_look"]["record_id"], result["call_look"]["event_id"]) in looked
    took = later["llm_calls"][-1]
    assert all(one["used_by"] == [{"step": took["step"], "event_id": took["event_id"]}] for one in result.values())
    assert json.loads(cli("verify", "--json").out)["verdict"] == "INTACT"


ASKED = """
made.invoke(Command(resume="yes"), {"configurable": {"thread_id": "thread-7"}})
import amfs_otel

rows = amfs_otel.traces()
answer = amfs_otel.explain("last")
assert [row["continues"] for row in rows] == [rows[1]["record_id"], None], rows
assert answer["continues"] == rows[1]["record_id"]
assert {one["asked_by"]["record_id"] for one in answer["inputs"]} == {rows[1]["record_id"]}, answer["inputs"]
"""


def test_a_process_that_resumes_its_own_run_can_ask_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    done = run_program(GRAPH.replace("i=len(ANSWER)", "i=0").replace("saver.save()", ASKED), tmp_path)
    assert done.returncode == 0, done.stderr
