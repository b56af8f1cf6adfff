"""The record store: PostgreSQL, a server of somebody's or our own embedded one.

`postgres.Store` appends, seals and reads; `schema.prepare` makes the schema (`amfs-otel init`);
`embedded.EmbeddedServer` runs the local server. Importing this package imports nothing: psycopg comes with the modules
that need it.
"""
