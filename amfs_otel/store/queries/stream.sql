-- Entries of a range with their records and parts, in order, to be streamed by COPY. An entry whose record is gone comes
-- with NULLs. Parts come with their entry, the first 64 as far as they are small; each other one has a row of its own
-- behind it (more = true) without what the first row says at length, so that no row grows beyond some MiB and a part.
--
-- Subqueries keep the joins in the order of the entries, whatever the planner thinks of them: nothing is sorted by the
-- server but, at most, the entries of the range.
SELECT CASE WHEN p.more THEN NULL ELSE e.entry END, e.entry_hash, e.entry_mac,
       e.log, e.sequence_number, e.parent_hash, e.record_hash,
       CASE WHEN p.more THEN NULL ELSE r.header END, r.record_hash, r.signature,
       CASE WHEN p.more THEN NULL ELSE r.commitments END, r.log, r.id::text, r.kind, r.session, r.trace,
       p.more, p.length, p.numbers, p.salts, p.bytes
FROM (
    SELECT entry, entry_hash, entry_mac, log, sequence_number, parent_hash, record_hash
    FROM ONLY amfs_otel.entry
    WHERE log = %(log)s AND sequence_number BETWEEN %(first)s AND %(last)s
    ORDER BY sequence_number
) AS e
LEFT JOIN LATERAL (
    SELECT header, record_hash, signature, commitments, log, id, kind, session, trace
    FROM ONLY amfs_otel.record WHERE record_hash = e.record_hash OFFSET 0
) AS r ON true
LEFT JOIN LATERAL (
    SELECT false AS more, sum(octet_length(bytes)) AS length, array_agg(number) AS numbers,
        array_agg(salt) AS salts, array_agg(bytes) AS bytes
    FROM (
        SELECT number, salt, bytes FROM ONLY amfs_otel.part
        WHERE record = r.id AND number <= 64 AND (bytes IS NULL OR octet_length(bytes) <= %(inline_bytes)s)
        ORDER BY number
    ) AS small
    UNION ALL
    SELECT true, octet_length(bytes), ARRAY[number], ARRAY[salt], ARRAY[bytes] FROM ONLY amfs_otel.part
    WHERE record = r.id AND number IS NOT NULL AND (number > 64 OR octet_length(bytes) > %(inline_bytes)s)
) AS p ON %(parts)s
ORDER BY e.sequence_number
