"""Event fields → span names and attributes (GenAI profile genai-0.1.0). Pure tables and functions.

Only structure and names go onto spans here; content attributes are made by `capture.steps` where the policy allows.
"""

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from amfs_otel import semconv
from amfs_otel.libraries import CONVENTIONS
from amfs_otel.model import Kind

_INFERENCE: dict[str, str] = {
    "operation": semconv.GEN_AI_OPERATION_NAME,
    "provider": semconv.GEN_AI_PROVIDER_NAME,
    "model": semconv.GEN_AI_REQUEST_MODEL,
    "temperature": semconv.GEN_AI_REQUEST_TEMPERATURE,
    "top_p": semconv.GEN_AI_REQUEST_TOP_P,
    "top_k": semconv.GEN_AI_REQUEST_TOP_K,
    "max_tokens": semconv.GEN_AI_REQUEST_MAX_TOKENS,
    "seed": semconv.GEN_AI_REQUEST_SEED,
    "frequency_penalty": semconv.GEN_AI_REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": semconv.GEN_AI_REQUEST_PRESENCE_PENALTY,
    "choice_count": semconv.GEN_AI_REQUEST_CHOICE_COUNT,
    "encoding_formats": semconv.GEN_AI_REQUEST_ENCODING_FORMATS,
    "output_type": semconv.GEN_AI_OUTPUT_TYPE,
    "reasoning_level": semconv.GEN_AI_REQUEST_REASONING_LEVEL,
    "previous_response_id": semconv.GEN_AI_REQUEST_PREVIOUS_RESPONSE_ID,
    "conversation_id": semconv.GEN_AI_CONVERSATION_ID,
    "server_address": semconv.SERVER_ADDRESS,
    "server_port": semconv.SERVER_PORT,
    "request_service_tier": semconv.OPENAI_REQUEST_SERVICE_TIER,
    "api_type": semconv.OPENAI_API_TYPE,
    "response_model": semconv.GEN_AI_RESPONSE_MODEL,
    "response_id": semconv.GEN_AI_RESPONSE_ID,
    "finish_reasons": semconv.GEN_AI_RESPONSE_FINISH_REASONS,
    "input_tokens": semconv.GEN_AI_USAGE_INPUT_TOKENS,
    "cached_tokens": semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
    "cache_write_tokens": semconv.GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS,
    "output_tokens": semconv.GEN_AI_USAGE_OUTPUT_TOKENS,
    "reasoning_tokens": semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS,
    "service_tier": semconv.OPENAI_RESPONSE_SERVICE_TIER,
    "system_fingerprint": semconv.OPENAI_RESPONSE_SYSTEM_FINGERPRINT,
    "dimension_count": semconv.GEN_AI_EMBEDDINGS_DIMENSION_COUNT,
    "stream_exit": semconv.AMFS_STREAM_EXIT,
    "chunks": semconv.AMFS_STREAM_CHUNKS,
    "attempts": semconv.AMFS_ATTEMPTS,
}
_TOOL: dict[str, str] = {
    "tool_name": semconv.GEN_AI_TOOL_NAME,
    "call_id": semconv.GEN_AI_TOOL_CALL_ID,
    "tool_type": semconv.GEN_AI_TOOL_TYPE,
}
_MEMORY: dict[str, str] = {
    "operation": semconv.AMFS_OPERATION,
    "namespace": semconv.GEN_AI_MEMORY_STORE_ID,
    "branch": semconv.AMFS_BRANCH,
    "result_count": semconv.GEN_AI_MEMORY_RECORD_COUNT,
    "version": semconv.AMFS_ENTRY_VERSION,
    "confidence": semconv.AMFS_ENTRY_CONFIDENCE,
    "memory_type": semconv.AMFS_ENTRY_MEMORY_TYPE,
    "written_by": semconv.AMFS_ENTRY_WRITTEN_BY,
    "found": semconv.AMFS_ENTRY_FOUND,
    "other_agent_id": semconv.AMFS_OTHER_AGENT,
}
_COMMIT: dict[str, str] = {
    "operation": semconv.AMFS_OPERATION,
    "namespace": semconv.GEN_AI_MEMORY_STORE_ID,
    "branch": semconv.AMFS_BRANCH,
    "entry_count": semconv.GEN_AI_MEMORY_RECORD_COUNT,
}
_OTHERS: dict[str, str] = {
    "label": semconv.AMFS_CONTEXT_LABEL,
    "source_name": semconv.AMFS_CONTEXT_SOURCE,
    "outcome_ref": semconv.AMFS_OUTCOME_REF,
    "outcome_type": semconv.AMFS_OUTCOME_TYPE,
    "score": semconv.AMFS_OUTCOME_SCORE,
    "entity_path": semconv.AMFS_ENTRY_PATH,
    "key": semconv.AMFS_ENTRY_KEY,
    "before": semconv.AMFS_CONFIDENCE_BEFORE,
    "after": semconv.AMFS_CONFIDENCE_AFTER,
    "direction": semconv.AMFS_CONFIDENCE_DIRECTION,
    "confidence": semconv.AMFS_STATEMENT_CONFIDENCE,
}
_RETRIEVAL: dict[str, str] = {
    "data_source_id": semconv.GEN_AI_DATA_SOURCE_ID,
    "top_k": semconv.GEN_AI_RETRIEVAL_TOP_K,
}
TABLES: dict[Kind, dict[str, str]] = {
    Kind.LLM_CALL: _INFERENCE,
    Kind.EMBEDDINGS: _INFERENCE,
    Kind.TOOL_CALL: _TOOL,
    Kind.MEMORY_READ: _MEMORY,
    Kind.MEMORY_QUERY: _MEMORY,
    Kind.MEMORY_WRITE: _MEMORY,
    Kind.COMMIT: _COMMIT,
    Kind.RETRIEVAL: _RETRIEVAL,
}
"""Event field → attribute key, by kind."""

_OWN_TABLES: dict[str, dict[Kind, dict[str, str]]] = {
    source: {kind: {**TABLES.get(kind, _OTHERS), **own.attributes} for kind in Kind}
    for source, own in CONVENTIONS.items()
}
"""The same for libraries with conventions of their own."""

MODEL_CALLS = frozenset({Kind.LLM_CALL, Kind.EMBEDDINGS})
"""Kinds that are calls of a model."""

_LLM_CALL, _CLIENT = Kind.LLM_CALL, SpanKind.CLIENT  # a member is slow to find in its enumeration

_LEAST_INT, _LARGEST_INT = -(1 << 63), (1 << 63) - 1
_LARGEST = 1e300
"""No NaN, no infinity and no int that has no float is at most this."""

FLOATS = frozenset(
    {"temperature", "top_p", "frequency_penalty", "presence_penalty", "confidence", "score", "before", "after"}
)
"""Fields whose attribute is a double: callers write `temperature=0`."""

OPERATIONS: dict[Kind, str] = {
    Kind.TOOL_CALL: semconv.OPERATION_EXECUTE_TOOL,
    Kind.AGENT_RUN: semconv.OPERATION_INVOKE_AGENT,
    Kind.RETRIEVAL: semconv.OPERATION_RETRIEVAL,
    Kind.MEMORY_READ: semconv.OPERATION_SEARCH_MEMORY,
    Kind.MEMORY_QUERY: semconv.OPERATION_SEARCH_MEMORY,
    Kind.MEMORY_WRITE: semconv.OPERATION_UPSERT_MEMORY,
    Kind.COMMIT: semconv.OPERATION_UPSERT_MEMORY,
}

SPAN_EVENTS: dict[Kind, str] = {
    Kind.CONTEXT: semconv.EVENT_CONTEXT,
    Kind.STATEMENT: semconv.EVENT_STATEMENT,
    Kind.OUTCOME: semconv.EVENT_OUTCOME,
    Kind.CONFIDENCE_CHANGE: semconv.EVENT_CONFIDENCE_CHANGE,
}
"""Kinds that are events of the window's root span."""


def span_name(kind: Kind, fields: Mapping[str, Any], source: str) -> str:
    """The span name that the profile asks for, or the conventions of the library `source`."""
    if kind in MODEL_CALLS:
        model = fields.get("model")
        return f"{fields['operation']} {model}" if model else str(fields["operation"])
    own = CONVENTIONS.get(source)
    operation = fields.get(own.operation) if own is not None and own.operation is not None else None
    if kind is Kind.TOOL_CALL:
        operation = operation or semconv.OPERATION_EXECUTE_TOOL
        return str(operation) if fields.get("unlisted") is True else f"{operation} {fields['tool_name']}"
    if kind is Kind.AGENT_RUN:
        name = fields.get("agent_name")
        return f"{semconv.OPERATION_INVOKE_AGENT} {name}" if name else semconv.OPERATION_INVOKE_AGENT
    return str(operation or OPERATIONS[kind])


def span_kind(kind: Kind, fields: Mapping[str, Any]) -> SpanKind:
    """CLIENT for calls of a model or of what is elsewhere (`remote`), SERVER for what is done for a client (`served`).

    INTERNAL for all else that happens here.
    """
    if kind in MODEL_CALLS or fields.get("remote") is True:
        return _CLIENT
    return SpanKind.SERVER if fields.get("served") is True else SpanKind.INTERNAL


def attributes_from_fields(
    kind: Kind, fields: Mapping[str, Any], names: Mapping[str, str], source: str
) -> dict[str, AttributeValue]:
    """Attributes of `fields` that are known and not `None`; a NaN, infinite or oversized number is left out.

    Args:
        kind: What the fields are of.
        fields: The fields.
        names: Each text as spans may show it (`content.SpanNames`).
        source: The library that they were seen in.
    """
    table = _OWN_TABLES.get(source, TABLES).get(kind, _OTHERS)
    found: dict[str, AttributeValue] = {}
    for name, value in fields.items():
        key = table.get(name)
        if key is None or value is None:
            continue
        kind_of_value = type(value)  # pyright: ignore[reportUnknownVariableType]
        if name in FLOATS:
            if (kind_of_value is float or kind_of_value is int) and abs(value) <= _LARGEST:
                found[key] = float(value)
        elif kind_of_value is str:
            found[key] = names[value]
        elif kind_of_value is int:
            if _LEAST_INT <= value <= _LARGEST_INT:
                found[key] = value
        elif kind_of_value is bool:
            found[key] = value
        elif kind_of_value is list or kind_of_value is tuple:
            found[key] = [names[item] if type(item) is str else item for item in value]
    return found


def start_attributes(
    kind: Kind, fields: Mapping[str, Any], names: Mapping[str, str], source: str
) -> dict[str, AttributeValue]:
    """All attributes known when a span starts, those that samplers look at among them."""
    found = attributes_from_fields(kind, fields, names, source)
    if kind in MODEL_CALLS:
        if fields.get("stream"):
            found[semconv.GEN_AI_REQUEST_STREAM] = True
        return found
    own = CONVENTIONS.get(source)
    if kind in OPERATIONS and (own is None or own.operation is None or kind in own.genai_kinds):
        found[semconv.GEN_AI_OPERATION_NAME] = OPERATIONS[kind]
    if kind in (Kind.MEMORY_READ, Kind.MEMORY_WRITE) and fields.get("entity_path"):
        found[semconv.GEN_AI_MEMORY_RECORD_ID] = names[f"{fields['entity_path']}/{fields.get('key')}"]
    if kind is Kind.TOOL_CALL and fields.get("unlisted") is True:
        found.pop(semconv.GEN_AI_TOOL_NAME, None)
    if kind is Kind.AGENT_RUN and fields.get("agent_name"):
        found[semconv.GEN_AI_AGENT_NAME] = fields["agent_name"]
    return found


def end_attributes(
    kind: Kind, result: Mapping[str, Any], names: Mapping[str, str], source: str
) -> dict[str, AttributeValue]:
    """Attributes known when a span ends."""
    found = attributes_from_fields(kind, result, names, source)
    if kind in MODEL_CALLS:
        first_chunk_ms = result.get("time_to_first_chunk_ms")
        if first_chunk_ms is not None:
            found[semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = first_chunk_ms / 1000
        if result.get("input_tokens") is None and result.get("output_tokens") is None and kind is _LLM_CALL:
            found[semconv.AMFS_USAGE_UNKNOWN] = True
    elif kind is Kind.MEMORY_READ:
        found[semconv.GEN_AI_MEMORY_RECORD_COUNT] = 1 if result.get("found") else 0
    elif kind is Kind.MEMORY_WRITE:
        found[semconv.GEN_AI_MEMORY_RECORD_COUNT] = 1
    return found
