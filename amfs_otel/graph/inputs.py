"""What a decision rests on, by id: entries, documents and results of tools, and the model calls that took them in.

====================  =========================================  =================================================
input                 comes from                                 told apart by
====================  =========================================  =================================================
entry                 a read that found something, or a query    entity path, key, version
document              a retrieval                                its id; without one, the salted commitment of the
                                                                 retrieval's documents and its place among them
result of a tool      the call of the tool                       the model's id of the call
====================  =========================================  =================================================

A model call *takes in* the result of a tool whose call id its request answers (`answered_tools`), and with it what was
read and retrieved inside that tool. Nothing is looked for in texts: of what else stood in the prompt no id tells, so
such an input says of no model call that it took it in. Pure.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amfs_otel.graph.documents import Document
from amfs_otel.graph.step_items import Item, located
from amfs_otel.graph.steps import Step, causal_steps, steps_of
from amfs_otel.graph.texts import Text, integer, items, members, real, said, word
from amfs_otel.model import Kind

Source = tuple[str, Step]
"""A step and the id of the record that holds it."""


@dataclass(slots=True)
class Inputs:
    """The inputs of one decision.

    Attributes:
        items: As ``explain --json`` has them under ``inputs``, in the order of what they come from.
        taken: Number of a model call's step → record and number of each step that it took in → that source.
    """

    items: list[Item] = field(default_factory=list[Item])
    taken: dict[int, dict[tuple[str, int], Item]] = field(default_factory=dict[int, dict[tuple[str, int], Item]])

    def into(self, step: Step) -> list[Item]:
        """What a model call took in: record and step of each source, each once."""
        return list(self.taken.get(step.number, {}).values())


def inputs_of(document: Document, steps: Sequence[Step], before: Sequence[Document] = ()) -> Inputs:
    """Returns the inputs of a decision.

    Args:
        document: The decision.
        steps: Its steps.
        before: The trace that it continues, the one which that continues, and so on: a tool's call may lie there.
    """
    calls = _Calls(document.record_id, steps, before)
    found = Inputs()
    found.items += [_tool_result(answer) for answer in calls.answers]
    causal = {step.number for step in causal_steps(steps)}
    for step in steps:
        makers = _MAKERS.get(step.kind)
        if makers is not None and (step.kind != Kind.MEMORY_READ or step.number in causal):
            used_by = [_place(one) for one in calls.takers_of(step)]
            found.items += [
                located(step, {**one, "record_id": document.record_id, "used_by": used_by}) for one in makers(step)
            ]
    found.items.sort(key=lambda item: item["step"] if item["record_id"] == document.record_id else 0)
    for item in found.items:
        source = {name: item[name] for name in ("record_id", "step", "event_id")}
        place: tuple[Any, Any] = (item["record_id"], item["step"])
        for taker in item["used_by"] if None not in place else ():
            found.taken.setdefault(taker["step"], {})[place] = source
    return found


@dataclass(slots=True)
class _Answer:
    """The result of one call of a tool, as model calls took it in.

    Attributes:
        call_id: The model's id of the call; a `Text` where it is erased.
        tool: The call itself, None where nobody saw it.
        asked_by: The model call that asked for it.
        used_by: The model calls that took it in.
    """

    call_id: Any
    tool: Source | None
    asked_by: Source | None
    used_by: list[Step] = field(default_factory=list[Step])


class _Calls:
    """Calls of tools, who asked for them and who took in their results."""

    def __init__(self, record_id: str, steps: Sequence[Step], before: Sequence[Document]) -> None:
        self.answers: list[_Answer] = []
        self._steps = {str(said(step.event.get("id"))): step for step in steps}
        asked: dict[str, Source] = {}
        ran: dict[str, Source] = {}
        for document in reversed(before):
            for step in steps_of(document):
                self._note(document.record_id, step, asked, ran)
        known: dict[Any, _Answer] = {}
        for step in steps:
            # The newest of each id before this step counts: ids of calls come again in some providers' traces.
            for call in items(step.event.get("answered_tools")):
                given = members(call).get("call_id")
                call_id = word(given) or ""
                tool = ran.get(call_id)
                key = (call_id, None if tool is None else (tool[0], tool[1].number)) if call_id else object()
                if key not in known:
                    known[key] = _Answer(given, tool, asked.get(call_id))
                    self.answers.append(known[key])
                if known[key].used_by[-1:] != [step]:
                    known[key].used_by.append(step)
            self._note(record_id, step, asked, ran)
        self._of_step: dict[int, list[_Answer]] = defaultdict(list)
        for answer in self.answers:
            if answer.tool is not None and answer.tool[0] == record_id:
                self._of_step[answer.tool[1].number].append(answer)

    @staticmethod
    def _note(record_id: str, step: Step, asked: dict[str, Source], ran: dict[str, Source]) -> None:
        if step.kind == Kind.TOOL_CALL and (call_id := word(step.event.get("call_id"))):
            ran[call_id] = record_id, step
        for call in items(step.event.get("requested_tools")):
            if call_id := word(members(call).get("call_id")):
                asked[call_id] = record_id, step

    def takers_of(self, step: Step) -> list[Step]:
        """The model calls that took in the result of the tool inside which a step happened."""
        seen: set[int] = set()
        inner: Step | None = step
        while inner is not None and inner.number not in seen:
            seen.add(inner.number)
            if inner.number in self._of_step:
                return [taker for answer in self._of_step[inner.number] for taker in answer.used_by]
            inner = self._steps.get(str(inner.event.get("parent")))
        return []


def _place(step: Step) -> Item:
    return {"step": step.number, "event_id": said(step.event.get("id"))}


def _tool_result(answer: _Answer) -> Item:
    asked = None
    if answer.asked_by is not None:
        asked = {"record_id": answer.asked_by[0], **_place(answer.asked_by[1])}
    item: Item = {
        "kind": "tool_result",
        "identified_by": "call_id",
        "call_id": said(answer.call_id),
        "tool_name": None,
        "asked_by": asked,
        "record_id": None,
        "used_by": [_place(step) for step in answer.used_by],
    }
    if answer.tool is None:
        return item | {"step": None, "event_id": None, "span_id": None}
    record_id, step = answer.tool
    return located(step, item | {"tool_name": said(step.event.get("tool_name")), "record_id": record_id})


def _read_entry(step: Step) -> Iterator[Item]:
    yield _entry(step.event)


def _found_entries(step: Step) -> Iterator[Item]:
    if not step.is_infrastructure:
        yield from (_entry(members(one)) for one in items(step.event.get("results")) if members(one).get("key"))


def _entry(event: Mapping[str, Any]) -> Item:
    version = integer(event.get("version"))
    return {
        "kind": "entry",
        "identified_by": "entry" if version is None else "entry_version",
        "entity_path": said(event.get("entity_path")),
        "key": said(event.get("key")),
        "version": version,
    }


def _retrieved(step: Step) -> Iterator[Item]:
    documents = step.event.get("documents")
    commitment = documents.commitment if isinstance(documents, Text) else None
    for place, one in enumerate(items(step.event.get("results"))):
        facts = members(one)
        named = said(facts.get("document_id"))
        yield {
            "kind": "document",
            "identified_by": "document_id" if named is not None else "commitment" if commitment is not None else None,
            "document_id": named,
            "commitment": commitment,
            "place": place,
            "score": real(facts.get("score")),
        }


_MAKERS: Mapping[str, Callable[[Step], Iterator[Item]]] = {
    Kind.MEMORY_READ: _read_entry,
    Kind.MEMORY_QUERY: _found_entries,
    Kind.RETRIEVAL: _retrieved,
}
"""What a step of each kind gives, items without what `inputs_of` adds."""
