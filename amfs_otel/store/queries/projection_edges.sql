-- Adds evidence that is not there yet, and to each edge what was added.
WITH added AS (
    INSERT INTO amfs_otel.edge_evidence (log, record_id, source, relation, target, confidence, first_seen, last_seen)
    SELECT %(log)s, record_id, source, relation, target, confidence, first_seen, last_seen
    FROM json_to_recordset(%(evidence)s::json) AS given (
        record_id uuid, source bigint, relation text, target bigint, confidence double precision,
        first_seen timestamptz, last_seen timestamptz)
    ORDER BY record_id, source, relation, target
    ON CONFLICT DO NOTHING
    RETURNING source, relation, target, confidence, first_seen, last_seen
)
INSERT INTO amfs_otel.edge AS e (log, source, relation, target, confidence, evidence_count, first_seen, last_seen)
SELECT %(log)s, source, relation, target, max(confidence), count(*), min(first_seen), max(last_seen)
FROM added
GROUP BY source, relation, target
ORDER BY source, relation, target
ON CONFLICT (source, relation, target) DO UPDATE SET
    confidence = greatest(e.confidence, excluded.confidence),
    evidence_count = e.evidence_count + excluded.evidence_count,
    first_seen = least(e.first_seen, excluded.first_seen),
    last_seen = greatest(e.last_seen, excluded.last_seen)
