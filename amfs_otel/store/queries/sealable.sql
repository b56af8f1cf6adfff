-- Records of a log that have no entry, in order of arrival, and the snapshot under which they were seen.
--
-- With the snapshot of an earlier complete pass (known = true) only those that became visible since: their transaction
-- began after it, or was in progress then. Everything visible to it was sealed by that pass or before. Rows whose xid
-- comes from another cluster (dump and restore) may escape this; a full pass (known = false) looks at all of them.
-- One row with only the snapshot comes back when there is nothing to seal.
SELECT seen.snapshot::text, found.id::text, found.header, found.record_hash, found.signature
FROM (SELECT pg_current_snapshot() AS snapshot) AS seen
LEFT JOIN LATERAL (
    SELECT r.arrival, r.id, r.header, r.record_hash, r.signature
    FROM ONLY amfs_otel.record AS r
    WHERE r.log = %(log)s
      AND {new_since}
      AND NOT EXISTS (SELECT FROM ONLY amfs_otel.entry AS e WHERE e.record_hash = r.record_hash)
    ORDER BY r.arrival
    LIMIT %(limit)s
) AS found ON true
ORDER BY found.arrival
