-- Takes everything away that some records gave to the projection, edges aside; returns their decision rows.
WITH gone_steps AS (DELETE FROM amfs_otel.step WHERE record_id = ANY (%(ids)s::uuid[])),
     gone_outcomes AS (DELETE FROM amfs_otel.outcome WHERE record_id = ANY (%(ids)s::uuid[]))
DELETE FROM amfs_otel.decision WHERE record_id = ANY (%(ids)s::uuid[])
RETURNING record_id::text, thread, started_at,
    agent_id, events, errors, reads, writes, llm_calls, tool_calls, input_tokens, output_tokens, cost_usd
