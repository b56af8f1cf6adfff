"""The seed's story as data: who reads what, what the model says, how it ends. Nothing here runs anything."""

import json
from dataclasses import dataclass

from amfs_otel.demo.script import Reply, Rule, ToolCall, Usage
from amfs_otel.demo.wire_messages import MessageReply

ENTITY = "checkout-service"
ROOT_ENTRY = f"{ENTITY}/retry-pattern"
"""The entry whose tree the demo prints."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One agent's branch of the seed's tree.

    Attributes:
        agent: The agent's id.
        program: Its file under ``programs/``.
        consulted: The sources as the tree prints them.
        model: The model that it asks.
        called: Tools that its model called, in order.
        wrote: Keys of the entries it wrote.
        outcome_ref: What it committed, None where it commits nothing.
        outcome: The outcome's type.
        direction: What the outcome did to the confidence of :data:`ROOT_ENTRY`: ``raised``, ``lowered`` or
            ``discredited``. The seed says "boosted" for the incident; upstream lowers and discredits.
        model_calls: How many model calls it makes.
        streamed: Whether these are streamed.
    """

    agent: str
    program: str
    model: str
    consulted: tuple[str, ...]
    called: tuple[str, ...]
    wrote: tuple[str, ...]
    outcome_ref: str | None
    outcome: str | None
    direction: str | None
    model_calls: int
    streamed: bool = False


DEPLOY = Branch(
    agent="deploy-agent",
    program="deploy_agent.py",
    model="gpt-4o-mini",
    consulted=("PagerDuty API", "git log"),
    called=("open_incidents", "commits_since_deploy"),
    wrote=("decision-rollback-retry",),
    outcome_ref="DEP-500",
    outcome="success",
    direction="raised",
    model_calls=2,
)
REVIEW = Branch(
    agent="review-agent",
    program="review_agent.py",
    model="claude-sonnet-5",
    consulted=("Sentry errors",),
    called=("known_risks", "sentry_errors", "note_risk"),
    wrote=("risk-timeout-regression",),
    outcome_ref="INC-1042",
    outcome="critical_failure",
    direction="discredited",
    model_calls=3,
    streamed=True,
)
ONBOARD = Branch(
    agent="onboard-agent",
    program="onboard_agent.py",
    model="gpt-4o-mini",
    consulted=(),
    called=(),
    wrote=("task-summary-retry-review",),
    outcome_ref=None,
    outcome=None,
    direction=None,
    model_calls=1,
)

BRANCHES = (DEPLOY, REVIEW, ONBOARD)
"""The tree's branches in the order in which the agents run."""

SEED_PROGRAM = "seed_memory.py"
"""Runs first, without instrumentation: what was known before anybody watched."""

LATE_PROGRAM = "late_outcome.py"
"""Runs last: a second outcome for the sealed decision behind :data:`LATE_REF`."""

LATE_REF = "DEP-500"

DECISION = "Rolling back retry changes due to incident correlation and high-risk signal from prior agent"
INCIDENTS = "3 SEV-1 incidents in last 24h"
COMMITS = "15 commits since last deploy, 3 touching retry logic"
ERRORS = f"412 timeouts in {ENTITY} within 6h, first seen after the retry change"
RACE = "Retries can charge a card twice when two workers pick up the same order"
RISK = "Five retries with backoff outlast the gateway's timeout"
VERDICT = f"Send it back: {RISK[0].lower()}{RISK[1:]}"
SUMMARY = "Retries are under review: one rollback worked, one incident followed the old pattern"


def _asks(call_id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


MODEL_RULES = (
    Rule(
        says=f"Keep the last deploy of {ENTITY}?",
        turn=0,
        reply=Reply(
            tool_calls=(
                _asks("call_incidents", "open_incidents", service=ENTITY),
                _asks("call_commits", "commits_since_deploy", service=ENTITY),
            ),
            usage=Usage(prompt=1312, completion=44, cached=1024),
        ),
    ),
    Rule(
        says=f"Keep the last deploy of {ENTITY}?",
        turn=1,
        reply=Reply(text=DECISION, usage=Usage(prompt=1404, completion=19, cached=1280)),
    ),
    Rule(
        says=f"Review the retry change of {ENTITY}.",
        turn=0,
        reply=MessageReply(
            text="First what is known, and what goes wrong now.",
            tool_calls=(
                _asks("toolu_risks", "known_risks", service=ENTITY),
                _asks("toolu_sentry", "sentry_errors", service=ENTITY, hours=6),
            ),
            usage=Usage(prompt=1196, completion=88, cached=0),
            cache_written=1024,
        ),
    ),
    Rule(
        says=f"Review the retry change of {ENTITY}.",
        turn=1,
        reply=MessageReply(
            tool_calls=(_asks("toolu_note", "note_risk", service=ENTITY, key="risk-timeout-regression", risk=RISK),),
            usage=Usage(prompt=1342, completion=71, cached=1024),
        ),
    ),
    Rule(
        says=f"Review the retry change of {ENTITY}.",
        turn=2,
        reply=MessageReply(text=VERDICT, usage=Usage(prompt=1431, completion=14, cached=1024)),
    ),
    Rule(
        says=f"Sum up retries in {ENTITY}:",
        turn=0,
        reply=Reply(text=SUMMARY, usage=Usage(prompt=188, completion=210, cached=0, reasoning=192)),
    ),
)
"""What the demo's model answers to the three agents."""


def tree_lines(branch: Branch, session: str) -> tuple[str, ...]:
    """The lines of the seed's tree for one branch, without the drawing: read, consulted, wrote, outcome.

    Args:
        branch: The agent's branch.
        session: The session's id as the tree shows it, ``sess-`` and four hex digits.
    """
    lines = [f"read by {branch.agent} ({session})"]
    if branch.consulted:
        lines.append(f"also consulted: {', '.join(branch.consulted)}")
    lines.append(f"wrote: {', '.join(branch.wrote)}")
    if branch.outcome_ref:
        lines.append(f"outcome: {branch.outcome_ref} ({branch.outcome}) → confidence {branch.direction}")
    return tuple(lines)
