-- Decisions that were committed with a ref or are named by an outcome record with it, newest first.
SELECT d.record_id::text, d.sequence_number
FROM amfs_otel.decision AS d
WHERE d.record_id IN (
    SELECT o.decision_id FROM amfs_otel.outcome AS o
    WHERE o.log = %(log)s AND o.outcome_ref = %(ref)s AND o.attached_by IN ('own', 'refs')
)
ORDER BY d.sequence_number DESC
