"""A log in a throw-away database, with its keys and a maker of records."""

import secrets
import time
from dataclasses import dataclass, field

import psycopg

from amfs_otel.chain.genesis import key_fact, key_record
from amfs_otel.chain.keys import Key, KeyRing
from amfs_otel.chain.record import PartInput, Record, make_record, new_record_id
from amfs_otel.chain.verification import Verification
from amfs_otel.chain.verify import LogVerifier
from amfs_otel.store.postgres import Store
from amfs_otel.store.schema import Prepared, prepare


def new_key() -> Key:
    return Key(secrets.token_bytes(32))


@dataclass
class Ledger:
    """One prepared log."""

    dsn: str
    log: str = "default"
    writer_key: Key = field(default_factory=new_key)
    log_key: Key = field(default_factory=new_key)

    def prepare(self) -> Prepared:
        return prepare(self.dsn, log=self.log, writer_key=self.writer_key, log_key=self.log_key, now_ns=time.time_ns())

    def store(self, dsn: str | None = None) -> Store:
        return Store.connect(dsn or self.dsn, self.log)

    def sql(self, statement: str, *parameters: object, dsn: str | None = None) -> list[tuple]:
        """Run one statement as the database's superuser (or as the DSN says) in a transaction of its own."""
        with psycopg.connect(dsn or self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def record(self, *texts: bytes, kind: str = "decision", log: str | None = None, **members) -> Record:
        """A signed record: skeleton, strings, one message part per text, and a withheld one."""
        now = time.time_ns()
        parts = [PartInput("s", b'{"schema":"amfs-otel/decision/1"}'), PartInput("i", b'["agent-7"]')]
        parts += [PartInput("m", text) for text in texts]
        parts.append(PartInput("m", None, salt=secrets.token_bytes(32), commitment=secrets.token_bytes(32)))
        return make_record(
            kind=kind,
            log=log or self.log,
            record_id=new_record_id(now),
            session=secrets.token_hex(16),
            parts=parts if kind == "decision" else [],
            key=self.writer_key,
            captured_at_ns=now,
            **members,
        )

    def key_record(self, op: str, kid: str, role: str = "log") -> Record:
        fact = key_fact(op=op, role=role, kid=kid, name="test", by="test")
        return key_record(log=self.log, writer_key=self.writer_key, now_ns=time.time_ns(), fact=fact)

    def verify(self, dsn: str | None = None, **options) -> Verification:
        verifier = LogVerifier(self.log, KeyRing([self.writer_key, self.log_key]), now_ns=time.time_ns(), **options)
        with self.store(dsn) as store, store.reading():
            for finding in store.findings():
                verifier.add(finding)
            for stored in store.stored_entries():
                verifier.feed(stored)
            for record, stored_at in store.unsealed():
                verifier.unsealed(record, stored_at)
        return verifier.finish()

    def user(self, *roles: str) -> str:
        """Make a login user with these roles of ours and return a DSN that enters as that user."""
        name = f"user_{secrets.token_hex(4)}"
        self.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        for role in roles:
            self.sql(f"GRANT amfs_otel_{role} TO {name}")
        return psycopg.conninfo.make_conninfo(self.dsn, user=name, password="secret")
