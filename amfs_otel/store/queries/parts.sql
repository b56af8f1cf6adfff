-- Parts of records, in the order of the given ids. Large bytes are fetched one by one afterwards.
SELECT p.record::text, p.number, p.salt,
       CASE WHEN octet_length(p.bytes) <= %(inline_bytes)s THEN p.bytes END, octet_length(p.bytes)
FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS wanted (id, position)
JOIN ONLY amfs_otel.part AS p ON p.record = wanted.id AND p.number <= %(last_part)s
ORDER BY wanted.position, p.number
