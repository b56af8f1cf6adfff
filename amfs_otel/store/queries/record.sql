-- One record with its entry, if it has one.
SELECT r.header, r.record_hash, r.signature, r.commitments, r.id::text, r.stored_at, e.entry, e.entry_hash, e.entry_mac
FROM ONLY amfs_otel.record AS r
LEFT JOIN ONLY amfs_otel.entry AS e ON e.record_hash = r.record_hash
WHERE r.log = %(log)s AND r.id = %(id)s::uuid
