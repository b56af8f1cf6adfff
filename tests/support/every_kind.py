"""One event of every kind with every field that the trace document names for it."""

from dataclasses import dataclass
from typing import Any

from amfs_otel import capture
from amfs_otel.model import Kind

_MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "message-canary"}]}]
_ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "message-canary"}], "finish_reason": "stop"}]
_TOOLS = [{"type": "function", "name": "look", "description": "message-canary"}]
_INSTRUCTIONS = [{"type": "text", "content": "message-canary"}]
_USAGE = {"input_tokens": 9, "cached_tokens": 4, "cache_write_tokens": 1, "output_tokens": 7, "reasoning_tokens": 3}


@dataclass(frozen=True)
class Example:
    """An event as a patch reports it; `result` is None for what has no duration."""

    kind: Kind
    source: str
    fields: dict[str, Any]
    result: dict[str, Any] | None = None

    def report(self, error: BaseException | None = None) -> None:
        """Reports it to the installed capture."""
        if self.result is None:
            capture.instant(self.kind, self.source, dict(self.fields))
            return
        step = capture.begin(self.kind, self.source, dict(self.fields))
        assert step is not None
        if error is None:
            step.end(dict(self.result))
        else:
            step.fail(error, dict(self.result))


def _entry(**more: Any) -> dict[str, Any]:
    return {"entity_path": "name-canary/e", "key": "k", "branch": "main", "namespace": "ns", **more}


EVERY_KIND: tuple[Example, ...] = (
    Example(
        Kind.LLM_CALL,
        "openai",
        {
            "operation": "chat", "provider": "openai", "model": "gpt-9", "stream": True, "temperature": 0, "top_p": 1.0,
            "max_tokens": 10, "seed": 1, "frequency_penalty": 0.5, "presence_penalty": 0, "choice_count": 2,
            "server_address": "api.example", "server_port": 8443, "request_service_tier": "auto",
            "conversation_id": "conversation-of-the-application", "input_messages": _MESSAGES,
            "system_instructions": _INSTRUCTIONS, "tool_definitions": _TOOLS,
            "request_metadata": {"who": "message-canary"}, "stop_sequences": ["message-canary"],
        },
        {
            "response_model": "gpt-9-x", "response_id": "resp-1", "finish_reasons": ["stop"], **_USAGE,
            "service_tier": "default", "system_fingerprint": "fp", "time_to_first_chunk_ms": 12.5, "chunks": 3,
            "stream_exit": "complete", "output_messages": _ANSWER,
            "requested_tools": [{"call_id": "call-1", "tool_name": "name-canary"}],
        },
    ),
    Example(
        Kind.EMBEDDINGS,
        "openai",
        {
            "operation": "embeddings", "provider": "openai", "model": "emb", "encoding_formats": ["float"],
            "server_address": "api.example", "server_port": 443, "dimension_count": 8, "input_text": "message-canary",
        },
        {"response_model": "emb", "input_tokens": 5},
    ),
    Example(
        Kind.TOOL_CALL,
        "amfs_otel",
        {
            "tool_name": "look", "tool_type": "function", "call_id": "call-2", "observed": "call",
            "arguments": {"a": "message-canary"},
        },
        {"success": True, "result": "message-canary"},
    ),
    Example(
        Kind.RETRIEVAL,
        "other",
        {"data_source_id": "ds", "query": "decision-canary"},
        {"documents": [{"id": "d", "score": 0.5}]},
    ),
    Example(
        Kind.MEMORY_READ,
        "amfs",
        _entry(operation="read", other_agent_id="name-canary"),
        {
            "found": True, "value": {"text": "decision-canary"}, "version": 3, "confidence": 0.92,
            "memory_type": "fact", "written_by": "name-canary",
        },
    ),
    Example(
        Kind.MEMORY_QUERY,
        "amfs",
        {
            "operation": "search", "namespace": "ns", "branch": "main",
            "parameters": {"query": "decision-canary", "limit": 5, "agent_id": "name-canary"},
        },
        {"result_count": 1, "results": [{"entity_path": "e", "key": "k", "version": 1, "score": 0.7}]},
    ),
    Example(
        Kind.MEMORY_WRITE,
        "amfs",
        _entry(operation="write", value="decision-canary", pattern_refs=["name-canary"]),
        {"version": 2, "previous_version": 1, "previous_value": "decision-canary", "confidence": 0.9, "created": False},
    ),
    Example(
        Kind.COMMIT,
        "amfs",
        {"operation": "commit", "namespace": "ns", "branch": "main", "summary": "decision-canary"},
        {"entry_count": 2, "commit_id": "c-1", "commit_parents": ["c-0"]},
    ),
    Example(Kind.AGENT_RUN, "framework", {"agent_name": "planner"}, {}),
    Example(
        Kind.CONTEXT, "amfs_otel", {"label": "l", "summary": "decision-canary", "source_name": "s", "automatic": False}
    ),
    Example(
        Kind.STATEMENT,
        "amfs_otel",
        {"summary": "decision-canary", "alternatives": ["decision-canary"], "inputs": ["name-canary"], "confidence": 1},
    ),
    Example(
        Kind.AGENT_INTERACTION,
        "amfs",
        {
            "direction": "read_from", "this_agent_id": "a", "other_agent_id": "name-canary", "entity_path": "e",
            "key": "k", "version": 1,
        },
    ),
    Example(Kind.ATTEMPT, "amfs", {"attempt_number": 1, "success": False, "lesson": "decision-canary"}),
    Example(
        Kind.OUTCOME,
        "amfs",
        {
            "outcome_ref": "DEP-1", "outcome_type": "success", "score": 1, "decision_summary": "decision-canary",
            "causal_keys": [{"entity_path": "e", "key": "k", "version": 3}],
        },
    ),
    Example(
        Kind.CONFIDENCE_CHANGE,
        "amfs",
        {"entity_path": "e", "key": "k", "before": 0.5, "after": 0.75, "direction": "raised"},
    ),
    Example(Kind.APPROVAL, "other", {"action_key": "a", "verified_by": "name-canary"}),
    Example(Kind.ERROR, "amfs", {"operation": "read", "error_message": "message-canary"}),
    Example(Kind.CHECKPOINT, "amfs", {"operation": "checkpoint", "label": "l"}),
    Example(Kind.WINDOW_DISCARDED, "amfs", {"discarded": 3}),
)  # fmt: skip
