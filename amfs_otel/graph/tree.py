"""The seed's tree: who read an entry, what else they consulted and wrote, and how it ended.

A *branch* is one decision that read the entry, or that relied on it: one that names it among the inputs of what it
decided, though nobody saw it read. Branches stand in the order of time. `tree` gives the data (the answer
of ``tree --json``), `tree_lines` the seed's own lines.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amfs_otel.graph.continuation import Continuation
from amfs_otel.graph.documents import Document
from amfs_otel.graph.explain import outcomes_of
from amfs_otel.graph.steps import Step, causal_steps, context_name, is_write, steps_of, tool_name
from amfs_otel.graph.texts import integer, items, resolved, said, shown, shown_ref, word
from amfs_otel.graph.times import rfc3339
from amfs_otel.model import Kind

_AMFS_SESSION = re.compile(r"sess-\w{4,}")
_VERBS = {"read": "read", "relied_on": "relied on", "wrote": "written"}
_OUR_SESSION = re.compile(r"[0-9a-f]{32}")


def branch(
    entry: str,
    document: Document,
    *,
    outcomes: Sequence[Document] = (),
    amendments: Sequence[Document] = (),
    continuation: Continuation | None = None,
) -> dict[str, Any] | None:
    """What one decision did around `entry`; None if it neither read nor wrote it, nor named it as an input.

    Args:
        entry: ``entity_path/key``.
        document: The decision.
        outcomes: Outcome records attached to it.
        amendments: Amendment records of it, oldest first.
        continuation: Which traces it continues and is continued by; default: what its own record names.
    """
    steps = steps_of(document, amendments)
    joined = continuation or Continuation(document.named_by("continues"))
    reads = [step for step in causal_steps(steps) if step.entry == entry]
    writes = [step for step in steps if is_write(step) and not step.is_infrastructure]
    relation = "read" if reads else _relation(entry, steps, writes)
    if relation is None:
        return None
    facts = document.facts
    found = outcomes_of(document.record_id, steps)
    for other in outcomes:
        if other.record_id != document.record_id:
            found += outcomes_of(other.record_id, steps_of(other))
    session = shown(facts.get("session_id")) or document.session
    answer = {
        "record_id": document.record_id,
        "sequence_number": document.sequence_number,
        "agent_id": said(facts.get("agent")),
        "session_id": session,
        "session": short_session(session),
        "relation": relation,
        "read_at": reads[-1].at if reads else None,
        "version": integer(reads[-1].event.get("version")) if reads else None,
        "started_at": rfc3339(facts.get("started_us")),
        "consulted": _named(context_name(step.event) for step in steps if step.kind == Kind.CONTEXT),
        "called": _named(tool_name(step.event) for step in steps if step.kind == Kind.TOOL_CALL),
        "wrote": _named(_written_name(step, entry) for step in writes),
        "outcomes": sorted((_ending(item, entry) for item in found), key=lambda item: item["recorded_at"] or ""),
        "status": said(facts.get("status")),
        "continues": joined.continues,
        "continued_by": list(joined.continued_by),
    }
    return resolved(answer).value


def _relation(entry: str, steps: Sequence[Step], writes: Sequence[Step]) -> str | None:
    """How a decision that did not read `entry` has to do with it."""
    inputs = (shown(name) for step in steps if step.kind == Kind.STATEMENT for name in items(step.event.get("inputs")))
    if entry in inputs:
        return "relied_on"
    return "wrote" if any(step.entry == entry for step in writes) else None


def _named(names: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name is not None))


def _written_name(step: Step, entry: str) -> str | None:
    """The key alone where it lies beside `entry`, the whole name elsewhere; `entry` itself is no news."""
    path, key = word(step.event.get("entity_path")), word(step.event.get("key"))
    return None if path is None or step.entry == entry else key if entry.startswith(f"{path}/") else step.entry


def _ending(outcome: Mapping[str, Any], entry: str) -> dict[str, Any]:
    """One outcome, with what it did to the confidence in `entry`."""
    changes = [
        change
        for change in outcome["confidence_changes"]
        if f"{shown(change['entity_path'])}/{shown(change['key'])}" == entry
    ]
    change: Mapping[str, Any] = changes[-1] if changes else {}
    return {
        "record_id": outcome["record_id"],
        "outcome_ref": outcome["outcome_ref"],
        "outcome_type": outcome["outcome_type"],
        "recorded_at": outcome["recorded_at"],
        "direction": change.get("direction"),
        "before": change.get("before"),
        "after": change.get("after"),
    }


def tree(entry: str, branches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer of ``tree --json``: those who read the entry; only if nobody did, those who wrote it.

    Those who relied on it have a list of their own.
    """
    ordered = sorted(branches, key=lambda item: (item["started_at"] or "", item["record_id"]))
    of = {relation: [item for item in ordered if item["relation"] == relation] for relation in _VERBS}
    return {"entry": entry, "branches": of["read"] or of["wrote"], "relied_on_by": of["relied_on"]}


def tree_lines(answer: Mapping[str, Any]) -> list[str]:
    """The tree of `tree` as the seed draws it."""
    lines = [str(answer["entry"])]
    branches: Sequence[Mapping[str, Any]] = [*answer["branches"], *answer["relied_on_by"]]
    for place, item in enumerate(branches, 1):
        last = place == len(branches)
        stem = "    " + ("    " if last else "│   ")
        lines.append(f"    {'└' if last else '├'}── {branch_title(item)}")
        leaves = branch_leaves(item)
        lines += [f"{stem}{'└' if leaf is leaves[-1] else '├'}── {leaf}" for leaf in leaves]
        if not last:
            lines.append("    │")
    return lines


def branch_title(item: Mapping[str, Any]) -> str:
    """``read by deploy-agent (sess-a1b2)``."""
    return f"{_VERBS[item['relation']]} by {item['agent_id'] or '(name erased)'} ({item['session']})"


def branch_leaves(item: Mapping[str, Any]) -> list[str]:
    """The lines below a branch's title."""
    leaves = [
        f"{title}: {', '.join(item[key])}"
        for key, title in (("consulted", "also consulted"), ("called", "also called"), ("wrote", "wrote"))
        if item[key]
    ]
    leaves += [f"continues …{item['continues'][-8:]}"] if item["continues"] else []
    leaves += [f"continued by …{one[-8:]}" for one in item["continued_by"]]
    return leaves + [_outcome_line(ending) for ending in item["outcomes"]]


def _outcome_line(ending: Mapping[str, Any]) -> str:
    line = f"outcome: {shown_ref(ending['outcome_ref'], '(ref erased)')} ({ending['outcome_type'] or 'unknown'})"
    if ending["direction"] is not None:
        return f"{line} → confidence {ending['direction']}"
    return line if ending["after"] is None else f"{line} → confidence now {ending['after']}"


def short_session(session: str | None) -> str:
    """A session's id as trees show it: ``sess-`` and four characters; eight of ours; another's as it is."""
    if session is None:
        return "session unknown"
    if _AMFS_SESSION.fullmatch(session):
        return session[:9]
    return session[:8] if _OUR_SESSION.fullmatch(session) else session
