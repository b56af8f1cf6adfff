"""A capture whose messages are kept and assembled, and whose spans are kept."""

import json
from dataclasses import dataclass, field
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from amfs_otel.assemble.assembler import Assembler, DecisionTrace
from amfs_otel.assemble.prepare import Preparer
from amfs_otel.capture.content import Masker
from amfs_otel.capture.runtime import Capture
from amfs_otel.chain.skeleton import PreparedText
from amfs_otel.model import ClosedBy, Message
from amfs_otel.settings import LedgerContent


@dataclass
class MemorySink:
    """Keeps every message, in order."""

    messages: list[Message] = field(default_factory=list[Message])

    def put(self, message: Message) -> None:
        self.messages.append(message)


@dataclass
class Captured:
    """A capture and all that came of it.

    Attributes:
        capture: The installed capture.
        sink: Its sink.
        exporter: Where its spans went.
    """

    capture: Capture
    sink: MemorySink
    exporter: InMemorySpanExporter
    provider: TracerProvider

    def records(self, content: LedgerContent = LedgerContent.ALL) -> list[DecisionTrace]:
        """Every closed window as the worker would assemble it, in the order of closing."""
        assembler = Assembler(Preparer(content, Masker(), None))
        made = [assembler.apply(item) for message in self.sink.messages for item in assembler.prepared(message)]
        return [trace for trace in made if trace is not None]

    def traces(self, content: LedgerContent = LedgerContent.ALL) -> list[dict[str, Any]]:
        """The facts of `records`, names and texts in place, `None` for what the policy withholds."""
        return [plain_facts(record) for record in self.records(content)]

    def close(self) -> list[dict[str, Any]]:
        """Closes all windows, as at exit, and gives all traces."""
        self.capture.windows.close_all(ClosedBy.EXIT)
        return self.traces()

    def spans(self) -> list[ReadableSpan]:
        """All ended spans, in the order of ending."""
        return list(self.exporter.get_finished_spans())


def plain_text(text: PreparedText) -> Any:
    """A text as a string or a JSON value, `None` where the policy withholds it."""
    if text.data is None:
        return None
    return json.loads(text.data) if text.media == "application/json" else text.data.decode()


def plain_facts(record: DecisionTrace) -> dict[str, Any]:
    """The facts of a record with names as strings and texts as strings or JSON values."""

    def plain(tree: Any) -> Any:
        if isinstance(tree, list):
            return [plain(item) for item in cast("list[Any]", tree)]
        if not isinstance(tree, dict):
            return tree
        members = cast("dict[str, Any]", tree)
        if set(members) == {"$n"}:
            return members["$n"]
        if set(members) == {"$t"}:
            return plain_text(record.texts[int(members["$t"])])
        return {key: plain(value) for key, value in members.items()}

    return {
        **plain(record.facts),
        "record_id": record.window.record_id,
        "record_kind": str(record.window.record_kind),
        "refs": record.window.refs,
    }


def kinds(trace: dict[str, Any]) -> list[str]:
    """The kinds of a trace's events, in order."""
    return [event["kind"] for event in trace["events"]]
