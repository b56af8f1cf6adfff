-- For each place in the log: the confidence in which one version of an entry was last seen before it, and where.
SELECT given.entry, given.version, given.sequence_number, seen.confidence, seen.record_id::text,
    seen.sequence_number, seen.number
FROM unnest(%(entries)s::text[], %(versions)s::bigint[], %(places)s::bigint[]) AS given (entry, version, sequence_number)
CROSS JOIN LATERAL (
    SELECT s.confidence, s.record_id, s.sequence_number, s.number
    FROM amfs_otel.step AS s
    WHERE s.log = %(log)s AND s.entry = given.entry AND s.version = given.version AND s.confidence IS NOT NULL
      AND s.kind IN ('memory_read', 'memory_write', 'confidence_change')
      AND s.sequence_number < given.sequence_number
    ORDER BY s.sequence_number DESC, s.number DESC
    LIMIT 1
) AS seen
