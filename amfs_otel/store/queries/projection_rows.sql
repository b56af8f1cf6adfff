-- The rows that some records give.
WITH decisions AS (
    INSERT INTO amfs_otel.decision
    SELECT * FROM json_populate_recordset(NULL::amfs_otel.decision, %(decisions)s::json)
), steps AS (
    INSERT INTO amfs_otel.step
    SELECT * FROM json_populate_recordset(NULL::amfs_otel.step, %(steps)s::json)
)
INSERT INTO amfs_otel.outcome
SELECT * FROM json_populate_recordset(NULL::amfs_otel.outcome, %(outcomes)s::json)
