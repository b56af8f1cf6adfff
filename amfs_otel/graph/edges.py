"""What one record adds to the knowledge graph.

An edge says that two nodes are related; a record is *evidence* for it at most once, however often the relation shows in
it. So ``evidence_count`` is the number of records that show an edge, and taking a record away (erasure) is exact.

===================  ==========================  ==========================================================
relation             from → to                   evidence
===================  ==========================  ==========================================================
``read``             agent → entry               a decision that read the entry
``wrote``            agent → entry               a decision that wrote it
``references``       entry → entry               a write with ``pattern_refs``
``consulted``        agent → source, tool or     a context, a tool call, a document that a retrieval gave
                     document
``learned_from``     agent → agent               a read of another agent's entry
``informed``         entry → outcome             an outcome and the entries that it was credited to
``co_occurs_with``   entry → entry, in order     two of those entries in one decision that has an outcome
``continues``        trace → earlier trace       the later of the two; see `continuation`
===================  ==========================  ==========================================================

Confidence is 1 for what was seen to happen; for ``informed`` and ``co_occurs_with`` it is 1 after a success and 0.7
otherwise, as upstream has it. An edge carries the greatest of its evidence.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any, NamedTuple

from amfs_otel.graph.steps import Step, causal_steps, context_name, entry_name, is_write, tool_name
from amfs_otel.graph.texts import items, members, word
from amfs_otel.graph.times import moment
from amfs_otel.model import Kind

PAIRED_ENTRIES = 50
"""At most so many entries of a decision are paired for ``co_occurs_with``: pairs grow with the square."""

SUCCESS_CONFIDENCE = 1.0
OTHER_CONFIDENCE = 0.7

NAME_BYTES = 2000
"""Longer names are left out of the graph: they would not fit into an index row."""


class Node(NamedTuple):
    """A node: ``entry``, ``agent``, ``outcome``, ``source``, ``tool``, ``document`` or ``trace``, and its name."""

    kind: str
    name: str


class Edge(NamedTuple):
    """An edge's identity inside one log."""

    source: Node
    relation: str
    target: Node


@dataclass(frozen=True, slots=True)
class Evidence:
    """One record's evidence for one edge. `owner` is that record's id; times are the first and last showing."""

    owner: str
    edge: Edge
    confidence: float
    first_seen: datetime
    last_seen: datetime


def evidence_of_steps(owner: str, steps: Sequence[Step], fallback: datetime) -> list[Evidence]:
    """Edges that a decision shows by what it did, outcomes aside.

    Args:
        owner: Id of the record.
        steps: Its steps.
        fallback: Time of steps that have none.
    """
    return _merged(owner, _seen(steps), fallback)


def evidence_of_outcome(
    owner: str, decision: str, outcome: Step, causal: Sequence[str], fallback: datetime
) -> list[Evidence]:
    """Edges that an outcome shows: what informed it, and what occurred together in the decision.

    Args:
        owner: Id of the record that holds the outcome; it is the evidence for ``informed``.
        decision: Id of the decision that it judges; it is the evidence for ``co_occurs_with``, once for all outcomes.
        outcome: The outcome's step.
        causal: Entries that the decision read, in order; used where the outcome names none itself.
        fallback: Time of the outcome if it has none.
    """
    named = [name for item in items(outcome.event.get("causal_keys")) if (name := entry_name(members(item)))]
    entries = [name for name in dict.fromkeys(named or causal) if fits_index(name)]
    success = outcome.event.get("outcome_type") == "success"
    confidence = SUCCESS_CONFIDENCE if success else OTHER_CONFIDENCE
    when = moment(outcome.event.get("end_us")) or moment(outcome.event.get("start_us")) or fallback
    ref = word(outcome.event.get("outcome_ref"))
    found: list[Evidence] = []
    if ref is not None and fits_index(ref):
        for name in entries:
            edge = Edge(Node("entry", name), "informed", Node("outcome", ref))
            found.append(Evidence(owner, edge, confidence, when, when))
    for one, other in combinations(sorted(entries[:PAIRED_ENTRIES]), 2):
        edge = Edge(Node("entry", one), "co_occurs_with", Node("entry", other))
        found.append(Evidence(decision, edge, confidence, when, when))
    return found


def _seen(steps: Iterable[Step]) -> Iterator[tuple[Edge, Step]]:
    steps = list(steps)
    for step in causal_steps(steps):
        yield from _edge(step, ("agent", step.agent), "read", ("entry", step.entry))
        if step.event.get("operation") == "read_from":
            yield from _edge(step, ("agent", step.agent), "learned_from", ("agent", step.event.get("other_agent_id")))
    for step in steps:
        event = step.event
        if step.kind == Kind.CONTEXT:
            yield from _edge(step, ("agent", step.agent), "consulted", ("source", context_name(event)))
        elif step.kind == Kind.TOOL_CALL:
            yield from _edge(step, ("agent", step.agent), "consulted", ("tool", tool_name(event)))
        elif step.kind == Kind.RETRIEVAL:
            for result in items(event.get("results")):
                named = ("document", members(result).get("document_id"))
                yield from _edge(step, ("agent", step.agent), "consulted", named)
        elif step.kind == Kind.AGENT_INTERACTION and event.get("direction") == "read_from":
            this = event.get("this_agent_id") or step.agent
            yield from _edge(step, ("agent", this), "learned_from", ("agent", event.get("other_agent_id")))
        elif is_write(step) and not step.is_infrastructure:
            yield from _edge(step, ("agent", step.agent), "wrote", ("entry", step.entry))
            for ref in items(event.get("pattern_refs")):
                yield from _edge(step, ("entry", step.entry), "references", ("entry", ref))


def _edge(step: Step, source: tuple[str, Any], relation: str, target: tuple[str, Any]) -> Iterator[tuple[Edge, Step]]:
    """The edge, unless one of its ends has no name here (erased, too long, none given)."""
    one, two = word(source[1]), word(target[1])
    if one and two and fits_index(one) and fits_index(two):
        yield Edge(Node(source[0], one), relation, Node(target[0], two)), step


def fits_index(name: str) -> bool:
    """Whether a name can be found through an index."""
    return 0 < len(name.encode("utf-8", "replace")) <= NAME_BYTES


def _merged(owner: str, seen: Iterable[tuple[Edge, Step]], fallback: datetime) -> list[Evidence]:
    times: dict[Edge, tuple[datetime, datetime]] = {}
    for edge, step in seen:
        when = moment(step.event.get("end_us")) or moment(step.event.get("start_us")) or fallback
        first, last = times.get(edge, (when, when))
        times[edge] = min(first, when), max(last, when)
    return [Evidence(owner, edge, 1.0, first, last) for edge, (first, last) in times.items()]
