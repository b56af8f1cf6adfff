-- Records with their entries, if they have one, in the order of the given ids.
SELECT r.header, r.record_hash, r.signature, r.commitments, r.id::text, r.stored_at, e.entry, e.entry_hash, e.entry_mac
FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS wanted (id, position)
JOIN ONLY amfs_otel.record AS r ON r.id = wanted.id AND r.log = %(log)s
LEFT JOIN ONLY amfs_otel.entry AS e ON e.record_hash = r.record_hash
ORDER BY wanted.position
