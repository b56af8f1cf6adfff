"""What is captured: events, windows' messages to the worker, and the shape of the facts that a record holds.

An `Event` is made on the caller's thread, so it is slotted, not frozen, and holds references, never serialised text.
Its `fields` say what is known when a step starts, its `result` what is known when it ends; both are flat dicts whose
keys stand in `FIELDS` or are plain structure (numbers, booleans, enumerations, model and host names).

The skeleton of a record (part 1) is the JSON object that `docs/trace-document.md` describes. In short, for
`amfs-otel/decision/1`::

    {"schema": "amfs-otel/decision/1", "agent": name, "session_id": name | absent, "opened_by": "amfs" | "session" | …,
     "inferred": bool, "started_us": int, "ended_us": int, "closed_by": "commit" | …, "status": "complete" | …,
     "origin": {"service", "version", "environment", "host", "process_id", "libraries": {…}},
     "policy": {"ledger": "decision", "masking": 1}, "coverage": {"events": int, "dropped": {…}, …},
     "events": [{"id": hex16, "kind": …, "seq": int, "start_us": int, "end_us": int | absent, "status": "ok" | "error" |
                 "incomplete", "error_type"?, "parent"?: hex16, "trace"?: hex32, "span"?: hex16, "source": "openai",
                 "agent"?: name, …fields and result of the event, inline}, …]}
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Protocol


class Kind(StrEnum):
    """Kinds of events; the words stand in records for ever."""

    AGENT_RUN = "agent_run"
    LLM_CALL = "llm_call"
    EMBEDDINGS = "embeddings"
    TOOL_CALL = "tool_call"
    RETRIEVAL = "retrieval"
    MEMORY_READ = "memory_read"
    MEMORY_QUERY = "memory_query"
    MEMORY_WRITE = "memory_write"
    COMMIT = "commit"
    CONTEXT = "context"
    STATEMENT = "statement"
    AGENT_INTERACTION = "agent_interaction"
    ATTEMPT = "attempt"
    OUTCOME = "outcome"
    CONFIDENCE_CHANGE = "confidence_change"
    APPROVAL = "approval"
    ERROR = "error"
    CHECKPOINT = "checkpoint"
    WINDOW_DISCARDED = "window_discarded"


class FieldClass(Enum):
    """What a field may hold, hence where it may go (capture.md, "Content policy")."""

    STRUCTURE = "structure"
    """Numbers, booleans, enumerations; model, service and host names. Stays in the skeleton."""
    NAME = "name"
    """An identifier that the application chose. Masked for secrets, erasable, never withheld."""
    DECISION = "decision"
    """A free text of the decision: summaries, memory values, query texts."""
    MESSAGE = "message"
    """A free text of the conversation: prompts, completions, arguments, results, documents, exception texts."""


_NAMES = (
    "agent", "agent_id", "session_id", "claimed_session", "thread_id", "user", "entity_path", "entity_paths", "key",
    "namespace", "branch", "outcome_ref", "tool_name", "call_id", "label", "source_name", "written_by",
    "other_agent_id", "this_agent_id", "pattern_refs", "pattern_ref", "inputs", "commit_id", "commit_parents",
    "response_id", "conversation_id", "previous_response_id", "action_key", "store_id", "document_id", "data_source_id",
    "agent_name", "scope_name", "verified_by", "request_id", "task_id",
)  # fmt: skip
_DECISIONS = (
    "summary", "decision_summary", "value", "previous_value", "query", "alternatives", "lesson", "situation",
    "evidence", "attributes", "profile", "tags", "other_parameters",
)  # fmt: skip
_MESSAGES = (
    "input_messages", "output_messages", "system_instructions", "tool_definitions", "arguments", "result", "documents",
    "error_message", "request_metadata", "input_text", "stop_sequences",
)  # fmt: skip

FIELDS: dict[str, FieldClass] = {
    **dict.fromkeys(_NAMES, FieldClass.NAME),
    **dict.fromkeys(_DECISIONS, FieldClass.DECISION),
    **dict.fromkeys(_MESSAGES, FieldClass.MESSAGE),
}
"""Class of each field that is not plain structure, by key, at any depth of an event. Keys are always ours: a mapping
whose keys the application chose is one free text."""


@dataclass(slots=True)
class Deferred:
    """A field whose text is made on the worker: `make(raw)`.

    `raw` is a bounded snapshot, so that a later mutation by the caller cannot change what is recorded.
    """

    make: Callable[[Any], Any]
    raw: Any


@dataclass(slots=True)
class Usage:
    """Token counts as the provider reported them; `None` = unknown, never an estimate.

    Attributes:
        input: All input tokens, cached ones included.
        cache_read: Input tokens read from the provider's cache; a part of `input`.
        cache_write: Input tokens written to the provider's cache; a part of `input`.
        output: All output tokens, reasoning included.
        reasoning: Output tokens spent on reasoning; a part of `output`.
    """

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None

    def facts(self) -> dict[str, int | None]:
        """The counts under the names that records use."""
        return {
            "input_tokens": self.input,
            "cached_tokens": self.cache_read,
            "cache_write_tokens": self.cache_write,
            "output_tokens": self.output,
            "reasoning_tokens": self.reasoning,
        }


@dataclass(slots=True)
class Event:
    """One thing that happened. Made and ended on the caller's thread, read by the worker.

    Attributes:
        kind: What it is.
        id: 64 random bits; 16 hex digits in records.
        seq: Counter taken in the caller: the order inside a process.
        start_ns: Wall clock at the start, ns since the epoch.
        source: The library that it was seen in: `amfs`, `openai`, `amfs_otel` (the Python API).
        fields: Known at the start. Never changed afterwards.
        result: Known at the end; set once, before the end is reported.
        end_ns: `start_ns` plus the monotonic difference; 0 while open.
        status: `ok`, `error` or `incomplete`.
        error_type: Qualified name of the exception or the provider's code.
        trace_id: OpenTelemetry trace of its span, 0 where there is none.
        span_id: Its OpenTelemetry span, 0 where there is none.
        parent_id: The event inside which it happened, 0 at the top.
        agent: Its own agent where that differs from the window's.
        flags: How it was placed: `joined`, `inferred`, or empty.
    """

    kind: Kind
    id: int
    seq: int
    start_ns: int
    source: str
    fields: dict[str, Any]
    result: dict[str, Any] | None = None
    end_ns: int = 0
    status: str = "ok"
    error_type: str | None = None
    trace_id: int = 0
    span_id: int = 0
    parent_id: int = 0
    agent: str | None = None
    flags: str = ""


class ClosedBy(StrEnum):
    """Why a window closed."""

    COMMIT = "commit"
    RUN_END = "run_end"
    SESSION_END = "session_end"
    HANDLE_CLOSED = "handle_closed"
    COLLECTED = "collected"
    IDLE = "idle"
    CHECKPOINT = "checkpoint"
    LIMIT = "limit"
    EXIT = "exit"
    SIGTERM = "sigterm"
    INTERRUPTED = "interrupted"


class RecordKind(StrEnum):
    """Kinds of records that an agent's process makes."""

    DECISION = "decision"
    OUTCOME = "outcome"
    AMENDMENT = "amendment"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """What a window is, fixed when it opens.

    Attributes:
        record_id: UUIDv7 of the record that it becomes.
        record_kind: `decision`, or `outcome` for a commit on an empty window.
        session: 128 random bits, hex: one run of one agent.
        agent: Name of the agent.
        session_id: The application's session id, where it has one.
        opened_by: `session`, a framework's name, `amfs`, `remote`, or `implicit`.
        inferred: Whether it is an implicit window.
        started_ns: Wall clock of its first event, ns.
        refs: (relation, record id) of earlier records that it refers to.
        claimed_session: Session id in inbound baggage that was not trusted.
    """

    record_id: str
    record_kind: RecordKind
    session: str
    agent: str
    session_id: str | None
    opened_by: str
    inferred: bool
    started_ns: int
    refs: tuple[tuple[str, str], ...] = ()
    claimed_session: str | None = None


@dataclass(slots=True)
class WindowOpened:
    """A window opened."""

    facts: WindowFacts


@dataclass(slots=True)
class WindowClosed:
    """A window closed; nothing more will be placed in it. `span` are the root span's ids, 0 where there is none."""

    record_id: str
    closed_by: ClosedBy
    ended_ns: int
    trace_id: int = 0
    span_id: int = 0
    paused: bool = False


@dataclass(slots=True)
class WindowRenamed:
    """Agent or session id of an open window became known later than its first event."""

    record_id: str
    agent: str
    session_id: str | None


@dataclass(slots=True)
class EventOpened:
    """A step with a duration began."""

    record_id: str
    event: Event


@dataclass(slots=True)
class EventClosed:
    """A step ended, or something without duration happened. `record_id` is where it was placed."""

    record_id: str
    event: Event


@dataclass(slots=True)
class EventsMoved:
    """Provisional events were moved to the window that they belong to."""

    source: str
    target: str
    event_ids: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class WindowDropped:
    """A window lost all its events to another one and never becomes a record."""

    record_id: str


Message = WindowOpened | WindowClosed | WindowRenamed | EventOpened | EventClosed | EventsMoved | WindowDropped


class Sink(Protocol):
    """Where capture puts what it saw. `put` never blocks and never raises."""

    def put(self, message: Message) -> None:
        """Takes a message in the order in which it must be applied."""
        ...
