-- Decisions for `list`, newest first.
SELECT d.record_id::text, d.trace_id, d.agent_id, d.session_id, d.outcome_ref, d.outcome_type, d.started_at, d.ended_at,
    d.events, d.status, d.closed_by, d.sequence_number, d.outcome_recorded_at,
    t.captured_at, (SELECT array_agg(o.outcome_ref) FROM amfs_otel.outcome AS o
                    WHERE o.decision_id = d.record_id AND o.outcome_ref IS NOT NULL),
    d.continues::text
FROM amfs_otel.v_decisions AS d
JOIN amfs_otel.decision AS t USING (record_id)
WHERE d.log = %(log)s
  AND (%(agent)s::text IS NULL OR d.agent_id = %(agent)s)
  AND (%(session)s::text IS NULL OR d.session_id = %(session)s)
  AND (%(outcome)s::text IS NULL OR d.outcome_type = %(outcome)s)
  AND (%(ref)s::text IS NULL OR EXISTS (
      SELECT FROM amfs_otel.outcome AS o WHERE o.decision_id = d.record_id AND o.outcome_ref = %(ref)s))
  AND (%(since)s::timestamptz IS NULL OR t.captured_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR t.captured_at < %(until)s)
  AND (%(ids)s::uuid[] IS NULL OR d.record_id = ANY (%(ids)s::uuid[]))
ORDER BY t.captured_at DESC, d.record_id DESC
LIMIT %(limit)s
