-- Sessions that hold sealing of a log back, oldest first: another sealer with the lock, and open transactions of this
-- database that have written records nobody can see yet. A transaction of another database holds nothing back.
SELECT h.why, h.pid, a.datname, extract(epoch FROM clock_timestamp() - a.xact_start)::float8
FROM (
    SELECT 'another sealer' AS why, l.pid
    FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = %(lock_class)s::int8::oid
      AND l.objid = (hashtext(%(log)s)::int8 & 4294967295)::oid
    UNION ALL
    SELECT 'an open transaction with unseen records', l.pid
    FROM pg_locks AS l
    WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.relation = to_regclass('amfs_otel.record')
) AS h
JOIN pg_stat_activity AS a ON a.pid = h.pid
WHERE h.pid <> pg_backend_pid()
ORDER BY a.xact_start NULLS LAST, h.pid
