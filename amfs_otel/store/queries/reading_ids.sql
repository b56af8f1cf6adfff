-- Records whose id, or whose OpenTelemetry trace id, begins or ends with the given hex digits.
(SELECT p.record_id::text AS id FROM amfs_otel.projected AS p
 WHERE p.log = %(log)s AND p.record_id BETWEEN %(lowest)s::uuid AND %(highest)s::uuid LIMIT %(limit)s)
UNION
(SELECT p.record_id::text FROM amfs_otel.projected AS p
 WHERE p.log = %(log)s AND reverse(p.record_id::text) LIKE %(suffix)s LIMIT %(limit)s)
UNION
(SELECT d.record_id::text FROM amfs_otel.decision AS d
 WHERE d.log = %(log)s AND d.trace_id LIKE %(trace_prefix)s LIMIT %(limit)s)
UNION
(SELECT d.record_id::text FROM amfs_otel.decision AS d
 WHERE d.log = %(log)s AND reverse(d.trace_id) LIKE %(trace_suffix)s LIMIT %(limit)s)
