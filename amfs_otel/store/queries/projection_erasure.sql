-- Notes which parts an erasure record names, one by one and by age and class; returns the records that they belong to,
-- as far as they were projected. A part that another erasure named before keeps that one.
WITH named AS (
    SELECT r.id AS record_id, (pair ->> 1)::integer AS part
    FROM jsonb_array_elements(%(erases)s::jsonb) AS pair
    JOIN ONLY amfs_otel.record AS r ON r.id = (pair ->> 0)::uuid AND r.log = %(log)s
    UNION
    SELECT r.id, place.number::integer
    FROM amfs_otel.projected AS p
    JOIN ONLY amfs_otel.record AS r ON r.id = p.record_id
    CROSS JOIN LATERAL unnest(string_to_array(r.header::jsonb ->> 'classes', NULL))
        WITH ORDINALITY AS place (letter, number)
    WHERE p.log = %(log)s AND %(before)s::text IS NOT NULL
      AND r.header::jsonb ->> 'captured_at' < %(before)s::text COLLATE "C"
      AND strpos(%(letters)s, place.letter) > 0
), noted AS (
    INSERT INTO amfs_otel.erased (log, record_id, part, erased_by)
    SELECT %(log)s, named.record_id, named.part, %(id)s::uuid FROM named
    ORDER BY named.record_id, named.part
    ON CONFLICT DO NOTHING
    RETURNING record_id
)
SELECT p.record_id::text, p.kind
FROM amfs_otel.projected AS p
WHERE p.record_id IN (SELECT record_id FROM noted) AND p.log = %(log)s AND p.skipped IS NULL
ORDER BY p.sequence_number
