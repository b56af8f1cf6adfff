-- Attaches outcomes of some records, which name no decision, by their ref: to the newest decision before them that was
-- committed with the ref or is named by an outcome record with it; where there is none, to the first that comes to have
-- it. The answer depends on records only, not on when they are projected, so a rebuild attaches alike.
WITH loose AS (
    SELECT o.record_id, o.number, o.outcome_ref, o.sequence_number
    FROM amfs_otel.outcome AS o
    WHERE o.record_id = ANY (%(ids)s::uuid[]) AND o.attached_by IS NULL AND o.outcome_ref IS NOT NULL
), found AS (
    SELECT l.record_id, l.number, chosen.decision_id
    FROM loose AS l
    CROSS JOIN LATERAL (
        (SELECT o.decision_id, 0 AS choice
         FROM amfs_otel.outcome AS o
         JOIN amfs_otel.decision AS d ON d.record_id = o.decision_id
         WHERE o.log = %(log)s AND o.outcome_ref = l.outcome_ref AND o.attached_by IN ('own', 'refs')
           AND o.sequence_number < l.sequence_number
         ORDER BY d.sequence_number DESC LIMIT 1)
        UNION ALL
        (SELECT o.decision_id, 1
         FROM amfs_otel.outcome AS o
         JOIN amfs_otel.decision AS d ON d.record_id = o.decision_id
         WHERE o.log = %(log)s AND o.outcome_ref = l.outcome_ref AND o.attached_by IN ('own', 'refs')
           AND o.sequence_number > l.sequence_number
         ORDER BY o.sequence_number LIMIT 1)
        ORDER BY choice LIMIT 1
    ) AS chosen
)
UPDATE amfs_otel.outcome AS o
SET decision_id = f.decision_id, attached_by = 'ref'
FROM found AS f
WHERE (o.record_id, o.number) = (f.record_id, f.number)
RETURNING o.record_id::text, o.number, o.decision_id::text
