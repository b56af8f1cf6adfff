-- The projected decisions right before and right after some places in their sessions, and those that name one of these.
SELECT n.thread, n.started_at, n.record_id::text, n.status,
    CASE WHEN n.continues_by = 'refs' THEN n.continues::text END
FROM unnest(%(threads)s::text[], %(times)s::timestamptz[], %(ids)s::uuid[]) AS p (thread, started_at, record_id)
CROSS JOIN LATERAL (
    (SELECT d.* FROM amfs_otel.decision AS d
     WHERE d.log = %(log)s AND d.thread = p.thread
       AND (d.started_at, d.record_id) < (p.started_at, p.record_id)
     ORDER BY d.started_at DESC, d.record_id DESC LIMIT 1)
    UNION ALL
    (SELECT d.* FROM amfs_otel.decision AS d
     WHERE d.log = %(log)s AND d.thread = p.thread
       AND (d.started_at, d.record_id) > (p.started_at, p.record_id)
     ORDER BY d.started_at, d.record_id LIMIT 1)
    UNION ALL
    SELECT d.* FROM amfs_otel.decision AS d
    WHERE d.log = %(log)s AND d.continues = p.record_id AND d.continues_by = 'refs'
) AS n
