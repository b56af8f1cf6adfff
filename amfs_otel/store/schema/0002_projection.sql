-- The projection: what the records say, as tables and views. Derived from the ledger by amfs_otel/graph/projection.py,
-- mutable, and rebuilt from it by `amfs-otel rebuild`; nothing here proves anything. No edge crosses logs.
--
-- Texts and names that are withheld by policy or erased are NULL here and listed in the row's `withheld`, as paths such
-- as `value` or `parameters.query`. Erasing a part deletes the rows of its record and derives them again.

-- What was projected -------------------------------------------------------------------------------------------------

-- One row per entry that the projector has dealt with, written in the same transaction as all that follows from it:
-- exactly once. The next entry to project is the greatest sequence_number plus one.
CREATE TABLE amfs_otel.projected (
    log             text NOT NULL,
    sequence_number bigint NOT NULL,
    -- NULL: the entry's record is missing.
    record_id       uuid,
    kind            text,
    -- NULL: projected. Otherwise why the record was passed over; it stays in the ledger and can still be verified.
    skipped         text,
    PRIMARY KEY (log, sequence_number)
);
CREATE INDEX projected_by_id ON amfs_otel.projected (record_id);
CREATE INDEX projected_by_suffix ON amfs_otel.projected (log, reverse(record_id::text) text_pattern_ops);
CREATE INDEX projected_skipped ON amfs_otel.projected (log, sequence_number) WHERE skipped IS NOT NULL;

-- Decisions, their steps and how they ended --------------------------------------------------------------------------

CREATE TABLE amfs_otel.decision (
    log             text NOT NULL,
    record_id       uuid NOT NULL PRIMARY KEY,
    sequence_number bigint NOT NULL,
    -- "C", so that its index serves prefixes.
    trace_id        text COLLATE "C",
    session         text,
    agent_id        text,
    session_id      text,
    opened_by       text,
    closed_by       text,
    status          text,
    inferred        boolean,
    started_at      timestamptz,
    ended_at        timestamptz,
    captured_at     timestamptz NOT NULL,
    duration_ms     double precision,
    events          integer NOT NULL,
    errors          integer NOT NULL,
    reads           integer NOT NULL,
    writes          integer NOT NULL,
    llm_calls       integer NOT NULL,
    tool_calls      integer NOT NULL,
    input_tokens    bigint NOT NULL,
    output_tokens   bigint NOT NULL,
    -- Sum over the calls that could be priced; NULL when none could.
    cost_usd        double precision,
    service         text,
    withheld        text[] NOT NULL
);
CREATE INDEX decision_by_time ON amfs_otel.decision (log, captured_at DESC);
CREATE INDEX decision_by_agent ON amfs_otel.decision (log, agent_id, captured_at DESC);
CREATE INDEX decision_by_trace ON amfs_otel.decision (log, trace_id) WHERE trace_id IS NOT NULL;
CREATE INDEX decision_by_trace_suffix ON amfs_otel.decision (log, reverse(trace_id))
    WHERE trace_id IS NOT NULL;

CREATE TABLE amfs_otel.step (
    log             text NOT NULL,
    record_id       uuid NOT NULL,
    sequence_number bigint NOT NULL,
    number        integer NOT NULL,
    event_id      text,
    kind          text NOT NULL,
    source        text,
    agent_id      text,
    status        text,
    error_type    text,
    started_at    timestamptz,
    ended_at      timestamptz,
    duration_ms   double precision,
    -- entity_path/key of a memory entry, up to 1000 characters.
    entry         text,
    -- Of the entry as it was read or written; after a confidence change, as it became.
    version       bigint,
    confidence    double precision,
    -- Whether `explain` names it among causal_entries.
    causal        boolean NOT NULL,
    tool_name     text,
    model         text,
    provider      text,
    input_tokens  bigint,
    output_tokens bigint,
    cost_usd      double precision,
    cost_source   text,
    -- The item that `explain --json` shows for it; of kinds that explain does not name, the event's own fields.
    detail        jsonb NOT NULL,
    withheld      text[] NOT NULL,
    amended_by    uuid,
    PRIMARY KEY (record_id, number)
);
-- Who read or wrote an entry, newest first (the tree); what was seen of one version (confidence before a change).
CREATE INDEX step_by_entry ON amfs_otel.step (log, entry, version, kind) WHERE entry IS NOT NULL;
CREATE INDEX step_by_kind ON amfs_otel.step (log, kind, started_at DESC);

CREATE TABLE amfs_otel.outcome (
    log                text NOT NULL,
    record_id          uuid NOT NULL,
    number             integer NOT NULL,
    sequence_number    bigint NOT NULL,
    outcome_ref        text,
    outcome_type       text,
    decision_summary   text,
    source             text,
    score              double precision,
    recorded_at        timestamptz,
    confidence_changes jsonb NOT NULL,
    withheld           text[] NOT NULL,
    -- The decision that it judges; NULL while none is known (pending).
    decision_id        uuid,
    -- own: committed in that decision. refs: its record names that decision. ref: the newest decision with its ref.
    attached_by        text CHECK (attached_by IN ('own', 'refs', 'ref')),
    PRIMARY KEY (record_id, number)
);
CREATE INDEX outcome_by_ref ON amfs_otel.outcome (log, outcome_ref) WHERE outcome_ref IS NOT NULL;
CREATE INDEX outcome_by_decision ON amfs_otel.outcome (decision_id) WHERE decision_id IS NOT NULL;
CREATE INDEX outcome_by_time ON amfs_otel.outcome (log, recorded_at DESC);

CREATE TABLE amfs_otel.amendment (
    log             text NOT NULL,
    record_id       uuid NOT NULL PRIMARY KEY,
    sequence_number bigint NOT NULL,
    decision_id     uuid NOT NULL
);
CREATE INDEX amendment_by_decision ON amfs_otel.amendment (decision_id, sequence_number);

-- Which parts an erasure record named, by the erased record.
CREATE TABLE amfs_otel.erased (
    log             text NOT NULL,
    record_id       uuid NOT NULL,
    part            integer NOT NULL,
    erased_by       uuid NOT NULL,
    PRIMARY KEY (record_id, part)
);

-- The knowledge graph ------------------------------------------------------------------------------------------------

CREATE TABLE amfs_otel.node (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    log  text NOT NULL,
    -- entry, agent, outcome, source, tool
    kind text NOT NULL,
    name text NOT NULL,
    UNIQUE (log, name, kind)
);

CREATE TABLE amfs_otel.edge (
    log            text NOT NULL,
    source         bigint NOT NULL,
    relation       text NOT NULL,
    target         bigint NOT NULL,
    confidence     double precision NOT NULL,
    -- Records that show it.
    evidence_count bigint NOT NULL,
    first_seen     timestamptz NOT NULL,
    last_seen      timestamptz NOT NULL,
    PRIMARY KEY (source, relation, target)
) WITH (fillfactor = 85);
CREATE INDEX edge_by_target ON amfs_otel.edge (target, relation, source);

-- Which record is evidence for which edge: what makes projecting idempotent and erasing exact.
CREATE TABLE amfs_otel.edge_evidence (
    log        text NOT NULL,
    -- The record that shows the edge.
    record_id  uuid NOT NULL,
    source     bigint NOT NULL,
    relation   text NOT NULL,
    target     bigint NOT NULL,
    confidence double precision NOT NULL,
    first_seen timestamptz NOT NULL,
    last_seen  timestamptz NOT NULL,
    PRIMARY KEY (record_id, source, relation, target)
);
CREATE INDEX edge_evidence_by_edge ON amfs_otel.edge_evidence (source, relation, target);

-- Sums that lists and `doctor` show without counting: per agent (`agent:<name>`) and for the log (`log`).
CREATE TABLE amfs_otel.counter (
    log     text NOT NULL,
    subject text NOT NULL,
    name    text NOT NULL,
    value   double precision NOT NULL,
    PRIMARY KEY (log, subject, name)
);

-- Views --------------------------------------------------------------------------------------------------------------
-- For people and their tools. Columns are only ever added, at the end. NULL is unknown, or withheld where the row's
-- `withheld` says so.

CREATE VIEW amfs_otel.v_decisions AS
SELECT d.log, d.record_id, d.sequence_number, d.trace_id, d.agent_id, d.session_id, d.status, d.closed_by,
    d.opened_by, d.inferred, d.started_at, d.ended_at, d.duration_ms, d.events, d.errors, d.reads, d.writes,
    d.llm_calls, d.tool_calls, d.input_tokens, d.output_tokens, d.cost_usd, d.service,
    newest.outcome_ref, newest.outcome_type, newest.recorded_at AS outcome_recorded_at,
    coalesce(newest.outcomes, 0) AS outcomes, d.withheld, cardinality(d.withheld) > 0 AS is_withheld
FROM amfs_otel.decision AS d
LEFT JOIN LATERAL (
    SELECT o.outcome_ref, o.outcome_type, o.recorded_at, count(*) OVER () AS outcomes
    FROM amfs_otel.outcome AS o WHERE o.decision_id = d.record_id
    ORDER BY o.recorded_at DESC NULLS LAST, o.record_id DESC, o.number DESC LIMIT 1
) AS newest ON true;
COMMENT ON VIEW amfs_otel.v_decisions IS
    'One row per decision trace. outcome_ref and outcome_type are those of its newest outcome; is_withheld: a name or text of the header row was withheld or erased.';

CREATE VIEW amfs_otel.v_steps AS
SELECT s.log, s.record_id, s.number, s.event_id, s.kind, s.source, s.agent_id, s.status, s.error_type, s.started_at,
    s.ended_at, s.duration_ms, s.entry, s.version, s.confidence, s.causal, s.detail, s.amended_by, s.withheld,
    cardinality(s.withheld) > 0 AS is_withheld
FROM amfs_otel.step AS s;
COMMENT ON VIEW amfs_otel.v_steps IS
    'One row per event of a decision or outcome record, numbered from 1. causal: named by explain as an entry that the decision rests on. detail: the item of explain --json.';

CREATE VIEW amfs_otel.v_llm_calls AS
SELECT s.log, s.record_id, s.number, s.agent_id, s.model, s.provider, s.status, s.started_at,
    s.duration_ms AS latency_ms, s.input_tokens, (s.detail ->> 'cached_tokens')::bigint AS cached_tokens,
    s.output_tokens, (s.detail ->> 'reasoning_tokens')::bigint AS reasoning_tokens, s.cost_usd, s.cost_source,
    (s.detail ->> 'temperature')::double precision AS temperature, s.detail ->> 'finish_reason' AS finish_reason,
    s.error_type, s.detail ->> 'error' AS error, s.withheld, cardinality(s.withheld) > 0 AS is_withheld
FROM amfs_otel.step AS s WHERE s.kind IN ('llm_call', 'embeddings');
COMMENT ON VIEW amfs_otel.v_llm_calls IS
    'One row per model call. input_tokens includes cached_tokens, output_tokens includes reasoning_tokens. cost_source: provider (reported), genai-prices (derived, with table version and hash), unpriced, no_usage.';

CREATE VIEW amfs_otel.v_tool_calls AS
SELECT s.log, s.record_id, s.number, s.agent_id, s.tool_name, s.detail ->> 'call_id' AS call_id, s.status,
    (s.detail ->> 'success')::boolean AS success, s.detail ->> 'observed' AS observed, s.started_at, s.duration_ms,
    s.detail -> 'arguments' AS arguments, s.detail ->> 'result_summary' AS result_summary,
    s.detail ->> 'result_hash' AS result_hash, s.error_type, s.withheld, cardinality(s.withheld) > 0 AS is_withheld
FROM amfs_otel.step AS s WHERE s.kind = 'tool_call';
COMMENT ON VIEW amfs_otel.v_tool_calls IS
    'One row per tool call. observed: call (seen running) or messages (seen in the conversation, so without a duration). result_hash: salted commitment of the result.';

CREATE VIEW amfs_otel.v_outcomes AS
SELECT o.log, o.record_id, o.number, o.sequence_number, o.decision_id, o.attached_by, o.outcome_ref, o.outcome_type,
    o.decision_summary, o.source, o.score, o.recorded_at, o.confidence_changes, o.withheld,
    cardinality(o.withheld) > 0 AS is_withheld
FROM amfs_otel.outcome AS o;
COMMENT ON VIEW amfs_otel.v_outcomes IS
    'One row per outcome. decision_id is NULL while it is pending; attached_by says how it was attached: own commit, refs of its record, or the ref alone.';
