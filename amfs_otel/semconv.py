"""Every telemetry name that this library emits, in one place; what one library's own conventions add stands in its row.

Names under `gen_ai.`, `error.` and `server.` follow the OpenTelemetry GenAI conventions, profile `PROFILE`; whatever is
ours lies under `amfs.`. The package never invents a `gen_ai.*` key. `tests/unit/test_semconv.py` holds each name, unit
and bucket list against the table of facts in `tests/reference/genai_semconv.json`.

Names that the profile calls legacy are in `LEGACY_ATTRIBUTES` and the metrics marked `legacy`; they are emitted, beside
the current ones, only under `AMFS_OTEL_SEMCONV_DUAL=1`.
"""

from dataclasses import dataclass
from typing import Final, Literal

PROFILE: Final = "genai-0.1.0"
"""Release of `open-telemetry/semantic-conventions-genai` that spans and metrics follow."""

SCOPE: Final = "amfs_otel"
"""Name of our tracers' and meters' instrumentation scope."""

# General.

ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
ERROR_TYPE_OTHER: Final = "_OTHER"
"""Value of `error.type` where nothing better is known."""

# gen_ai.*: operation, agent, request, response.

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
"""Only an id that the application or the framework has; ours is `AMFS_SESSION_ID`."""
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_AGENT_ID: Final = "gen_ai.agent.id"
"""Only the id of a hosted agent."""
GEN_AI_AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
GEN_AI_AGENT_VERSION: Final = "gen_ai.agent.version"
GEN_AI_DATA_SOURCE_ID: Final = "gen_ai.data_source.id"
GEN_AI_OUTPUT_TYPE: Final = "gen_ai.output.type"

GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
GEN_AI_REQUEST_TOP_K: Final = "gen_ai.request.top_k"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_SEED: Final = "gen_ai.request.seed"
GEN_AI_REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
GEN_AI_REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
GEN_AI_REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
GEN_AI_REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
GEN_AI_REQUEST_ENCODING_FORMATS: Final = "gen_ai.request.encoding_formats"
GEN_AI_REQUEST_REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
GEN_AI_REQUEST_PREVIOUS_RESPONSE_ID: Final = "gen_ai.request.previous_response.id"

GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_STATUS: Final = "gen_ai.response.status"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
"""Seconds."""
GEN_AI_EMBEDDINGS_DIMENSION_COUNT: Final = "gen_ai.embeddings.dimension.count"

GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""All input tokens, cached ones included."""
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
"""All output tokens, reasoning included."""
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"

OPENAI_API_TYPE: Final = "openai.api.type"
OPENAI_REQUEST_SERVICE_TIER: Final = "openai.request.service_tier"
OPENAI_RESPONSE_SERVICE_TIER: Final = "openai.response.service_tier"
OPENAI_RESPONSE_SYSTEM_FINGERPRINT: Final = "openai.response.system_fingerprint"

# gen_ai.*: tools, retrieval, memory.

GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_RETRIEVAL_TOP_K: Final = "gen_ai.retrieval.top_k"
GEN_AI_MEMORY_STORE_ID: Final = "gen_ai.memory.store.id"
GEN_AI_MEMORY_RECORD_ID: Final = "gen_ai.memory.record.id"
GEN_AI_MEMORY_RECORD_COUNT: Final = "gen_ai.memory.record.count"

# gen_ai.*: content, absent unless the content policy allows it on spans.

GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
GEN_AI_SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
GEN_AI_TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
GEN_AI_TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
GEN_AI_RETRIEVAL_QUERY_TEXT: Final = "gen_ai.retrieval.query.text"
GEN_AI_RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
GEN_AI_MEMORY_QUERY_TEXT: Final = "gen_ai.memory.query.text"
GEN_AI_MEMORY_RECORDS: Final = "gen_ai.memory.records"

CONTENT_ATTRIBUTES: Final = frozenset(
    {
        GEN_AI_INPUT_MESSAGES, GEN_AI_OUTPUT_MESSAGES, GEN_AI_SYSTEM_INSTRUCTIONS, GEN_AI_TOOL_DEFINITIONS,
        GEN_AI_TOOL_DESCRIPTION, GEN_AI_TOOL_CALL_ARGUMENTS, GEN_AI_TOOL_CALL_RESULT, GEN_AI_RETRIEVAL_QUERY_TEXT,
        GEN_AI_RETRIEVAL_DOCUMENTS, GEN_AI_MEMORY_QUERY_TEXT, GEN_AI_MEMORY_RECORDS,
    }
)  # fmt: skip
"""Attributes that hold content: on a span only where the policy says so."""

# gen_ai.*: values.

OPERATION_CHAT: Final = "chat"
OPERATION_GENERATE_CONTENT: Final = "generate_content"
OPERATION_TEXT_COMPLETION: Final = "text_completion"
OPERATION_EMBEDDINGS: Final = "embeddings"
OPERATION_RETRIEVAL: Final = "retrieval"
OPERATION_INVOKE_AGENT: Final = "invoke_agent"
OPERATION_EXECUTE_TOOL: Final = "execute_tool"
OPERATION_SEARCH_MEMORY: Final = "search_memory"
OPERATION_CREATE_MEMORY: Final = "create_memory"
OPERATION_UPDATE_MEMORY: Final = "update_memory"
OPERATION_UPSERT_MEMORY: Final = "upsert_memory"
OPERATION_DELETE_MEMORY: Final = "delete_memory"

INFERENCE_OPERATIONS: Final = frozenset({OPERATION_CHAT, OPERATION_GENERATE_CONTENT, OPERATION_TEXT_COMPLETION})
MEMORY_OPERATIONS: Final = frozenset(
    {
        OPERATION_SEARCH_MEMORY,
        OPERATION_CREATE_MEMORY,
        OPERATION_UPDATE_MEMORY,
        OPERATION_UPSERT_MEMORY,
        OPERATION_DELETE_MEMORY,
    }
)

PROVIDER_OPENAI: Final = "openai"
PROVIDER_AZURE_OPENAI: Final = "azure.ai.openai"
PROVIDER_ANTHROPIC: Final = "anthropic"

INFERENCE_SPAN_CONTEXT_KEY: Final = "opentelemetry.genai.inference_span"
"""Key in the OpenTelemetry context by which GenAI instrumentations tell each other that a model call has its span."""

# amfs.*: on our spans.

AMFS_RECORD_ID: Final = "amfs.record.id"
"""UUIDv7 of the record that the window becomes; on the root span and on the receipt."""
AMFS_SESSION_ID: Final = "amfs.session.id"
"""128 random bits, hex: one run of one agent."""
AMFS_MEMORY_SESSION_ID: Final = "amfs.memory.session.id"
"""AMFS's own session id (`sess-…`): drawn by its SDK, so no conversation id."""
AMFS_EVENT_ID: Final = "amfs.event.id"
"""16 hex digits: the step in the record that this span shows."""
AMFS_EVENT_KIND: Final = "amfs.event.kind"
AMFS_EVENT_SEQ: Final = "amfs.event.seq"
AMFS_LOG: Final = "amfs.log"
AMFS_OPENED_BY: Final = "amfs.opened_by"
AMFS_CLOSED_BY: Final = "amfs.closed_by"
AMFS_STATUS: Final = "amfs.status"
"""`complete`, `incomplete`, `interrupted` or `paused`."""
AMFS_INFERRED: Final = "amfs.inferred"
"""Whether the window was placed by inference."""
AMFS_OPERATION: Final = "amfs.operation"
"""The library's own name of the call (`read_from`), where `gen_ai.operation.name` is coarser."""
AMFS_SOURCE: Final = "amfs.source"
"""The library that the step was seen in."""
AMFS_OBSERVED: Final = "amfs.observed"
"""`call`, or `messages` for a tool call seen only through the conversation."""
AMFS_BRANCH: Final = "amfs.branch"
AMFS_NAMESPACE: Final = "amfs.namespace"

AMFS_ENTRY_PATH: Final = "amfs.entry.entity_path"
AMFS_ENTRY_KEY: Final = "amfs.entry.key"
AMFS_ENTRY_VERSION: Final = "amfs.entry.version"
AMFS_ENTRY_CONFIDENCE: Final = "amfs.entry.confidence"
AMFS_ENTRY_MEMORY_TYPE: Final = "amfs.entry.memory_type"
AMFS_ENTRY_WRITTEN_BY: Final = "amfs.entry.written_by"
AMFS_ENTRY_FOUND: Final = "amfs.entry.found"
AMFS_OTHER_AGENT: Final = "amfs.other_agent"

AMFS_CONTEXT_LABEL: Final = "amfs.context.label"
AMFS_CONTEXT_SOURCE: Final = "amfs.context.source"
AMFS_STATEMENT_CONFIDENCE: Final = "amfs.statement.confidence"
AMFS_OUTCOME_REF: Final = "amfs.outcome.ref"
AMFS_OUTCOME_TYPE: Final = "amfs.outcome.type"
AMFS_OUTCOME_SCORE: Final = "amfs.outcome.score"
AMFS_CONFIDENCE_BEFORE: Final = "amfs.confidence.before"
AMFS_CONFIDENCE_AFTER: Final = "amfs.confidence.after"
AMFS_CONFIDENCE_DIRECTION: Final = "amfs.confidence.direction"

AMFS_STREAM_EXIT: Final = "amfs.stream.exit"
"""`complete`, `closed_early`, `abandoned`, `cancelled`, `error` or `interpreter_exit`."""
AMFS_STREAM_CHUNKS: Final = "amfs.stream.chunks"
AMFS_USAGE_UNKNOWN: Final = "amfs.usage.unknown"
"""`true` where the provider reported no token counts: unknown, not zero."""
AMFS_ATTEMPTS: Final = "amfs.attempts"
AMFS_CONTENT_WITHHELD: Final = "amfs.content.withheld"
"""Names of the content attributes that policy kept off this span."""
AMFS_CONTENT_RULE: Final = "amfs.content.rule"
"""The setting by which they were withheld."""
AMFS_CONTENT_SHORTENED_BYTES: Final = "amfs.content.shortened_bytes"
"""Bytes cut from the texts inside this span's content attributes."""

EVENT_CONTEXT: Final = "amfs.context"
EVENT_STATEMENT: Final = "amfs.statement"
EVENT_OUTCOME: Final = "amfs.outcome"
EVENT_CONFIDENCE_CHANGE: Final = "amfs.confidence_change"

# amfs.*: on receipts.

RECEIPT_SPAN: Final = "amfs.record"
RECEIPT_SERVICE: Final = "amfs-otel"
"""`service.name` of receipts: they come from whoever seals, not from the agent."""

AMFS_RECORD_KIND: Final = "amfs.record.kind"
AMFS_SEQUENCE_NUMBER: Final = "amfs.sequence_number"
AMFS_RECORD_HASH: Final = "amfs.record_hash"
AMFS_CONTENT_HASH: Final = "amfs.content_hash"
AMFS_PARENT_HASH: Final = "amfs.parent_hash"
AMFS_SIGNING_KEY_ID: Final = "amfs.signing_key_id"
AMFS_ORIGIN_SERVICE: Final = "amfs.origin.service"
AMFS_SEALED_AT: Final = "amfs.sealed_at"
AMFS_WINDOW_STARTED_AT: Final = "amfs.window.started_at"
"""RFC 3339, UTC, microseconds."""
AMFS_WINDOW_ENDED_AT: Final = "amfs.window.ended_at"
"""RFC 3339, UTC, microseconds."""
AMFS_COUNT_PREFIX: Final = "amfs.count."
"""Followed by an event kind: how many events of it the record holds."""
AMFS_COUNT_EVENTS: Final = "amfs.count.events"
AMFS_TOKENS_INPUT: Final = "amfs.tokens.input"
AMFS_TOKENS_OUTPUT: Final = "amfs.tokens.output"

# Legacy names.

LEGACY_ATTRIBUTES: Final[dict[str, str]] = {
    GEN_AI_PROVIDER_NAME: "gen_ai.system",
    GEN_AI_USAGE_INPUT_TOKENS: "gen_ai.usage.prompt_tokens",
    GEN_AI_USAGE_OUTPUT_TOKENS: "gen_ai.usage.completion_tokens",
    GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS: "gen_ai.usage.cache_creation.input_tokens",
}
"""Current key → the legacy key that the dual switch emits beside it, with the same value."""

# Metrics.

_DURATION_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_AGENT_DURATION_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
_TOKENS: Final = tuple(float(4**n) for n in range(14))
_CALLS: Final = tuple(float(2**n) for n in range(8))

GEN_AI_TOKEN_MODALITY: Final = "gen_ai.token.modality"  # noqa: S105  a metric attribute, not a secret
GEN_AI_TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105  a metric attribute, not a secret
"""Legacy: only on `LEGACY_TOKEN_USAGE`."""
MODALITY_UNKNOWN: Final = "unknown"
"""Value of `gen_ai.token.modality` where the provider does not split its counts."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument.

    Attributes:
        name: Its name.
        instrument: Its kind.
        unit: UCUM unit.
        description: One line for the backend.
        buckets: Explicit bucket boundaries of a histogram, else empty.
        legacy: Whether only the dual switch emits it.
    """

    name: str
    instrument: Literal["histogram", "counter", "observable_counter", "observable_gauge"]
    unit: str
    description: str
    buckets: tuple[float, ...] = ()
    legacy: bool = False


INFERENCE_DURATION: Final = Metric(
    "gen_ai.client.inference.duration", "histogram", "s", "Duration of model calls", _DURATION_S
)
INFERENCE_TIME_TO_FIRST_CHUNK: Final = Metric(
    "gen_ai.client.inference.time_to_first_chunk", "histogram", "s", "Time to the first streamed chunk", _DURATION_S
)
INFERENCE_TIME_PER_OUTPUT_CHUNK: Final = Metric(
    "gen_ai.client.inference.time_per_output_chunk", "histogram", "s", "Time between streamed chunks", _DURATION_S
)
INFERENCE_INPUT_TOKENS: Final = Metric(
    "gen_ai.client.inference.usage.input_tokens", "counter", "{token}", "Input tokens, cached ones included"
)
INFERENCE_OUTPUT_TOKENS: Final = Metric(
    "gen_ai.client.inference.usage.output_tokens", "counter", "{token}", "Output tokens, reasoning included"
)
INFERENCE_CACHE_READ_TOKENS: Final = Metric(
    "gen_ai.client.inference.usage.cache_read.input_tokens", "counter", "{token}", "Input tokens read from the cache"
)
INFERENCE_CACHE_WRITE_TOKENS: Final = Metric(
    "gen_ai.client.inference.usage.cache_write.input_tokens", "counter", "{token}", "Input tokens written to the cache"
)
INFERENCE_REASONING_TOKENS: Final = Metric(
    "gen_ai.client.inference.usage.reasoning.output_tokens", "counter", "{token}", "Output tokens spent on reasoning"
)
INFERENCE_OPERATION_INPUT_TOKENS: Final = Metric(
    "gen_ai.client.inference.operation.input_tokens", "histogram", "{token}", "Input tokens per model call", _TOKENS
)
INFERENCE_OPERATION_OUTPUT_TOKENS: Final = Metric(
    "gen_ai.client.inference.operation.output_tokens", "histogram", "{token}", "Output tokens per model call", _TOKENS
)
EMBEDDINGS_DURATION: Final = Metric(
    "gen_ai.client.embeddings.duration", "histogram", "s", "Duration of embedding calls", _DURATION_S
)
EMBEDDINGS_OPERATION_INPUT_TOKENS: Final = Metric(
    "gen_ai.client.embeddings.operation.input_tokens", "histogram", "{token}", "Input tokens per embedding", _TOKENS
)
RETRIEVAL_DURATION: Final = Metric("gen_ai.retrieval.duration", "histogram", "s", "Duration of retrievals", _DURATION_S)
OPERATION_DURATION: Final = Metric(
    "gen_ai.client.operation.duration", "histogram", "s", "Duration of operations without another metric", _DURATION_S
)
INVOKE_AGENT_DURATION: Final = Metric(
    "gen_ai.invoke_agent.duration", "histogram", "s", "Duration of agent runs", _AGENT_DURATION_S
)
INVOKE_AGENT_INFERENCE_CALLS: Final = Metric(
    "gen_ai.invoke_agent.inference_calls", "histogram", "{inference_call}", "Model calls per agent run", _CALLS
)
INVOKE_AGENT_TOOL_CALLS: Final = Metric(
    "gen_ai.invoke_agent.tool_calls", "histogram", "{tool_call}", "Tool calls per agent run", _CALLS
)
EXECUTE_TOOL_DURATION: Final = Metric(
    "gen_ai.execute_tool.duration", "histogram", "s", "Duration of tool calls", _DURATION_S
)
LEGACY_TOKEN_USAGE: Final = Metric(
    "gen_ai.client.token.usage", "histogram", "{token}", "Tokens per model call", _TOKENS, legacy=True
)
LEGACY_TIME_TO_FIRST_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_to_first_chunk", "histogram", "s", "Time to the first chunk", _DURATION_S, legacy=True
)
LEGACY_TIME_PER_OUTPUT_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_per_output_chunk", "histogram", "s", "Time between chunks", _DURATION_S, legacy=True
)

AMFS_DROP_CAUSE: Final = "amfs.drop.cause"
AMFS_PATCH: Final = "amfs.patch"

EVENTS_DROPPED: Final = Metric(
    "amfs.events.dropped", "observable_counter", "{event}", "Events that no record will hold, by cause"
)
SPOOL_SIZE: Final = Metric("amfs.spool.size", "observable_gauge", "By", "Bytes in the local spool")
SPOOL_OLDEST_AGE: Final = Metric("amfs.spool.oldest_age", "observable_gauge", "s", "Age of the oldest spooled record")
DRAIN_LAG: Final = Metric("amfs.drain.lag", "observable_gauge", "s", "Age of the oldest record not in the store yet")
SEAL_LAG: Final = Metric("amfs.seal.lag", "observable_gauge", "s", "Age of the oldest stored record without an entry")
RECORDS_SIGNED: Final = Metric("amfs.records.signed", "observable_counter", "{record}", "Records signed, by kind")
PATCHES_DISABLED: Final = Metric(
    "amfs.patches.disabled", "observable_gauge", "{patch}", "Patches that switched themselves off"
)
INTERNAL_ERRORS: Final = Metric(
    "amfs.internal_errors", "observable_counter", "{error}", "Internal errors that the agent did not see, by patch"
)
DEVELOPMENT_KEY: Final = Metric(
    "amfs.development_key", "observable_gauge", "{key}", "1 while records are signed with a development key"
)

GEN_AI_METRICS: Final = (
    INFERENCE_DURATION, INFERENCE_TIME_TO_FIRST_CHUNK, INFERENCE_TIME_PER_OUTPUT_CHUNK, INFERENCE_INPUT_TOKENS,
    INFERENCE_OUTPUT_TOKENS, INFERENCE_CACHE_READ_TOKENS, INFERENCE_CACHE_WRITE_TOKENS, INFERENCE_REASONING_TOKENS,
    INFERENCE_OPERATION_INPUT_TOKENS, INFERENCE_OPERATION_OUTPUT_TOKENS, EMBEDDINGS_DURATION,
    EMBEDDINGS_OPERATION_INPUT_TOKENS, RETRIEVAL_DURATION, OPERATION_DURATION, INVOKE_AGENT_DURATION,
    INVOKE_AGENT_INFERENCE_CALLS, INVOKE_AGENT_TOOL_CALLS, EXECUTE_TOOL_DURATION, LEGACY_TOKEN_USAGE,
    LEGACY_TIME_TO_FIRST_CHUNK, LEGACY_TIME_PER_OUTPUT_CHUNK,
)  # fmt: skip
"""What the agent's work is measured by, unless `libraries` says otherwise."""

HEALTH_METRICS: Final = (
    EVENTS_DROPPED, SPOOL_SIZE, SPOOL_OLDEST_AGE, DRAIN_LAG, SEAL_LAG, RECORDS_SIGNED, PATCHES_DISABLED,
    INTERNAL_ERRORS, DEVELOPMENT_KEY,
)  # fmt: skip
"""What our own health is measured by."""
