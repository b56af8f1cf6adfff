"""A small log made deterministically: the honest base of the golden vectors, the attacks and the property tests.

Everything random (salts, ids, sessions, the log's identity) comes from a counter, so the same call gives the same bytes for ever.
"""

import hashlib
from dataclasses import replace

from amfs_otel.chain.canonical import jcs, timestamp_from_ns
from amfs_otel.chain.entry import FIRST_PARENT, Entry, make_entry
from amfs_otel.chain.findings import Verdict
from amfs_otel.chain.genesis import genesis_fact, key_fact
from amfs_otel.chain.keys import Key, KeyRing
from amfs_otel.chain.parts import PartInput
from amfs_otel.chain.record import Record, Ref, make_record
from amfs_otel.chain.verify import LogVerifier, StoredEntry, Verification

START_NS = 1_780_000_000_000_000_000
LOG = "default"


def secret(name: str) -> bytes:
    return hashlib.sha256(f"amfs-otel test vectors: {name}".encode()).digest()


WRITER, LOG_KEY, OTHER_WRITER, STRANGER = (Key(secret(name)) for name in ("writer", "log", "other writer", "stranger"))
KEYS = (WRITER, LOG_KEY, OTHER_WRITER)


class SampleLog:
    """Builds records and entries the way honest processes do, and lets a test break them."""

    def __init__(self, log: str = LOG, seed: str = "base", writer: Key = WRITER, log_key: Key = LOG_KEY) -> None:
        self.log = log
        self.writer = writer
        self.log_key = log_key
        self.entries: list[StoredEntry] = []
        self.loose: list[Record] = []
        self._seed = seed
        self._drawn = 0
        self.log_uid = self.draw(16).hex()
        fact = genesis_fact(
            log=log,
            log_uid=self.log_uid,
            writer_key=writer,
            log_key=log_key,
            writer_name="deploy-agent",
            log_name="sealer",
        )
        self.seal(self.record("genesis", (), genesis=fact))

    def draw(self, length: int) -> bytes:
        self._drawn += 1
        return hashlib.sha512(f"{self._seed}/{self._drawn}".encode()).digest()[:length]

    @property
    def now_ns(self) -> int:
        return START_NS + 1_000_000 * len(self.entries)

    def record(self, kind: str, parts, *, key: Key | None = None, **facts) -> Record:
        text = self.draw(16).hex()
        record_id = f"{START_NS // 10**6:012x}{text[12:]}"
        record_id = f"{record_id[:8]}-{record_id[8:12]}-7{record_id[13:16]}-8{record_id[17:20]}-{record_id[20:]}"
        return make_record(
            kind=kind,
            log=facts.pop("log", self.log),
            record_id=record_id,
            session=self.draw(16).hex(),
            parts=[replace(part, salt=self.draw(32)) if part.salt is None else part for part in parts],
            key=key or self.writer,
            captured_at_ns=self.now_ns,
            **facts,
        )

    def decision(self, text: str = "roll out build 4711", **facts) -> Record:
        skeleton = {
            "agent": {"$s": 0},
            "events": [{"input": {"$part": 3, "len": len(text.encode()), "media": "text/plain"}, "kind": "inference"}],
            "schema": "amfs-otel/decision/1",
        }
        parts = [
            PartInput("s", jcs(skeleton)),
            PartInput("i", jcs(["deploy-agent"])),
            PartInput("m", text.encode()),
            PartInput("h", jcs({"3": self.draw(16).hex()})),
        ]
        return self.record("decision", parts, **facts)

    def outcome(self, target: Record, **facts) -> Record:
        parts = [PartInput("s", jcs({"schema": "amfs-otel/outcome/1"})), PartInput("i", jcs(["DEP-500"]))]
        refs = [Ref("outcome_of", target.record_id, target.record_hash.hex())]
        return self.record("outcome", parts, refs=refs, **facts)

    def key_record(
        self, op: str, key: Key, *, role: str = "writer", name: str = "review-agent", by: Key | None = None
    ) -> Record:
        fact = key_fact(op=op, role=role, kid=key.kid, name=name, by="operator")
        return self.record("key", (), key=by, key_fact=fact)

    def seal(self, record: Record, *, sealed_at_ns: int | None = None, **changes) -> StoredEntry:
        last = self.entries[-1].entry if self.entries else None
        members = {
            "log": self.log,
            "log_uid": self.log_uid,
            "sequence_number": len(self.entries),
            "parent_hash": last.entry_hash if last else FIRST_PARENT,
            "record": (record.record_hash, record.signature),
            "sealed_at": timestamp_from_ns(self.now_ns if sealed_at_ns is None else sealed_at_ns),
            "log_key": self.log_key,
        } | changes
        stored = StoredEntry(make_entry(**members), record)
        self.entries.append(stored)
        return stored

    def reseal(self, start: int = 0, log_key: Key | None = None) -> None:
        """Number, link and MAC everything again from a position on, as someone with the log key can."""
        kept, self.entries = self.entries[start:], self.entries[:start]
        for stored in kept:
            assert stored.record is not None
            self.seal(stored.record, log_key=log_key or self.log_key)

    def replace_record(self, at: int, **changes) -> None:
        stored = self.entries[at]
        self.entries[at] = replace(stored, record=replace(stored.record, **changes))

    def replace_entry(self, at: int, **changes) -> None:
        stored = self.entries[at]
        self.entries[at] = replace(stored, entry=replace(stored.entry, **changes))

    def replace_part(self, at: int, number: int, **changes) -> None:
        record = self.entries[at].record
        parts = tuple(replace(part, **changes) if part.number == number else part for part in record.parts)
        self.replace_record(at, parts=parts)

    def drop_parts(self, at: int, *numbers: int) -> None:
        record = self.entries[at].record
        self.replace_record(at, parts=tuple(part for part in record.parts if part.number not in numbers))

    def verify(self, keys=KEYS, *, age_s: float = 3600, **options) -> Verification:
        verifier = LogVerifier(
            options.pop("log", self.log), KeyRing(keys), now_ns=self.now_ns + int(age_s * 1e9), **options
        )
        for stored in self.entries:
            verifier.feed(stored)
        for record in self.loose:
            verifier.unsealed(record)
        return verifier.finish()


def base_log(decisions: int = 4) -> SampleLog:
    """Genesis, a second writer's key, decisions by both writers, an outcome."""
    log = SampleLog()
    log.seal(log.key_record("add", OTHER_WRITER))
    first = log.seal(log.decision()).record
    for number in range(1, decisions):
        log.seal(log.decision(f"step {number}", key=OTHER_WRITER if number % 2 else None))
    log.seal(log.outcome(first))
    return log


def codes(verification: Verification) -> list[tuple[str, int | None]]:
    """What was found, as (code, sequence number), in order."""
    return [(finding.code, finding.sequence_number) for finding in verification.findings]


def assert_intact(verification: Verification) -> None:
    assert verification.findings == ()
    assert verification.verdict is Verdict.INTACT


__all__ = [
    "KEYS",
    "LOG",
    "LOG_KEY",
    "OTHER_WRITER",
    "STRANGER",
    "WRITER",
    "Entry",
    "SampleLog",
    "assert_intact",
    "base_log",
    "codes",
]
