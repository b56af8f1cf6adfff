-- Outcome records that must be looked at again when a decision is (re)projected or a ref comes to have one: those
-- attached to it, and those pending for one of its refs. In the order of the log.
SELECT o.record_id::text
FROM amfs_otel.outcome AS o
WHERE o.record_id <> %(id)s::uuid
  AND (o.decision_id = %(id)s::uuid
       OR (o.log = %(log)s AND o.decision_id IS NULL AND o.outcome_ref = ANY (%(refs)s)))
GROUP BY o.record_id
ORDER BY min(o.sequence_number)
