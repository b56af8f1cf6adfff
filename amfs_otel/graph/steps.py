"""The events of a document as numbered steps, amendments laid over them, and what a step means.

A *step* is an event with its number: its place in the record, from 1. Every item of an answer names its step. Facts may
come from any version of the library or be damaged, so nothing is assumed to be there, and nothing unknown becomes 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from amfs_otel.graph.documents import Document
from amfs_otel.graph.texts import flag, integer, items, members, shown, word
from amfs_otel.graph.times import rfc3339, span_ms
from amfs_otel.model import Kind

QUERY_KINDS = (Kind.MEMORY_QUERY, Kind.RETRIEVAL)
MODEL_KINDS = (Kind.LLM_CALL, Kind.EMBEDDINGS)

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a record.

    Attributes:
        number: Its place in the record, from 1.
        event: Its facts; `Text` objects where a part is behind a field.
        agent: Name of the agent that did it: its own, else the window's. A name, so maybe a `Text`.
        amended_by: Id of the amendment record whose facts these are, where one completed the step.
    """

    number: int
    event: Mapping[str, Any]
    agent: Any
    amended_by: str | None = None

    @property
    def kind(self) -> str:
        """The event's kind, empty where it has none."""
        kind = self.event.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def at(self) -> str | None:
        """When it ended, else when it started: RFC 3339."""
        return rfc3339(self.event.get("end_us")) or rfc3339(self.event.get("start_us"))

    @property
    def started_at(self) -> str | None:
        """When it started: RFC 3339."""
        return rfc3339(self.event.get("start_us"))

    @property
    def duration_ms(self) -> float | None:
        """How long it took, None where it has no duration or never ended."""
        return span_ms(self.event.get("start_us"), self.event.get("end_us"))

    @property
    def is_infrastructure(self) -> bool:
        """Whether a framework's own bookkeeping did it (checkpoints, chat stores)."""
        return self.event.get("infrastructure") is True

    @property
    def entry(self) -> str | None:
        """``entity_path/key`` of the memory entry it touches, None where unknown or erased."""
        return entry_name(self.event)


def entry_name(event: Mapping[str, Any]) -> str | None:
    """``entity_path/key`` of an event or of an item of a list in it."""
    path, key = word(event.get("entity_path")), word(event.get("key"))
    return None if path is None or key is None else f"{path}/{key}"


def steps_of(document: Document, amendments: Iterable[Document] = ()) -> list[Step]:
    """The steps of a decision or outcome record, in its order.

    Args:
        document: The record.
        amendments: Amendment records of it, oldest first; a later one wins over an earlier.
    """
    late = _late_events(amendments)
    agent = document.facts.get("agent")
    steps: list[Step] = []
    for number, event in enumerate(items(document.facts.get("events")), 1):
        if isinstance(event, Mapping):
            facts = members(event)
            amended, by = late.get(str(facts.get("id")), (_NOTHING, None))
            facts = {**facts, **amended}
            steps.append(Step(number, facts, facts.get("agent") or agent, by))
    return steps


def _late_events(amendments: Iterable[Document]) -> dict[str, tuple[Mapping[str, Any], str]]:
    return {
        str(amendment.facts.get("step")): (members(amendment.facts.get("event")), amendment.record_id)
        for amendment in amendments
    }


def causal_steps(steps: Iterable[Step]) -> list[Step]:
    """The reads that a decision rests on: those that found something, since the read log was last cleared.

    As upstream's read tracker does: of several reads of one entry the newest counts, and stands where it happened.
    """
    causal: dict[object, Step] = {}
    for step in steps:
        if step.kind == Kind.WINDOW_DISCARDED:
            causal.clear()
        elif step.kind == Kind.MEMORY_READ and step.event.get("found") is True and not step.is_infrastructure:
            name = step.entry or step.number
            causal.pop(name, None)
            causal[name] = step
    return list(causal.values())


def created(event: Mapping[str, Any]) -> bool | None:
    """Whether a write made a new entry, None where the record does not say."""
    said, version = flag(event.get("created")), integer(event.get("version"))
    return said if said is not None or version is None else version <= 1


def is_write(step: Step) -> bool:
    """Whether a step wrote an entry, or may have (it never ended); a failed write is an error, not a write."""
    return step.kind == Kind.MEMORY_WRITE and step.event.get("status") != "error"


def context_name(event: Mapping[str, Any]) -> str | None:
    """What a context is called in trees and graphs.

    Its source; where the label begins with the source (``git``, ``git-log``) the label says more, and its hyphens
    read as spaces. None where both are erased.
    """
    label, source = word(event.get("label")), word(event.get("source_name"))
    if label is not None and (source is None or label.startswith(source)):
        return label.replace("-", " ")
    return source


def tool_name(event: Mapping[str, Any]) -> str | None:
    """The name of a tool, None where it is erased."""
    return word(shown(event.get("tool_name")))
