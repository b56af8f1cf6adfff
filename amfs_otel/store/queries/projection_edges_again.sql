-- Counts the evidence of some edges anew; those that have none left go, and then the nodes that no edge touches.
WITH affected AS (
    SELECT source, relation, target
    FROM unnest(%(sources)s::bigint[], %(relations)s::text[], %(targets)s::bigint[]) AS given (source, relation, target)
), counted AS (
    SELECT a.source, a.relation, a.target, max(v.confidence) AS confidence, count(v.record_id) AS evidence_count,
        min(v.first_seen) AS first_seen, max(v.last_seen) AS last_seen
    FROM affected AS a
    LEFT JOIN amfs_otel.edge_evidence AS v USING (source, relation, target)
    GROUP BY a.source, a.relation, a.target
), changed AS (
    UPDATE amfs_otel.edge AS e
    SET confidence = c.confidence, evidence_count = c.evidence_count, first_seen = c.first_seen, last_seen = c.last_seen
    FROM counted AS c
    WHERE (e.source, e.relation, e.target) = (c.source, c.relation, c.target) AND c.evidence_count > 0
)
DELETE FROM amfs_otel.edge AS e USING counted AS c
WHERE (e.source, e.relation, e.target) = (c.source, c.relation, c.target) AND c.evidence_count = 0
