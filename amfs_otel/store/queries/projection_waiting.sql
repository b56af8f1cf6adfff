-- Outcome records, other than the given ones, that must be looked at again when decisions are (re)projected or refs come
-- to have one: those attached to these decisions, and those pending for one of these refs. In the order of the log.
SELECT found.record_id::text
FROM (
    SELECT o.record_id, o.sequence_number FROM amfs_otel.outcome AS o WHERE o.decision_id = ANY (%(decisions)s::uuid[])
    UNION ALL
    SELECT o.record_id, o.sequence_number FROM amfs_otel.outcome AS o
    WHERE o.log = %(log)s AND o.outcome_ref = ANY (%(refs)s)
      AND (o.decision_id IS NULL OR (o.attached_by = 'ref' AND EXISTS (
          SELECT FROM amfs_otel.outcome AS n
          WHERE n.record_id = ANY (%(ids)s::uuid[]) AND n.outcome_ref = o.outcome_ref
            AND (n.attached_by = 'refs' OR (n.attached_by = 'own' AND n.sequence_number < o.sequence_number)))))
) AS found
WHERE found.record_id <> ALL (%(ids)s::uuid[])
GROUP BY found.record_id
ORDER BY min(found.sequence_number)
