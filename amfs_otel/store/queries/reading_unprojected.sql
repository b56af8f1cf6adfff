-- Records that the projection does not know yet: sealed after its last entry, or not sealed at all. The latter are
-- looked for among the newest records only; with %(newest)s NULL, among all (a scan).
WITH sealed AS (
    SELECT r.id
    FROM ONLY amfs_otel.entry AS e
    JOIN ONLY amfs_otel.record AS r ON r.record_hash = e.record_hash
    WHERE e.log = %(log)s
      AND e.sequence_number > coalesce((SELECT max(sequence_number) FROM amfs_otel.projected WHERE log = %(log)s), -1)
), newest AS (
    SELECT r.id, r.record_hash
    FROM ONLY amfs_otel.record AS r WHERE r.log = %(log)s
    ORDER BY r.xid DESC LIMIT %(newest)s
), wanted AS (
    SELECT id FROM sealed
    UNION
    SELECT n.id FROM newest AS n
    WHERE NOT EXISTS (SELECT FROM ONLY amfs_otel.entry AS e WHERE e.record_hash = n.record_hash)
)
SELECT r.id::text
FROM ONLY amfs_otel.record AS r JOIN wanted USING (id)
WHERE r.kind IN ('decision', 'outcome', 'amendment', 'erasure')
ORDER BY r.arrival
