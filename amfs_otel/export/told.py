"""One shape for every decision trace that can be replayed: a `ToldTrace` of `ToldStep`s, with the fields of `model.py`.

Two readers, both by duck typing and both tolerant, because the second kind of object is not ours:

- `told_from_facts`: a document of a record (`.head` and `.facts`, as the read side makes it). Exact: order, parents,
  times to the microsecond.
- `told_from_decision_trace`: whatever has upstream AMFS's field names, as attributes or as keys: a `DecisionTrace`, its
  dump, a Pro `ImmutableDecisionTrace`, or the answer of `explain --json`.

Only structure and names are read, never a text: what was withheld or is unmasked elsewhere cannot leave through here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

from amfs_otel import semconv
from amfs_otel.model import FIELDS, FieldClass, Kind

_KINDS = frozenset(Kind)
_TEXTS = (FieldClass.DECISION, FieldClass.MESSAGE)
_LAST_US = ((1 << 63) - 1) // 1000


@dataclass(frozen=True, slots=True)
class ToldStep:
    """One step of a trace.

    Attributes:
        kind: What it was.
        start_ns: When it began, ns since the epoch; None = unknown.
        end_ns: When it ended; None = unknown or without duration.
        fields: What is known of it, keys as in `model.py`, no texts.
        error_type: Why it failed; None = it did not.
        id: Its id within the trace, hex; empty where it has none.
        parent: Id of the step in which it happened, or empty.
    """

    kind: Kind
    start_ns: int | None
    end_ns: int | None
    fields: Mapping[str, Any]
    error_type: str | None = None
    id: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class ToldTrace:
    """A decision trace, ready to be shown as spans. Unknown is None.

    Attributes:
        agent: Name of the agent.
        content_hash: Hex; replays of one content have one identity.
        origin: (trace id, span id) of the original root span, hex.
        service: `service.name` of the process that was seen.
        started_ns: ns since the epoch.
        ended_ns: ns since the epoch.
        attributes: More attributes of the root span.
        steps: In order.
    """

    agent: str | None
    content_hash: str | None
    origin: tuple[str, str] | None
    service: str | None
    started_ns: int | None
    ended_ns: int | None
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    steps: Sequence[ToldStep] = ()


def told_from_facts(head: Mapping[str, Any], facts: Mapping[str, Any]) -> ToldTrace:
    """The trace in a record: `head` is its header, `facts` its facts tree (docs/trace-document.md)."""
    trace, span = _word(head, "trace"), _word(head, "span")
    return ToldTrace(
        agent=_word(facts, "agent"),
        content_hash=_word(head, "content_hash"),
        origin=(trace, span) if trace and span and _is_hex(trace + span) else None,
        service=_Source(facts).inner("origin").word("service"),
        started_ns=_ns_of(facts, "started_us"),
        ended_ns=_ns_of(facts, "ended_us"),
        attributes=_known(
            {
                semconv.AMFS_RECORD_ID: _word(head, "id"),
                semconv.AMFS_SESSION_ID: _word(head, "session"),
                semconv.GEN_AI_CONVERSATION_ID: _word(facts, "session_id"),
                semconv.AMFS_CLOSED_BY: _word(facts, "closed_by"),
                semconv.AMFS_STATUS: _word(facts, "status"),
            }
        ),
        steps=[step for event in _Source(facts).items("events") if (step := _step_from_event(event.of)) is not None],
    )


def _step_from_event(event: Any) -> ToldStep | None:
    kind = _word(event, "kind")
    if kind not in _KINDS:
        return None
    failed = _word(event, "status") == "error"
    return ToldStep(
        Kind(kind),
        _ns_of(event, "start_us"),
        _ns_of(event, "end_us"),
        {name: value for name, value in event.items() if FIELDS.get(name) not in _TEXTS and _is_plain(value)},
        (_word(event, "error_type") or semconv.ERROR_TYPE_OTHER) if failed else None,
        _word(event, "id") or "",
        _word(event, "parent") or "",
    )


def told_from_decision_trace(trace: object) -> ToldTrace:
    """The trace in an object or mapping with upstream's field names."""
    source = _Source(trace)
    steps = [step for name, read in _READERS.items() for item in source.items(name) for step in [read(item)]]
    steps += [_confidence_change(item) for item in source.inner("state_diff").items("confidence_changes")]
    steps.sort(key=lambda step: step.start_ns or 0)
    ended_ns = source.time("session_ended_at") or source.time("created_at")
    outcome = source.fields(outcome_ref="outcome_ref", outcome_type="outcome_type")
    if "outcome_type" not in outcome:
        judged = [item.fields(outcome_type="outcome_type") for item in source.items("outcomes")]
        outcome.update(judged[0] if judged else {})
    if outcome:
        steps.append(ToldStep(Kind.OUTCOME, ended_ns, ended_ns, outcome))
    return ToldTrace(
        agent=source.word("agent_id"),
        content_hash=source.word("content_hash"),
        origin=None,
        service=source.inner("origin").word("service"),
        started_ns=source.time("session_started_at"),
        ended_ns=ended_ns,
        attributes=_known(
            {
                semconv.AMFS_RECORD_ID: source.word("record_id") or source.word("id"),
                semconv.AMFS_SESSION_ID: source.word("session_id"),
                semconv.AMFS_CLOSED_BY: source.word("closed_by"),
                semconv.AMFS_STATUS: source.word("status"),
            }
        ),
        steps=steps,
    )


class _Source:
    """Reads a foreign object, attribute or key alike; what is missing or of another type is unknown."""

    def __init__(self, of: Any) -> None:
        self.of: object = of

    def get(self, name: str) -> Any:
        of = self.of
        value = cast("Mapping[str, Any]", of).get(name) if isinstance(of, Mapping) else getattr(of, name, None)
        if isinstance(value, Enum):
            value = value.value
        return value.encode(errors="replace").decode() if isinstance(value, str) else value

    def word(self, name: str) -> str | None:
        value = self.get(name)
        return value if isinstance(value, str) and value else None

    def time(self, *names: str) -> int | None:
        return next((ns for name in names if (ns := _ns(self.get(name))) is not None), None)

    def inner(self, name: str) -> "_Source":
        return _Source(self.get(name))

    def items(self, name: str) -> Iterable["_Source"]:
        value = self.get(name)
        return [_Source(item) for item in cast("Sequence[Any]", value)] if isinstance(value, (list, tuple)) else []

    def fields(self, **names: str) -> dict[str, Any]:
        """Our field name ← their name, for plain values that are known."""
        values = {ours: self.get(theirs) for ours, theirs in names.items()}
        return {name: value for name, value in values.items() if value is not None and _is_plain(value)}

    def step(self, kind: Kind, fields: dict[str, Any], *times: str, failed: bool = False) -> ToldStep:
        start_ns = self.time(*times)
        duration_ms = self.get("latency_ms") if self.get("duration_ms") is None else self.get("duration_ms")
        known = type(duration_ms) in (int, float) and 0 <= duration_ms < 1e12 and start_ns is not None
        return ToldStep(
            kind,
            start_ns,
            (start_ns or 0) + int(duration_ms * 1e6) if known else None,
            fields,
            (self.word("error_type") or semconv.ERROR_TYPE_OTHER) if failed else None,
        )


def _llm_call(item: _Source) -> ToldStep:
    fields = item.fields(
        provider="provider", model="model", response_id="call_id", temperature="temperature", top_p="top_p",
        max_tokens="max_tokens", input_tokens="input_tokens", cached_tokens="cached_tokens",
        output_tokens="output_tokens", reasoning_tokens="reasoning_tokens",
    )  # fmt: skip
    fields["operation"] = semconv.OPERATION_CHAT
    if (reason := item.word("finish_reason")) is not None:
        fields["finish_reasons"] = [reason]
    failed = item.word("status") == "error" or bool(item.get("error"))
    return item.step(Kind.LLM_CALL, fields, "started_at", failed=failed)


def _tool_call(item: _Source) -> ToldStep:
    fields = item.fields(tool_name="tool_name", call_id="call_id")
    return item.step(Kind.TOOL_CALL, fields, "started_at", failed=item.get("success") is False)


_ENTRY = {"entity_path": "entity_path", "key": "key", "version": "version", "confidence": "confidence"}


def _causal_entry(item: _Source) -> ToldStep:
    fields = item.fields(**_ENTRY, memory_type="memory_type", written_by="written_by")
    return item.step(Kind.MEMORY_READ, {**fields, "operation": "read", "found": True}, "read_at")


def _query_event(item: _Source) -> ToldStep:
    return item.step(
        Kind.MEMORY_QUERY,
        item.fields(operation="operation", result_count="result_count"),
        "occurred_at",
        "started_at",
    )


def _write_event(item: _Source) -> ToldStep:
    fields = item.fields(**_ENTRY, memory_type="memory_type")
    return item.step(Kind.MEMORY_WRITE, {**fields, "operation": "write"}, "written_at")


def _external_context(item: _Source) -> ToldStep:
    return item.step(Kind.CONTEXT, item.fields(label="label", source_name="source"), "recorded_at")


def _statement(item: _Source) -> ToldStep:
    return item.step(Kind.STATEMENT, item.fields(confidence="confidence"), "recorded_at")


def _confidence_change(item: _Source) -> ToldStep:
    return item.step(Kind.CONFIDENCE_CHANGE, item.fields(before="before", after="after", direction="direction"))


_READERS: dict[str, Callable[[_Source], ToldStep]] = {
    "causal_entries": _causal_entry,
    "external_contexts": _external_context,
    "query_events": _query_event,
    "write_events": _write_event,
    "tool_calls": _tool_call,
    "llm_calls": _llm_call,
    "decisions": _statement,
}


def _word(values: Any, name: str) -> str | None:
    return _Source(values).word(name)


def _integer(values: Any, name: str) -> int | None:
    value = _Source(values).get(name)
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _ns_of(values: Any, name: str) -> int | None:
    """A record's time, which is in microseconds."""
    us = _integer(values, name)
    return None if us is None or us > _LAST_US else us * 1000


def _is_hex(text: str) -> bool:
    return all(digit in "0123456789abcdef" for digit in text)


def _known(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in cast("list[object]", value))
    return isinstance(value, (str, bool, int, float))


def _ns(value: object) -> int | None:
    """Nanoseconds since the epoch of a datetime or an ISO 8601 text; one without a zone is taken for UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000)
