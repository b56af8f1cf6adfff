-- Makes the nodes that are missing and returns the ids of all.
WITH wanted AS (
    SELECT DISTINCT kind, name FROM unnest(%(kinds)s::text[], %(names)s::text[]) AS given (kind, name)
), added AS (
    INSERT INTO amfs_otel.node (log, kind, name)
    SELECT %(log)s, kind, name FROM wanted ORDER BY name, kind
    ON CONFLICT (log, name, kind) DO NOTHING
    RETURNING id, kind, name
)
SELECT id, kind, name FROM added
UNION ALL
SELECT n.id, n.kind, n.name FROM amfs_otel.node AS n JOIN wanted USING (kind, name) WHERE n.log = %(log)s
