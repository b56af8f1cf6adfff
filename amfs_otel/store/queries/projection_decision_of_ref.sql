-- The decision that an outcome record without refs judges: the newest before it that was committed with the ref or is
-- named by an outcome record with it; where there is none, the first that comes to have it. The answer depends on
-- records only, not on when they are projected, so a rebuild attaches alike.
SELECT found.decision_id::text FROM (
    (SELECT o.decision_id, 0 AS choice
     FROM amfs_otel.outcome AS o
     JOIN amfs_otel.decision AS d ON d.record_id = o.decision_id
     WHERE o.log = %(log)s AND o.outcome_ref = %(ref)s AND o.attached_by IN ('own', 'refs')
       AND o.sequence_number < %(sequence_number)s
     ORDER BY d.sequence_number DESC LIMIT 1)
    UNION ALL
    (SELECT o.decision_id, 1
     FROM amfs_otel.outcome AS o
     JOIN amfs_otel.decision AS d ON d.record_id = o.decision_id
     WHERE o.log = %(log)s AND o.outcome_ref = %(ref)s AND o.attached_by IN ('own', 'refs')
       AND o.sequence_number > %(sequence_number)s
     ORDER BY o.sequence_number LIMIT 1)
) AS found ORDER BY found.choice LIMIT 1
