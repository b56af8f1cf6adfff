-- Takes everything away that one record gave to the projection, edges aside; returns its decision row, if it had one.
WITH gone_steps AS (DELETE FROM amfs_otel.step WHERE record_id = %(id)s::uuid),
     gone_outcomes AS (DELETE FROM amfs_otel.outcome WHERE record_id = %(id)s::uuid)
DELETE FROM amfs_otel.decision WHERE record_id = %(id)s::uuid
RETURNING agent_id, events, errors, reads, writes, llm_calls, tool_calls, input_tokens, output_tokens, cost_usd
