"""Which decision trace continues which: a run that was interrupted and resumed, a window that had reached a limit.

A trace names the one that it continues where its own process knew it. Else it continues the trace right before it in
the same session, by the time at which they started, if that one is ``paused``: a framework's run that stopped for
somebody's answer, resumed by whatever process. Nothing else counts, neither who is projected first nor where a record
stands in the log, so the answer follows from the records alone.

A session's id is as unique as its application makes it, and many threads are number 1. So a session is one of one agent
in one service: what two agents, or two services, do under the same id is never joined.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from amfs_otel.graph.documents import Document
from amfs_otel.graph.edges import Edge, Evidence, Node
from amfs_otel.graph.texts import members, word
from amfs_otel.graph.times import moment

PAUSED = "paused"


class Place(NamedTuple):
    """Where a decision stands in its session; compares as they follow each other. `thread` is that of `thread_of`."""

    thread: str
    started_at: datetime
    record_id: str


class Stop(NamedTuple):
    """A decision at its place: its status, and the record that it itself says it continues."""

    place: Place
    status: str | None
    named: str | None


@dataclass(frozen=True, slots=True)
class Continuation:
    """Ids of the trace that one continues, and of those that continue it, the earliest first."""

    continues: str | None = None
    continued_by: tuple[str, ...] = ()


def thread_of(document: Document) -> str | None:
    """What tells the sessions of a log apart: a digest of a session's id, its agent and its service, where named.

    The program's name, which stands for them where nobody named them, is not among it: what one program began, another
    may resume. The digest is of one length, whatever an application calls its threads. None where the session's id is
    not known.
    """
    facts = document.facts
    session_id = word(facts.get("session_id", document.session))
    if session_id is None:
        return None
    origin = members(facts.get("origin"))
    named = (word(facts.get("agent")), word(origin.get("service")))
    program = word(origin.get("program"))
    whose = [session_id, *(None if name == program else name for name in named)]
    return sha256(json.dumps(whose).encode()).hexdigest()[:32]


def place_of(document: Document) -> Place | None:
    """The place of a decision, None where its session or its time is not known."""
    thread, started_at = thread_of(document), moment(document.facts.get("started_us"))
    if document.kind != "decision" or thread is None or started_at is None:
        return None
    return Place(thread, started_at, document.record_id)


def continuations(documents: Iterable[Document], beside: Iterable[Stop] = ()) -> dict[str, str | None]:
    """Which decision each continues.

    Args:
        documents: Decisions, in any order; other records are passed over.
        beside: Decisions right before and right after one of these in its session, among those that are not given.

    Returns:
        Record id → id of the trace that it continues, or None: for each of `documents`, and for each of `beside` that
        follows one of them.
    """
    given = {one.record_id: one for one in documents if one.kind == "decision"}
    found: dict[str, str | None] = {record_id: one.named_by("continues") for record_id, one in given.items()}
    sessions: dict[str, set[Stop]] = defaultdict(set)
    stops = [
        Stop(place, word(one.facts.get("status")), found[one.record_id])
        for one in given.values()
        if (place := place_of(one)) is not None
    ]
    for stop in [*stops, *(one for one in beside if one.place.record_id not in given)]:
        sessions[stop.place.thread].add(stop)
    for session in sessions.values():
        for earlier, later in pairwise(sorted(session, key=lambda stop: stop.place)):
            if earlier.place.record_id in given or later.place.record_id in given:
                paused = earlier.place.record_id if earlier.status == PAUSED else None
                found[later.place.record_id] = later.named or paused
    return found


def continuation_in(links: Mapping[str, str | None], record_id: str) -> Continuation:
    """The continuation of one decision out of `continuations`."""
    followers = sorted(later for later, earlier in links.items() if earlier == record_id)
    return Continuation(links.get(record_id), tuple(followers))


def evidence_of_continuation(later: str, earlier: str, started_at: datetime) -> Evidence:
    """The edge ``continues``, from the later trace to the earlier; the later is the evidence."""
    return Evidence(later, Edge(Node("trace", later), "continues", Node("trace", earlier)), 1.0, started_at, started_at)
