-- Adds to counters.
INSERT INTO amfs_otel.counter AS c (log, subject, name, value)
SELECT %(log)s, subject, name, value
FROM unnest(%(subjects)s::text[], %(names)s::text[], %(values)s::double precision[]) AS given (subject, name, value)
ORDER BY subject, name
ON CONFLICT (log, subject, name) DO UPDATE SET value = c.value + excluded.value
