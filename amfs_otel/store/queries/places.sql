-- Where records stand: with the columns that a writer may read.
SELECT r.id::text, e.sequence_number
FROM amfs_otel.record AS r
LEFT JOIN amfs_otel.entry AS e ON e.record_hash = r.record_hash
WHERE r.id = ANY (%s::uuid[])
