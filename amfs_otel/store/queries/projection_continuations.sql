-- Joins decisions at, and right after, some places in their sessions to the paused decision before each; those that name
-- the record that they continue are left alone. Returns what changed. See amfs_otel/graph/continuation.py for the rule.
WITH touched AS (
    SELECT DISTINCT d.record_id
    FROM unnest(%(threads)s::text[], %(times)s::timestamptz[], %(ids)s::uuid[]) AS p (thread, started_at, record_id)
    CROSS JOIN LATERAL (
        SELECT d.record_id
        FROM amfs_otel.decision AS d
        WHERE d.log = %(log)s AND d.thread = p.thread
          AND (d.started_at, d.record_id) >= (p.started_at, p.record_id)
        ORDER BY d.started_at, d.record_id
        LIMIT 2
    ) AS d
), found AS (
    SELECT d.record_id, paused.record_id AS continues
    FROM touched JOIN amfs_otel.decision AS d USING (record_id)
    LEFT JOIN LATERAL (
        SELECT b.record_id, b.status
        FROM amfs_otel.decision AS b
        WHERE b.log = d.log AND b.thread = d.thread
          AND (b.started_at, b.record_id) < (d.started_at, d.record_id)
        ORDER BY b.started_at DESC, b.record_id DESC
        LIMIT 1
    ) AS paused ON paused.status = 'paused'
    WHERE d.continues_by IS DISTINCT FROM 'refs'
)
UPDATE amfs_otel.decision AS d
SET continues = f.continues, continues_by = CASE WHEN f.continues IS NOT NULL THEN 'session' END
FROM found AS f
WHERE d.record_id = f.record_id AND d.continues IS DISTINCT FROM f.continues
RETURNING d.record_id::text, d.continues::text, d.started_at
