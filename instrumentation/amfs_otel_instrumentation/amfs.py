"""AMFS: the public calls of `AgentMemory` become events of their read tracker's session.

Read: amfs 0.5.27 with amfs-core 0.3.37 (the oldest supported) and amfs 0.5.42 with amfs-core 0.3.55, with the
filesystem, HTTP and Postgres adapters. The SDK has no async variant.

- The outermost public call is the event. What it calls itself is not, except the lesson that `commit_outcome` writes.
- A session belongs to the *state* of a tracker: handles made by `as_agent` share attributes and session id but not the
  tracker, and inside `read_tracker_scope` handles share one: their events are one chain, each under its own agent. The
  state cannot be hashed and its `id` is used again, so sessions are found by id and checked by identity; a state that
  goes away closes its window.
- Attributes of a session stand on the first event after they were set, so that a trace without an outcome has them.
- Values come from arguments and return values. The tracker is asked only which keys an outcome will be credited to: it
  also knows entries that the call refused to show.
- Reads have no effect on the record: `history`, `diff`, `timeline`, `graph_neighbors`, `list_traces`, … are no events.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from amfs_otel import capture, guard
from amfs_otel.capture import ClosedBy, Kind, Step
from amfs_otel_instrumentation._amfs_fields import (
    Seen,
    action_from_arguments,
    arguments_from_call,
    attempt_from_record,
    causal_keys_from_call,
    changes_from_entries,
    context_from_arguments,
    dicts_from_list,
    interaction_from_read,
    model_call_from_record,
    outcome_from_arguments,
    query_from_arguments,
    query_result_from_return,
    read_from_arguments,
    read_from_entry,
    reads_from_return,
    room_act_from_arguments,
    start_ns_from_duration,
    transaction_from_commit,
    write_from_arguments,
    write_from_entry,
    writes_from_transaction,
)

requires = "amfs >= 0.5.27, < 1"

SOURCE = "amfs"
BACKGROUND = "amfs-sdk-bg"
"""Name of the SDK's own thread: what it does follows from acts that were seen."""

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]

_operation: ContextVar[str | None] = ContextVar("amfs_otel_amfs_operation", default=None)
"""The public call that runs in this context."""


@dataclass(slots=True)
class _Tracked:
    """What we know of one state of a read tracker.

    Attributes:
        state: Found by its `id`, known by its identity.
        seen: The newest read of each entry since the commit.
        told: The last closed window when attributes of the session were reported, and these attributes.
    """

    state: "weakref.ref[Any]"
    session: capture.Session
    seen: dict[str, Seen] = field(default_factory=dict[str, Seen])
    told: Any = None


@dataclass(slots=True)
class _Call:
    """One public call that is an event."""

    operation: str
    memory: Any
    arguments: dict[str, Any]
    tracked: _Tracked
    reads_before: int
    start_ns: int
    step: Step | None = None


_trackers: dict[tuple[int, capture.Capture], _Tracked] = {}
_transactions: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()
"""Open transactions → the handle that they write for."""


def _tracked(memory: Any) -> _Tracked:
    owner = capture.current()
    assert owner is not None
    state = memory._read_tracker._state  # noqa: SLF001  the only identity of a session that the SDK has
    key = (id(state), owner)
    found = _trackers.get(key)
    if found is not None and found.state() is state:
        return found
    agent = capture.name(memory.agent_id) or owner.settings.default_agent
    session = capture.handle_session(SOURCE, agent, capture.name(memory.session_id))
    made = _Tracked(weakref.ref(state, partial(_collected, key)), session)
    if found is None:
        # Threads that use a new handle at once agree on one session.
        return _trackers.setdefault(key, made)
    _trackers[key] = made
    return made


def _collected(key: tuple[int, capture.Capture], _state: Any) -> None:
    """A state went away, in whatever thread and at whatever line the garbage collector runs."""
    gone = _trackers.pop(key, None)
    if gone is not None:
        capture.close_later(gone.session, ClosedBy.COLLECTED)


def _no_event() -> bool:
    return (
        _operation.get() is not None
        or capture.active() is None
        or threading.current_thread().name.startswith(BACKGROUND)
    )


@contextmanager
def _outermost(operation: str) -> Generator[None]:
    token = _operation.set(operation)
    try:
        yield
    finally:
        _operation.reset(token)


def _call(operation: str, memory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    tracked = _tracked(memory)
    reads = getattr(tracked.state(), "read_counter", 0)
    return _Call(operation, memory, arguments_from_call(operation, args, kwargs), tracked, reads, time.time_ns())


def _own(call: _Call, fields: dict[str, Any]) -> dict[str, Any]:
    """`fields`, and what the handle adds: its agent where the tracker's session has another one, new attributes."""
    tracked, agent, attributes = call.tracked, capture.name(call.memory.agent_id), call.memory.session_attributes
    if agent and agent != tracked.session.agent:
        fields["agent"] = agent
    if attributes and tracked.told != (tracked.session.last, attributes):
        tracked.told = (tracked.session.last, attributes)
        fields["attributes"] = attributes
    return fields


def _instant(call: _Call, kind: Kind, fields: dict[str, Any], **more: Any) -> None:
    capture.instant(kind, SOURCE, _own(call, fields), memory=call.tracked.session, **more)


def _step(
    kind: Kind,
    operation: str,
    fields_from_call: Callable[[Any, str, dict[str, Any]], dict[str, Any]],
    done: Callable[[_Call, Step, Any], None],
) -> Wrapper:
    def begun(memory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        call = _call(operation, memory, args, kwargs)
        fields = fields_from_call(memory, operation, call.arguments)
        if _operation.get() is not None:
            fields["synthetic"] = True
        call.step = capture.begin(kind, SOURCE, _own(call, fields), memory=call.tracked.session)
        return call

    def wrapper(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        lesson = operation == "write" and _operation.get() == "commit_outcome" and capture.active() is not None
        if not lesson and _no_event():
            return wrapped(*args, **kwargs)
        call = guard.run(SOURCE, begun, instance, args, kwargs)
        with _outermost(operation):
            if call is None:
                return wrapped(*args, **kwargs)
            return capture.call(call.step, wrapped, args, kwargs, partial(done, call))

    return wrapper


def _read_done(call: _Call, step: Step, entry: Any) -> None:
    result = read_from_entry(entry)
    step.end(result)
    if entry is not None:
        _remember(call, step, entry.entry_key, result)
        if call.operation == "read_from":
            met = interaction_from_read(call.memory, entry, call.arguments)
            _instant(call, Kind.AGENT_INTERACTION, met, inside=step)


def _remember(call: _Call, step: Step, entry_key: str, read: dict[str, Any]) -> None:
    record_id = step.placed.window.record_id
    call.tracked.seen[entry_key] = Seen(read["version"], read["confidence"], read["value"], record_id)


def _query_done(call: _Call, step: Step, result: Any) -> None:
    step.end(query_result_from_return(result))
    state = call.tracked.state()
    order: dict[str, int] = getattr(state, "read_seq", {})
    booked = frozenset(key for key, seq in list(order.items()) if seq > call.reads_before)
    for entry_key, read in reads_from_return(call.operation, result, booked) if booked else ():
        path, _, key = entry_key.rpartition("/")
        fields = read_from_arguments(call.memory, call.operation, {**call.arguments, "entity_path": path, "key": key})
        _instant(call, Kind.MEMORY_READ, {**fields, **read}, inside=step)
        _remember(call, step, entry_key, read)


def _write_done(call: _Call, step: Step, entry: Any) -> None:
    seen = call.tracked.seen.get(entry.entry_key)
    in_window = seen if seen is not None and seen.record_id == step.placed.window.record_id else None
    step.end(write_from_entry(entry, call.arguments, in_window))


def _transaction_exit(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # A transaction that an exception left writes nothing.
    left = bool(args) and args[0] is not None
    memory = None if left or _no_event() else guard.run(SOURCE, _transactions.get, instance)
    if memory is None or not instance.pending_count:
        return wrapped(*args, **kwargs)

    def done(call: _Call, step: Step, _result: Any) -> None:
        if instance.commit is None:
            step.end()
            return
        step.end(transaction_from_commit(instance.commit))
        for written in writes_from_transaction(memory, instance.entries):
            _instant(call, Kind.MEMORY_WRITE, written, inside=step)

    def fields(memory: Any, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**write_from_arguments(memory, operation, arguments), "entry_count": instance.pending_count}

    return _step(Kind.COMMIT, "transaction", fields, done)(wrapped, memory, args, kwargs)


def _note(operation: str, noted: Callable[[_Call, Any], None]) -> Wrapper:
    def wrapper(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _no_event():
            return wrapped(*args, **kwargs)
        call = guard.run(SOURCE, _call, operation, instance, args, kwargs)
        try:
            with _outermost(operation):
                result = wrapped(*args, **kwargs)
        except BaseException as error:
            if call is not None:
                failed = {"operation": operation}
                guard.run(SOURCE, _instant, call, Kind.ERROR, failed, error=error, start_ns=call.start_ns)
            raise
        if call is not None:
            guard.run(SOURCE, noted, call, result)
        return result

    return wrapper


def _context_noted(call: _Call, _result: Any) -> None:
    _instant(call, Kind.CONTEXT, context_from_arguments(call.arguments))


def _attempt_noted(call: _Call, record: Any) -> None:
    _instant(call, Kind.ATTEMPT, attempt_from_record(record, call.tracked.seen))


def _action_noted(call: _Call, _result: Any) -> None:
    _action(call, call.arguments)


def _action(call: _Call, arguments: dict[str, Any]) -> None:
    start_ns = start_ns_from_duration(arguments.get("duration_ms"))
    _instant(call, Kind.TOOL_CALL, action_from_arguments(arguments), start_ns=start_ns)


def _model_call_noted(call: _Call, record: Any) -> None:
    start_ns = start_ns_from_duration(record.get("latency_ms"))
    _instant(call, Kind.LLM_CALL, model_call_from_record(record), start_ns=start_ns)


def _room_noted(call: _Call, _result: Any) -> None:
    _instant(call, Kind.AGENT_INTERACTION, room_act_from_arguments(call.memory, call.operation, call.arguments))


def _transaction_noted(call: _Call, transaction: Any) -> None:
    _transactions[transaction] = call.memory


def _clear_read_log(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def noted(call: _Call, _result: Any) -> None:
        call.tracked.seen.clear()
        if discarded and capture.has_window(call.tracked.session):
            _instant(call, Kind.WINDOW_DISCARDED, {"discarded": discarded})

    discarded = guard.run(SOURCE, lambda: instance._read_tracker.read_count)  # noqa: SLF001  0 once it is cleared
    return _note("clear_read_log", noted)(wrapped, instance, args, kwargs)


def _commit_outcome(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def before() -> dict[str, Any]:
        # The commit empties the tracker and the handle's attributes.
        arguments = arguments_from_call("commit_outcome", args, kwargs)
        tracked = _tracked(instance)
        keys = causal_keys_from_call(arguments, instance._read_tracker.terminal_causal_keys, tracked.seen)  # noqa: SLF001
        agent = capture.name(instance.agent_id) or tracked.session.agent
        return {**outcome_from_arguments(arguments, instance.session_attributes), "causal_keys": keys, "agent": agent}

    def noted(call: _Call, entries: Any) -> None:
        session, seen = call.tracked.session, call.tracked.seen
        # One by one: whatever fails, the window closes as the tracker's has.
        for action in guard.run(SOURCE, dicts_from_list, call.arguments.get("tool_calls")) or ():
            guard.run(SOURCE, _action, call, action)
        for record in guard.run(SOURCE, dicts_from_list, call.arguments.get("llm_calls")) or ():
            guard.run(SOURCE, _model_call_noted, call, record)
        changes = guard.run(SOURCE, changes_from_entries, entries, seen) or []
        capture.commit(SOURCE, outcome or {}, changes, memory=session, start_ns=call.start_ns)
        seen.clear()

    outcome = None if _no_event() else guard.run(SOURCE, before)
    return _note("commit_outcome", noted)(wrapped, instance, args, kwargs)


def _close(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def closed() -> None:
        capture.close_session(_tracked(instance).session, ClosedBy.HANDLE_CLOSED)

    try:
        return _failures_of_close(wrapped, instance, args, kwargs)
    finally:
        if capture.current() is not None:
            guard.run(SOURCE, closed)


_failures_of_close = _note("close", lambda _call, _result: None)


def _explain(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    answer = wrapped(*args, **kwargs)
    better = guard.run(SOURCE, _better_answer, args, kwargs, answer) if capture.active() is not None else None
    return answer if better is None else better


def _better_answer(args: tuple[Any, ...], kwargs: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any] | None:
    """Ours, where upstream has nothing to say about a ref (it forgets all at the commit) and settings let us answer."""
    outcome_ref = arguments_from_call("explain", args, kwargs).get("outcome_ref")
    if type(outcome_ref) is not str or answer["causal_entries"] or answer["external_contexts"]:
        return None
    better = capture.explained(outcome_ref)
    if better is None:
        guard.once(
            "amfs:explain",
            logging.WARNING,
            "amfs-otel: AgentMemory.explain forgets an outcome when it is committed; amfs_otel.explain(ref) knows it"
            " (AMFS_OTEL_ANSWER_EXPLAIN=1 lets it answer for AgentMemory)",
        )
    return better


_reads = {
    name: _step(Kind.MEMORY_READ, name, read_from_arguments, _read_done) for name in ("read", "recall", "read_from")
}
_queries = {
    name: _step(Kind.MEMORY_QUERY, name, query_from_arguments, _query_done)
    for name in (
        "search", "semantic_search", "retrieve", "my_entries", "list", "info", "tree", "list_scopes",
        "cross_agent_reads", "agents_i_read_from", "briefing",
    )
}  # fmt: skip
_rooms = {
    name: _note(name, _room_noted)
    for name in (
        "room_join", "room_leave", "room_discuss", "negotiate_create", "negotiate_propose", "negotiate_respond",
    )
}  # fmt: skip
_methods: dict[str, Wrapper] = {
    **_reads,
    **_queries,
    **_rooms,
    "write": _step(Kind.MEMORY_WRITE, "write", write_from_arguments, _write_done),
    "transaction": _note("transaction", _transaction_noted),
    "commit_outcome": _commit_outcome,
    "record_attempt": _note("record_attempt", _attempt_noted),
    "record_context": _note("record_context", _context_noted),
    "record_action": _note("record_action", _action_noted),
    "record_llm_call": _note("record_llm_call", _model_call_noted),
    "clear_read_log": _clear_read_log,
    "close": _close,
    "explain": _explain,
}

hooks: dict[str, Wrapper] = {
    **{f"amfs.memory:AgentMemory.{name}": wrapper for name, wrapper in _methods.items()},
    "amfs.memory:TransactionContext.__exit__": _transaction_exit,
}
