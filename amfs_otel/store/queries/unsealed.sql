-- Records of a log without an entry, in order of arrival.
SELECT r.header, r.record_hash, r.signature, r.commitments, r.id::text, r.stored_at
FROM ONLY amfs_otel.record AS r
WHERE r.log = %(log)s AND NOT EXISTS (SELECT FROM ONLY amfs_otel.entry AS e WHERE e.record_hash = r.record_hash)
ORDER BY r.arrival
