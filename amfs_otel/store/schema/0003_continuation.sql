-- What a trace continues, what flowed into a decision, and indexes for entries that many decisions touch.
--
-- All of it is derived, so the projection is emptied here and the projector fills it again from the ledger.

TRUNCATE amfs_otel.projected, amfs_otel.decision, amfs_otel.step, amfs_otel.outcome, amfs_otel.amendment,
    amfs_otel.erased, amfs_otel.node, amfs_otel.edge, amfs_otel.edge_evidence, amfs_otel.counter;

-- Continuations: amfs_otel/graph/continuation.py has the rule --------------------------------------------------------

ALTER TABLE amfs_otel.decision
    -- The earlier trace that it continues; in the graph an edge `continues` between nodes of kind `trace`, named by
    -- their record ids.
    ADD COLUMN continues uuid,
    -- refs: its record names it. session: the one before it in its session is paused.
    ADD COLUMN continues_by text CHECK (continues_by IN ('refs', 'session')),
    -- What tells sessions apart: a digest of session_id, agent_id and service, for many threads are number 1.
    ADD COLUMN thread text;
CREATE INDEX decision_by_thread ON amfs_otel.decision (log, thread, started_at, record_id);
CREATE INDEX decision_by_session ON amfs_otel.decision (log, session_id, captured_at DESC);
CREATE INDEX decision_by_continued ON amfs_otel.decision (continues) WHERE continues IS NOT NULL;

CREATE OR REPLACE VIEW amfs_otel.v_decisions AS
SELECT d.log, d.record_id, d.sequence_number, d.trace_id, d.agent_id, d.session_id, d.status, d.closed_by,
    d.opened_by, d.inferred, d.started_at, d.ended_at, d.duration_ms, d.events, d.errors, d.reads, d.writes,
    d.llm_calls, d.tool_calls, d.input_tokens, d.output_tokens, d.cost_usd, d.service,
    newest.outcome_ref, newest.outcome_type, newest.recorded_at AS outcome_recorded_at,
    coalesce(newest.outcomes, 0) AS outcomes, d.withheld, cardinality(d.withheld) > 0 AS is_withheld,
    d.continues
FROM amfs_otel.decision AS d
LEFT JOIN LATERAL (
    SELECT o.outcome_ref, o.outcome_type, o.recorded_at, count(*) OVER () AS outcomes
    FROM amfs_otel.outcome AS o WHERE o.decision_id = d.record_id
    ORDER BY o.recorded_at DESC NULLS LAST, o.record_id DESC, o.number DESC LIMIT 1
) AS newest ON true;
COMMENT ON VIEW amfs_otel.v_decisions IS
    'One row per decision trace. outcome_ref and outcome_type are those of its newest outcome; is_withheld: a name or text of the header row was withheld or erased; continues: the earlier trace that it continues.';

-- Entries --------------------------------------------------------------------------------------------------------

-- Who read or wrote an entry, newest first (the tree).
DROP INDEX amfs_otel.step_by_entry;
CREATE INDEX step_by_entry ON amfs_otel.step (log, entry, sequence_number) WHERE entry IS NOT NULL;
-- What was last seen of one version (the confidence before a change).
CREATE INDEX step_by_version ON amfs_otel.step (log, entry, version, sequence_number, number)
    WHERE entry IS NOT NULL AND confidence IS NOT NULL;
-- Who named an entry among the inputs of what it decided.
CREATE INDEX step_by_stated_input ON amfs_otel.step USING gin ((detail -> 'inputs')) WHERE kind = 'statement';

-- Inputs: amfs_otel/graph/inputs.py has the rule ---------------------------------------------------------------------

-- What model calls took in is put together once a decision and not once an input, so that the view costs what the
-- decision holds.
CREATE VIEW amfs_otel.v_inputs AS
SELECT d.log, d.record_id, input.kind, input.name, input.version, input.number, input.event_id, input.used_by
FROM amfs_otel.decision AS d
CROSS JOIN LATERAL (
    WITH given AS (
        SELECT 'entry' AS kind, s.entry AS name, s.version::numeric AS version, s.number, s.event_id
        FROM amfs_otel.step AS s WHERE s.record_id = d.record_id AND s.causal
        UNION ALL
        SELECT 'entry', concat_ws('/', found ->> 'entity_path', found ->> 'key'), (found ->> 'version')::numeric,
            s.number, s.event_id
        FROM amfs_otel.step AS s
        CROSS JOIN LATERAL jsonb_array_elements(s.detail -> 'results') AS found
        WHERE s.record_id = d.record_id AND s.kind = 'memory_query' AND jsonb_typeof(s.detail -> 'results') = 'array'
          AND (found ->> 'key') IS NOT NULL AND s.detail -> 'infrastructure' IS NULL
        UNION ALL
        SELECT 'document', found ->> 'document_id', NULL, s.number, s.event_id
        FROM amfs_otel.step AS s
        CROSS JOIN LATERAL jsonb_array_elements(s.detail -> 'results') AS found
        WHERE s.record_id = d.record_id AND s.kind = 'retrieval' AND jsonb_typeof(s.detail -> 'results') = 'array'
        UNION ALL
        SELECT 'tool_result', s.detail ->> 'call_id', NULL, s.number, s.event_id
        FROM amfs_otel.step AS s WHERE s.record_id = d.record_id AND s.kind = 'tool_call'
    ), taken AS (
        SELECT origin ->> 'event_id' AS event_id, array_agg(m.number ORDER BY m.number) AS used_by
        FROM amfs_otel.step AS m
        CROSS JOIN LATERAL jsonb_array_elements(m.detail -> 'inputs') AS origin
        WHERE m.record_id = d.record_id AND m.kind = 'llm_call'
        GROUP BY origin ->> 'event_id'
    )
    SELECT given.*, coalesce(taken.used_by, '{}') AS used_by
    FROM given LEFT JOIN taken USING (event_id)
    WHERE given.kind <> 'tool_result' OR taken.used_by IS NOT NULL
) AS input;
COMMENT ON VIEW amfs_otel.v_inputs IS
    'One row per input of a decision: entry (name: entity_path/key), document (its id; NULL where it has none), tool_result (name: the model''s id of the call). number and event_id: the step that it comes from. used_by: the model calls that took it in, as far as ids of calls tell. Reads, retrievals and calls of tools in the record itself; explain also follows a trace into those that it continues.';
COMMENT ON COLUMN amfs_otel.node.kind IS 'entry, agent, outcome, source, tool, document or trace';
