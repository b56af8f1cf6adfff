-- The ledger: what was recorded, and where it stands in its log. Append-only; everything else can be rebuilt from it.
--
-- Run by amfs_otel/store/schema.py, as the owner of the schema, inside one transaction. The bytes of `header` and `entry`
-- are what is hashed and signed: they are kept as text, exactly as they came, and never as jsonb (which reorders keys,
-- folds numbers and decodes escapes). Columns that are needed for searching are generated from those bytes, so nobody,
-- a superuser included, can write one that says something else.
--
-- pg_dump keeps all of this (rules, triggers, their ALWAYS flags) and loads the data before it makes the triggers.
-- Where the restoring server lacks lz4, use pg_dump --no-toast-compression.

-- Refusals -----------------------------------------------------------------------------------------------------------

-- Raises 23001 (restrict_violation), which drivers map to an error of its own. Called by the rules, once per row that a
-- statement would have changed, and by the triggers.
CREATE FUNCTION amfs_otel.refuse(operation text, relation text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'restrict_violation',
        MESSAGE = format('amfs_otel.%s is append-only: %s refused', relation, operation),
        HINT = CASE
            WHEN relation = 'part' THEN 'A part may be deleted only after an erasure record that names it was stored.'
            ELSE 'Corrections are new records that refer to this one; nothing that was recorded is ever changed.'
        END;
END $$;

CREATE FUNCTION amfs_otel.refuse_by_trigger() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    PERFORM amfs_otel.refuse(TG_OP, TG_TABLE_NAME);
    RETURN NULL;
END $$;

-- Records ------------------------------------------------------------------------------------------------------------

CREATE TABLE amfs_otel.record (
    -- Order of arrival: the sealer's order among the records that it can see. Gaps mean nothing.
    arrival     bigint GENERATED ALWAYS AS IDENTITY,
    -- The transaction that stored it, for the sealer's snapshot rule. Means nothing after a restore into another cluster.
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    stored_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    header      text NOT NULL,
    record_hash bytea NOT NULL,
    signature   bytea NOT NULL,
    -- c_1 … c_n, 32 bytes each, in order.
    commitments bytea NOT NULL,
    log         text NOT NULL GENERATED ALWAYS AS (header::jsonb ->> 'log') STORED,
    id          uuid NOT NULL GENERATED ALWAYS AS ((header::jsonb ->> 'id')::uuid) STORED,
    kind        text NOT NULL GENERATED ALWAYS AS (header::jsonb ->> 'kind') STORED,
    session     text GENERATED ALWAYS AS (header::jsonb ->> 'session') STORED,
    trace       text GENERATED ALWAYS AS (header::jsonb ->> 'trace') STORED,
    -- Parts hang on the id alone, so it is unique in the database and not only in its log.
    CONSTRAINT record_pkey PRIMARY KEY (id),
    CONSTRAINT record_hash_is_unique UNIQUE (record_hash),
    CONSTRAINT record_hash_is_of_header
        CHECK (record_hash = sha256('amfs-otel/v1/record\000'::bytea || convert_to(header, 'UTF8'))),
    CONSTRAINT record_signature_is_present CHECK (octet_length(signature) BETWEEN 32 AND 128),
    CONSTRAINT record_commitments_are_whole CHECK (octet_length(commitments) % 32 = 0)
);
COMMENT ON TABLE amfs_otel.record IS 'Signed records, append-only. The columns after commitments are generated from the header.';
-- Hashes do not compress; the attempt would only cost time.
ALTER TABLE amfs_otel.record ALTER COLUMN commitments SET STORAGE EXTERNAL;
-- The sealer: records of a log that came after a snapshot.
CREATE INDEX record_by_xid ON amfs_otel.record (log, xid);
-- Key announcements (sealing), erasures (deleting a part): few rows, looked up often.
CREATE INDEX record_of_rare_kind ON amfs_otel.record (log, kind) WHERE kind IN ('genesis', 'key', 'erasure', 'hold');

-- Parts --------------------------------------------------------------------------------------------------------------

CREATE TABLE amfs_otel.part (
    record uuid NOT NULL,
    number integer NOT NULL CHECK (number >= 1),
    salt   bytea NOT NULL CHECK (octet_length(salt) = 32),
    -- NULL: withheld by the content policy; the header lists it.
    bytes  bytea,
    CONSTRAINT part_pkey PRIMARY KEY (record, number)
);
COMMENT ON TABLE amfs_otel.part IS 'The erasable bytes that records commit to. bytes is NULL where the policy withheld them.';
-- lz4 costs a tenth of the time of pglz; servers built without it keep the default.
DO $$
BEGIN
    ALTER TABLE amfs_otel.part ALTER COLUMN bytes SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END $$;

-- Whether a stored erasure record names this part, one by one (`erases`) or by age and class (`erase_range`). Times are
-- RFC 3339 in UTC with six digits, all of one width, so they compare as text. COLLATE "C": never by locale.
CREATE FUNCTION amfs_otel.erasable(which uuid, part_number integer) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    SELECT EXISTS (
        SELECT FROM amfs_otel.record AS target
        JOIN amfs_otel.record AS erasure ON erasure.log = target.log AND erasure.kind = 'erasure'
        WHERE target.id = which
          AND (
              erasure.header::jsonb -> 'erases' @> jsonb_build_array(jsonb_build_array(which::text, part_number))
              OR (
                  strpos(erasure.header::jsonb #>> '{erase_range,class}',
                         nullif(substr(target.header::jsonb ->> 'classes', part_number, 1), '')) > 0
                  AND target.header::jsonb ->> 'captured_at'
                      < (erasure.header::jsonb #>> '{erase_range,before}') COLLATE "C"
              )
          )
    )
$$;

CREATE FUNCTION amfs_otel.guard_part_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF NOT amfs_otel.erasable(OLD.record, OLD.number) THEN
        PERFORM amfs_otel.refuse(TG_OP, TG_TABLE_NAME);
    END IF;
    RETURN OLD;
END $$;

-- Entries ------------------------------------------------------------------------------------------------------------

CREATE TABLE amfs_otel.entry (
    entry           text NOT NULL,
    entry_hash      bytea NOT NULL,
    entry_mac       bytea NOT NULL,
    log             text NOT NULL GENERATED ALWAYS AS (entry::jsonb ->> 'log') STORED,
    sequence_number bigint NOT NULL GENERATED ALWAYS AS ((entry::jsonb ->> 'sequence_number')::bigint) STORED,
    parent_hash     bytea NOT NULL GENERATED ALWAYS AS (decode(entry::jsonb ->> 'parent_hash', 'hex')) STORED,
    record_hash     bytea NOT NULL GENERATED ALWAYS AS (decode(entry::jsonb ->> 'record_hash', 'hex')) STORED,
    CONSTRAINT entry_pkey PRIMARY KEY (log, sequence_number),
    -- No two entries after the same one: the log cannot fork.
    CONSTRAINT entry_parent_is_unique UNIQUE (log, parent_hash),
    -- No record stands twice.
    CONSTRAINT entry_record_is_unique UNIQUE (record_hash),
    CONSTRAINT entry_hash_is_of_entry CHECK (entry_hash = sha256('\000'::bytea || convert_to(entry, 'UTF8'))),
    CONSTRAINT entry_mac_is_whole CHECK (octet_length(entry_mac) = 32),
    CONSTRAINT entry_sequence_starts_at_zero CHECK (sequence_number >= 0)
);
COMMENT ON TABLE amfs_otel.entry IS 'The chain: one entry per sealed record, append-only. The columns after entry_mac are generated.';

-- Each new entry follows the one before it and places a record of the same log. AFTER, once per statement: a COPY of a
-- whole batch is valid although its rows refer to each other (row triggers BEFORE would not see the earlier rows).
CREATE FUNCTION amfs_otel.check_links() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    broken record;
BEGIN
    SELECT a.log, a.sequence_number, r.record_hash IS NULL AS without_record INTO broken
    FROM added AS a
    LEFT JOIN amfs_otel.entry AS p ON p.log = a.log AND p.sequence_number = a.sequence_number - 1
    LEFT JOIN amfs_otel.record AS r ON r.record_hash = a.record_hash AND r.log = a.log
    WHERE r.record_hash IS NULL
       OR CASE
           WHEN a.sequence_number = 0 THEN a.parent_hash <> decode(repeat('00', 32), 'hex')
           ELSE p.entry_hash IS DISTINCT FROM a.parent_hash
       END
    ORDER BY a.log, a.sequence_number
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'restrict_violation',
            MESSAGE = format('entry %s of log %s %s', broken.sequence_number, quote_literal(broken.log), CASE
                WHEN broken.without_record THEN 'places a record that is not in this log'
                ELSE 'does not follow the entry before it'
            END),
            HINT = 'Only the sealer, which reads the head under its lock, appends entries.';
    END IF;
    RETURN NULL;
END $$;

-- Not ALWAYS: on a logical replica, tables arrive in any order.
CREATE TRIGGER entry_links AFTER INSERT ON amfs_otel.entry
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION amfs_otel.check_links();

-- Checkpoints --------------------------------------------------------------------------------------------------------

CREATE TABLE amfs_otel.checkpoint (
    number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    log       text NOT NULL,
    size      bigint NOT NULL CHECK (size >= 1),
    note      text NOT NULL
);
COMMENT ON TABLE amfs_otel.checkpoint IS 'A cache of published checkpoint notes, for convenience. Never trusted: the copies outside count.';
CREATE INDEX checkpoint_by_size ON amfs_otel.checkpoint (log, size);

-- Enforcement --------------------------------------------------------------------------------------------------------
-- Rules that raise stop every UPDATE and DELETE that meets a row. Logical replication and direct writes into partitions
-- bypass rules, so row triggers stand behind them; TRUNCATE meets neither and has a trigger of its own. ENABLE ALWAYS
-- keeps all of them under session_replication_role = replica. An UPDATE rule makes INSERT … ON CONFLICT illegal.

CREATE RULE record_no_update AS ON UPDATE TO amfs_otel.record DO INSTEAD SELECT amfs_otel.refuse('UPDATE', 'record');
CREATE RULE record_no_delete AS ON DELETE TO amfs_otel.record DO INSTEAD SELECT amfs_otel.refuse('DELETE', 'record');
CREATE RULE part_no_update AS ON UPDATE TO amfs_otel.part DO INSTEAD SELECT amfs_otel.refuse('UPDATE', 'part');
CREATE RULE part_no_delete AS ON DELETE TO amfs_otel.part
    WHERE NOT amfs_otel.erasable(old.record, old.number) DO INSTEAD SELECT amfs_otel.refuse('DELETE', 'part');
CREATE RULE entry_no_update AS ON UPDATE TO amfs_otel.entry DO INSTEAD SELECT amfs_otel.refuse('UPDATE', 'entry');
CREATE RULE entry_no_delete AS ON DELETE TO amfs_otel.entry DO INSTEAD SELECT amfs_otel.refuse('DELETE', 'entry');
CREATE RULE checkpoint_no_update AS ON UPDATE TO amfs_otel.checkpoint
    DO INSTEAD SELECT amfs_otel.refuse('UPDATE', 'checkpoint');
CREATE RULE checkpoint_no_delete AS ON DELETE TO amfs_otel.checkpoint
    DO INSTEAD SELECT amfs_otel.refuse('DELETE', 'checkpoint');

CREATE TRIGGER record_no_change BEFORE UPDATE OR DELETE ON amfs_otel.record
    FOR EACH ROW EXECUTE FUNCTION amfs_otel.refuse_by_trigger();
CREATE TRIGGER part_no_change BEFORE UPDATE ON amfs_otel.part
    FOR EACH ROW EXECUTE FUNCTION amfs_otel.refuse_by_trigger();
CREATE TRIGGER part_guarded_delete BEFORE DELETE ON amfs_otel.part
    FOR EACH ROW EXECUTE FUNCTION amfs_otel.guard_part_delete();
CREATE TRIGGER entry_no_change BEFORE UPDATE OR DELETE ON amfs_otel.entry
    FOR EACH ROW EXECUTE FUNCTION amfs_otel.refuse_by_trigger();
CREATE TRIGGER checkpoint_no_change BEFORE UPDATE OR DELETE ON amfs_otel.checkpoint
    FOR EACH ROW EXECUTE FUNCTION amfs_otel.refuse_by_trigger();

CREATE TRIGGER record_no_truncate BEFORE TRUNCATE ON amfs_otel.record
    FOR EACH STATEMENT EXECUTE FUNCTION amfs_otel.refuse_by_trigger();
CREATE TRIGGER part_no_truncate BEFORE TRUNCATE ON amfs_otel.part
    FOR EACH STATEMENT EXECUTE FUNCTION amfs_otel.refuse_by_trigger();
CREATE TRIGGER entry_no_truncate BEFORE TRUNCATE ON amfs_otel.entry
    FOR EACH STATEMENT EXECUTE FUNCTION amfs_otel.refuse_by_trigger();
CREATE TRIGGER checkpoint_no_truncate BEFORE TRUNCATE ON amfs_otel.checkpoint
    FOR EACH STATEMENT EXECUTE FUNCTION amfs_otel.refuse_by_trigger();

ALTER TABLE amfs_otel.record ENABLE ALWAYS RULE record_no_update, ENABLE ALWAYS RULE record_no_delete,
    ENABLE ALWAYS TRIGGER record_no_change, ENABLE ALWAYS TRIGGER record_no_truncate;
ALTER TABLE amfs_otel.part ENABLE ALWAYS RULE part_no_update, ENABLE ALWAYS RULE part_no_delete,
    ENABLE ALWAYS TRIGGER part_no_change, ENABLE ALWAYS TRIGGER part_guarded_delete, ENABLE ALWAYS TRIGGER part_no_truncate;
ALTER TABLE amfs_otel.entry ENABLE ALWAYS RULE entry_no_update, ENABLE ALWAYS RULE entry_no_delete,
    ENABLE ALWAYS TRIGGER entry_no_change, ENABLE ALWAYS TRIGGER entry_no_truncate;
ALTER TABLE amfs_otel.checkpoint ENABLE ALWAYS RULE checkpoint_no_update, ENABLE ALWAYS RULE checkpoint_no_delete,
    ENABLE ALWAYS TRIGGER checkpoint_no_change, ENABLE ALWAYS TRIGGER checkpoint_no_truncate;
