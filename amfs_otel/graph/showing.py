"""The answer of ``show --json``: one record as it is, all events with all their fields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amfs_otel.graph.altered import altered_records
from amfs_otel.graph.continuation import Continuation
from amfs_otel.graph.documents import Document
from amfs_otel.graph.inputs import inputs_of
from amfs_otel.graph.step_items import bare_event
from amfs_otel.graph.steps import MODEL_KINDS, steps_of
from amfs_otel.graph.texts import resolved, said
from amfs_otel.graph.times import rfc3339

_ELSEWHERE = ("events", "schema", "started_us", "ended_us")


def shown_record(
    document: Document,
    amendments: Iterable[Document] = (),
    continuation: Continuation | None = None,
    before: Sequence[Document] = (),
) -> dict[str, Any]:
    """Returns a record's header, place, facts and events; texts that are withheld are null and listed in ``withheld``.

    Args:
        document: A record of any kind.
        amendments: Amendment records of it, oldest first.
        continuation: Which traces it continues and is continued by; default: what its own record names.
        before: The trace that it continues, the one which that continues, and so on.
    """
    late = list(amendments)
    steps = steps_of(document, late)
    joined = continuation or Continuation(document.named_by("continues"))
    inputs = inputs_of(document, steps, before)
    facts = {key: value for key, value in document.facts.items() if key not in _ELSEWHERE}
    plain = resolved(
        {
            "record_id": document.record_id,
            "kind": document.kind,
            "schema": document.head.get("schema"),
            "trace_id": document.trace,
            "captured_at": document.captured_at,
            "sequence_number": document.sequence_number,
            "parent_hash": document.parent_hash,
            "record_hash": document.record.record_hash.hex(),
            "content_hash": document.head.get("content_hash"),
            "signature": document.record.signature.hex(),
            "signing_key_id": document.head.get("signing_key_id"),
            "continues": joined.continues,
            "continued_by": list(joined.continued_by),
            "header": dict(document.head),
            "facts": facts | _times(document.facts),
            "events": [
                {
                    "kind": step.kind,
                    "status": said(step.event.get("status")),
                    "started_at": step.started_at,
                    "duration_ms": step.duration_ms,
                    "parent": said(step.event.get("parent")),
                    **bare_event(step),
                    **({"inputs": inputs.into(step)} if step.kind in MODEL_KINDS else {}),
                }
                for step in steps
            ],
        },
        checked=True,
    )
    return {**plain.value, "withheld": plain.withheld, "altered": [*altered_records((document, *late)), *plain.altered]}


def _times(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: rfc3339(facts[source])
        for name, source in (("started_at", "started_us"), ("ended_at", "ended_us"))
        if source in facts
    }
