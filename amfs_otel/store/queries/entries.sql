-- Entries of a range with their records, in order. An entry whose record is gone comes with NULLs.
SELECT e.entry, e.entry_hash, e.entry_mac, e.log, e.sequence_number, e.parent_hash, e.record_hash,
       r.header, r.record_hash, r.signature, r.commitments, r.log, r.id::text, r.kind, r.session, r.trace
FROM ONLY amfs_otel.entry AS e
LEFT JOIN ONLY amfs_otel.record AS r ON r.record_hash = e.record_hash
WHERE e.log = %(log)s AND e.sequence_number BETWEEN %(first)s AND %(last)s
ORDER BY e.sequence_number
