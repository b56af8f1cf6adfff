"""The seed's tree."""

import json
from pathlib import Path

import jsonschema
import pytest

from amfs_otel.graph.tree import branch, short_session, tree, tree_lines
from tests.support.seed_story import (
    ENTRY,
    changed,
    committed,
    context,
    deploy_agent,
    onboard_agent,
    read,
    review_agent,
    write,
)
from tests.support.stories import event, window, writer

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schemas/tree.schema.json").read_text())

SEED = """
checkout-service/retry-pattern
    ├── read by deploy-agent (sess-a1b2)
    │   ├── also consulted: PagerDuty API, git log
    │   ├── wrote: decision-rollback-retry
    │   └── outcome: DEP-500 (success) → confidence raised
    │
    ├── read by review-agent (sess-e5f6)
    │   ├── also consulted: Sentry errors
    │   ├── wrote: risk-timeout-regression
    │   └── outcome: INC-1042 (critical_failure) → confidence discredited
    │
    └── read by onboard-agent (sess-g7h8)
        └── wrote: task-summary-retry-review
"""
"""As the seed has it, with the true directions."""


def drawn(*stories, entry=ENTRY, outcomes=(), erase=""):
    one = writer()
    documents = [one.document(story, at=60 + place, erase=erase) for place, story in enumerate(stories)]
    late = [one.document(story, kind="outcome") for story in outcomes]
    branches = [branch(entry, document, outcomes=late) for document in documents]
    answer = tree(entry, [found for found in branches if found is not None])
    jsonschema.validate(answer, SCHEMA)
    return tree_lines(answer)


def test_the_seeds_tree():
    assert drawn(onboard_agent(), deploy_agent(), review_agent()) == SEED.strip("\n").split("\n")


def test_tool_calls_follow_as_also_called():
    calls = [event("tool_call", 2.0, 1.0, tool_name=name) for name in ("look_up", "deploy", "look_up")]
    lines = drawn(window("a", [read("retry-pattern", 0.9, 1), context("x", "s", "X API"), *calls, write("w")]))
    assert [line.strip(" │├└─") for line in lines[2:]] == [
        "also consulted: X API",
        "also called: look_up, deploy",
        "wrote: w",
    ]


@pytest.mark.parametrize(
    ("label", "source", "shown"),
    [
        ("pagerduty-incidents", "PagerDuty API", "PagerDuty API"),
        ("git-log", "git", "git log"),
        ("git", "git", "git"),
        ("sentry-errors", None, "sentry errors"),
        ("log", "git", "git"),
    ],
)
def test_name_of_a_context(label, source, shown):
    lines = drawn(window("a", [read("retry-pattern", 0.9, 1), context(label, "s", source)]))
    assert lines[-1].endswith(f"also consulted: {shown}")


def test_several_outcomes_in_the_order_of_time():
    late = window(
        "ops",
        [committed("INC-7", "failure", 100.0), changed("retry-pattern", 0.937, 0.6, "lowered", version=4, at=101)],
    )
    other = window("ops", [committed("INC-8", "minor_failure", 200.0), changed("other", 0.9, 0.6, "lowered", at=201)])
    lines = drawn(deploy_agent(), outcomes=[other, late])
    assert [line.strip(" │├└─") for line in lines[-3:]] == [
        "outcome: DEP-500 (success) → confidence raised",
        "outcome: INC-7 (failure) → confidence lowered",
        "outcome: INC-8 (minor_failure)",
    ]


def test_confidence_that_was_never_seen_before():
    late = window("ops", [committed("X", "failure"), changed("retry-pattern", None, 0.4, None, before_from=None)])
    assert drawn(onboard_agent(), outcomes=[late])[-1].endswith("outcome: X (failure) → confidence now 0.4")


def test_writers_are_drawn_only_where_nobody_read():
    author = window("author", [write("retry-pattern")], session_id="sess-0123abcd")
    assert drawn(author) == [ENTRY, "    └── written by author (sess-0123)"]
    assert "author" not in "\n".join(drawn(author, deploy_agent()))


def test_a_decision_that_names_the_entry_as_an_input_relied_on_it():
    stated = window("planner", [event("statement", 1.0, 0.0, summary="s", inputs=[ENTRY])], session_id="sess-0123abcd")
    assert drawn(stated) == [ENTRY, "    └── relied on by planner (sess-0123)"]
    both = drawn(stated, deploy_agent())
    assert sum("relied on by planner" in line for line in both) == 1
    assert sum("read by deploy-agent" in line for line in both) == 1


def test_what_did_not_touch_the_entry_has_no_branch():
    assert branch("other/entry", writer().document(deploy_agent())) is None
    assert branch(ENTRY, writer().document(window("a", [read("retry-pattern", None, None, found=False)]))) is None
    assert branch(ENTRY, writer().document(deploy_agent(), erase="i")) is None


def test_names_elsewhere_are_whole_and_failed_writes_are_none():
    story = window(
        "a",
        [
            read("retry-pattern", 0.9, 1),
            write("k", entity_path="billing"),
            write("x", status="error"),
            write("retry-pattern"),
        ],
    )
    assert drawn(story)[-1] == "        └── wrote: billing/k"


@pytest.mark.parametrize(
    ("session", "short"),
    [
        ("sess-a1b2c3d4", "sess-a1b2"),
        ("0123456789abcdef" * 2, "01234567"),
        ("thread 7", "thread 7"),
        (None, "session unknown"),
    ],
)
def test_short_session(session, short):
    assert short_session(session) == short
