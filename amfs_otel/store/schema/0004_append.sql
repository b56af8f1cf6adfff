-- Storing a record with its parts in one call. The server keeps the plans of a function for as long as a session lives,
-- whoever's session that is behind a pooler, and nothing has to be prepared by the client: planning these two statements
-- anew costs about as much as running them. It runs with the rights of whoever calls it.
CREATE FUNCTION amfs_otel.store_record(
    its_header text, its_hash bytea, its_signature bytea, its_commitments bytea,
    its_id uuid, numbers integer[], salts bytea[], texts bytea[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO amfs_otel.record (header, record_hash, signature, commitments)
    VALUES (its_header, its_hash, its_signature, its_commitments);
    INSERT INTO amfs_otel.part (record, number, salt, bytes)
    SELECT its_id, given.number, given.salt, given.bytes
    FROM unnest(numbers, salts, texts) AS given (number, salt, bytes);
END $$;
