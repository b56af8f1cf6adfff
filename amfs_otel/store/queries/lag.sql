-- How many records of a log have no entry, and for how many seconds the oldest has been waiting.
SELECT count(*), extract(epoch FROM clock_timestamp() - min(r.stored_at))::float8
FROM ONLY amfs_otel.record AS r
WHERE r.log = %(log)s AND NOT EXISTS (SELECT FROM ONLY amfs_otel.entry AS e WHERE e.record_hash = r.record_hash)
