-- Who may do what. Run after the numbered files by every `amfs-otel init`, as the owner of the schema, so that roles made
-- later by an administrator, and tables of later migrations, get their rights. Roles that do not exist are passed over;
-- the caller reports them.
--
--   writer    stores records; cannot read one byte of any part
--   sealer    reads records and parts, appends entries, keeps the projection and the checkpoint cache
--   eraser    deletes parts that an erasure record names, and re-projects
--   verifier  reads the ledger
--   reader    reads the ledger and the projection

REVOKE ALL ON ALL TABLES IN SCHEMA amfs_otel FROM PUBLIC;
REVOKE ALL ON SCHEMA amfs_otel FROM PUBLIC;

DO $$
DECLARE
    grants CONSTANT text[][] := ARRAY[
        ['writer', 'INSERT (header, record_hash, signature, commitments)', 'record'],
        ['writer', 'SELECT (id, record_hash, signature)', 'record'],
        ['writer', 'INSERT (record, number, salt, bytes)', 'part'],
        ['writer', 'SELECT (log, sequence_number, record_hash)', 'entry'],
        ['sealer', 'SELECT', 'record'],
        ['sealer', 'SELECT', 'part'],
        ['sealer', 'SELECT', 'entry'],
        ['sealer', 'INSERT (entry, entry_hash, entry_mac)', 'entry'],
        ['sealer', 'SELECT', 'checkpoint'],
        ['sealer', 'INSERT (log, size, note)', 'checkpoint'],
        ['eraser', 'SELECT', 'record'],
        ['eraser', 'SELECT', 'entry'],
        ['eraser', 'SELECT, DELETE', 'part']
    ];
    ledger CONSTANT text[] := ARRAY['record', 'part', 'entry', 'checkpoint', 'schema_migration'];
    one text[];
    role text;
    relation record;
BEGIN
    FOREACH one SLICE 1 IN ARRAY grants LOOP
        IF to_regrole('amfs_otel_' || one[1]) IS NOT NULL THEN
            EXECUTE format('GRANT %s ON amfs_otel.%I TO %I', one[2], one[3], 'amfs_otel_' || one[1]);
        END IF;
    END LOOP;

    IF to_regrole('amfs_otel_writer') IS NOT NULL AND to_regproc('amfs_otel.store_record') IS NOT NULL THEN
        GRANT EXECUTE ON FUNCTION amfs_otel.store_record TO amfs_otel_writer;
    END IF;

    FOREACH role IN ARRAY ARRAY['writer', 'sealer', 'eraser', 'verifier', 'reader'] LOOP
        CONTINUE WHEN to_regrole('amfs_otel_' || role) IS NULL;
        EXECUTE format('GRANT USAGE ON SCHEMA amfs_otel TO %I', 'amfs_otel_' || role);
        EXECUTE format('GRANT SELECT ON amfs_otel.schema_migration TO %I', 'amfs_otel_' || role);
    END LOOP;

    FOR relation IN
        SELECT c.relname, c.relname = ANY (ledger) AS in_ledger, c.relkind
        FROM pg_class AS c
        WHERE c.relnamespace = 'amfs_otel'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
    LOOP
        FOREACH role IN ARRAY ARRAY['reader', 'verifier', 'sealer', 'eraser'] LOOP
            CONTINUE WHEN to_regrole('amfs_otel_' || role) IS NULL;
            CONTINUE WHEN relation.in_ledger AND role IN ('sealer', 'eraser');
            CONTINUE WHEN NOT relation.in_ledger AND role = 'verifier';
            CONTINUE WHEN relation.relkind = 'S' AND role IN ('reader', 'verifier');
            EXECUTE format(
                'GRANT %s ON amfs_otel.%I TO %I',
                CASE
                    WHEN relation.relkind = 'S' THEN 'USAGE'
                    WHEN role IN ('sealer', 'eraser') AND relation.relkind IN ('r', 'p')
                        THEN 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE'
                    ELSE 'SELECT'
                END,
                relation.relname, 'amfs_otel_' || role);
        END LOOP;
    END LOOP;
END $$;
