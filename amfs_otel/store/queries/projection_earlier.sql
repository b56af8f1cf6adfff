-- The confidence in which one version of an entry was last seen before a place in the log, and by which record.
SELECT s.confidence, s.record_id::text
FROM amfs_otel.step AS s
WHERE s.log = %(log)s AND s.entry = %(entry)s AND s.version = %(version)s AND s.confidence IS NOT NULL
  AND s.kind IN ('memory_read', 'memory_write', 'confidence_change')
  AND s.sequence_number < %(sequence_number)s
ORDER BY s.sequence_number DESC, s.number DESC
LIMIT 1
