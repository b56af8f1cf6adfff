"""Every environment variable that amfs-otel reads, one constant and one docstring each.

`docs/settings.md` is generated from this module. OpenTelemetry's own variables are listed where we act on them.
Only `amfs_otel.settings` reads the environment.
"""

AMFS_OTEL_DISABLED = "AMFS_OTEL_DISABLED"
"""`true` stops everything of ours: no patch, no span, no record. Default: `false`."""

AMFS_OTEL_DSN = "AMFS_OTEL_DSN"
"""libpq connection string of the PostgreSQL server (15 or newer) that holds the log, prepared by `amfs-otel init`.
Default: none; records stay in the local spool and the CLI keeps them in an embedded server."""

AMFS_POSTGRES_DSN = "AMFS_POSTGRES_DSN"
"""AMFS's own variable; used as a fallback for `AMFS_OTEL_DSN`, and only if that database already holds our schema."""

AMFS_OTEL_STATE_DIR = "AMFS_OTEL_STATE_DIR"
"""Directory of spool, keys and status files, made with mode 0700. Default: `$XDG_STATE_HOME/amfs-otel`, else
`~/.local/state/amfs-otel`."""

AMFS_OTEL_LOG = "AMFS_OTEL_LOG"
"""Name of the log (one chain, one per tenant) that records are for. Default: `default`."""

AMFS_OTEL_SIGNING_KEY = "AMFS_OTEL_SIGNING_KEY"
"""The writer key itself: `hex:…`, `base64:…` or text of at least 32 bytes. Prefer a file. Default: none."""

AMFS_OTEL_SIGNING_KEY_FILE = "AMFS_OTEL_SIGNING_KEY_FILE"
"""File that holds the writer key. Default for a server: `keys/writer.key` in the state directory, if it exists."""

AMFS_TRACE_SIGNING_KEY = "AMFS_TRACE_SIGNING_KEY"
"""Alias of `AMFS_OTEL_SIGNING_KEY`."""

AMFS_OTEL_LOG_KEY = "AMFS_OTEL_LOG_KEY"
"""The log key itself (seals records); whoever holds it may append entries. Prefer a file. Default: none."""

AMFS_OTEL_LOG_KEY_FILE = "AMFS_OTEL_LOG_KEY_FILE"
"""File that holds the log key. Default for a server: `keys/log.key` in the state directory, if it exists."""

AMFS_OTEL_LEDGER_CONTENT = "AMFS_OTEL_LEDGER_CONTENT"
"""Which texts the decision trace keeps: `none`, `decision` (summaries, memory values, queries) or `all` (also prompts,
completions, tool arguments and results, exception texts). What is not kept leaves a salted commitment and its size.
Default: `decision`."""

AMFS_OTEL_MASK_PATTERNS = "AMFS_OTEL_MASK_PATTERNS"
"""File with one regular expression per line; each match is masked, besides the built-in key, token and card patterns,
before anything touches the disk. Where the file cannot be read, every text is kept as `[masked]`. Default: none."""

AMFS_OTEL_AGENT_ID = "AMFS_OTEL_AGENT_ID"
"""Name of the agent where neither code, memory handle nor framework gives one. Default: `OTEL_SERVICE_NAME`, else the
program's name."""

AMFS_OTEL_RECEIPTS = "AMFS_OTEL_RECEIPTS"
"""`off` silences the receipt spans `amfs.record` of sealed records. Default: `on` where an OTLP endpoint is set."""

AMFS_OTEL_IDLE_TIMEOUT = "AMFS_OTEL_IDLE_TIMEOUT"
"""Seconds without an event after which a window closes. Default: `1800`; `300` for an inferred window."""

AMFS_OTEL_EXIT_TIMEOUT = "AMFS_OTEL_EXIT_TIMEOUT"
"""Seconds that we may add to the end of the process at most. Default: `2`."""

AMFS_OTEL_SIGTERM = "AMFS_OTEL_SIGTERM"
"""`off` takes away the SIGTERM handler, which flushes for at most one second where the program has no handler of its
own. Default: `on`."""

AMFS_OTEL_BAGGAGE_HOSTS = "AMFS_OTEL_BAGGAGE_HOSTS"
"""Comma-separated hosts to which our session id may travel as baggage. Default: none."""

AMFS_OTEL_TRUST_BAGGAGE = "AMFS_OTEL_TRUST_BAGGAGE"
"""`true` lets an inbound session id in baggage join a window; otherwise it is only recorded as claimed.
Default: `false`."""

AMFS_OTEL_SEMCONV_DUAL = "AMFS_OTEL_SEMCONV_DUAL"
"""`1` also emits the attribute keys and metrics that the profile genai-0.1.0 calls legacy. Default: `0`."""

AMFS_OTEL_ANSWER_EXPLAIN = "AMFS_OTEL_ANSWER_EXPLAIN"
"""`1` lets `AgentMemory.explain(ref)` answer as `amfs_otel.explain(ref)` does where upstream's answer is empty.
Default: `0`."""

AMFS_OTEL_SPOOL_LIMIT = "AMFS_OTEL_SPOOL_LIMIT"
"""Bytes that the spool of one state directory may take. Default: `1073741824` (1 GiB)."""

AMFS_OTEL_POSTGRES_BIN = "AMFS_OTEL_POSTGRES_BIN"
"""Directory with `postgres`, `initdb` and `pg_ctl` for the embedded server. Default: the `[embedded]` extra's wheel,
else the system's."""

AMFS_OTEL_ENDPOINT = "AMFS_OTEL_ENDPOINT"
"""Alias of `OTEL_EXPORTER_OTLP_ENDPOINT`, which wins."""

AMFS_OTEL_SERVICE_NAME = "AMFS_OTEL_SERVICE_NAME"
"""Alias of `OTEL_SERVICE_NAME`, which wins."""

OTEL_SDK_DISABLED = "OTEL_SDK_DISABLED"
"""OpenTelemetry's switch: stops spans, metrics and receipts; decision traces are still recorded."""

OTEL_SERVICE_NAME = "OTEL_SERVICE_NAME"
"""OpenTelemetry's service name; recorded as the origin of each trace."""

OTEL_RESOURCE_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"
"""OpenTelemetry's resource attributes; `service.version` and `deployment.environment.name` are recorded as origin."""

OTEL_TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
"""OpenTelemetry's choice of exporters; `none` silences receipts, too."""

OTEL_EXPORTER_OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's endpoint; receipts go there."""

OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
"""OpenTelemetry's endpoint for traces; wins over the general one."""

OTEL_EXPORTER_OTLP_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
"""OpenTelemetry's protocol: `grpc` (default) or `http/protobuf`."""

OTEL_EXPORTER_OTLP_TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
"""OpenTelemetry's protocol for traces; wins over the general one."""

OTEL_PYTHON_DISABLED_INSTRUMENTATIONS = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
"""OpenTelemetry's list of instrumentations to leave out; ours are `amfs` (all), `amfs_amfs`, `amfs_openai`, …"""

OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's switch for content on spans: `NO_CONTENT` (default), `SPAN_ONLY`, `EVENT_ONLY`, `SPAN_AND_EVENT`. No
log events are made, so `EVENT_ONLY` keeps content off spans, and `SPAN_AND_EVENT` is `SPAN_ONLY`."""

OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT = "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
"""OpenTelemetry's limit on attribute texts; message attributes are shortened inside, so that they stay valid JSON."""
