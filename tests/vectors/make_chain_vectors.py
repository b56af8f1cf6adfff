"""Regenerates ``tests/vectors/chain/*.json``, deterministically: ``python -m tests.vectors.make_chain_vectors``.

Each vector is named after its defect and states by hand what a verifier must find; the script refuses to write one on which ours disagrees.
Released vectors never change: add new ones, and let the tests say if an old one reads differently.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from amfs_otel.chain.canonical import jcs
from amfs_otel.chain.entry import Entry
from amfs_otel.chain.hashes import SIGNATURE_DOMAIN, entry_hash, part_commitment, record_hash
from amfs_otel.chain.keys import Key
from amfs_otel.chain.lines import line_from_entry, line_from_record
from amfs_otel.chain.parts import PartInput
from amfs_otel.chain.record import Record, Ref
from amfs_otel.chain.trust import trust_from_json
from amfs_otel.chain.verify import StoredEntry
from tests.vectors.sample_log import KEYS, LOG_KEY, OTHER_WRITER, STRANGER, WRITER, SampleLog, base_log, codes

DIRECTORY = Path(__file__).parent / "chain"

Expected = list[tuple[str, int | None]]


@dataclass
class Case:
    """A broken (or honest) log and how to look at it."""

    log: SampleLog
    keys: tuple[Key, ...] = KEYS
    trust: dict | None = None
    level: str = "full"
    age_s: float = 3600
    name: str = ""
    expected: Expected = field(default_factory=list)
    doc: str = ""


CASES: dict[str, tuple[Callable[[], Case | SampleLog], Expected]] = {}


def vector(*expected: tuple[str, int | None]):
    def register(make):
        CASES[make.__name__] = (make, list(expected))
        return make

    return register


def case_named(name: str) -> Case:
    make, expected = CASES[name]
    made = make()
    case = made if isinstance(made, Case) else Case(made)
    case.name, case.expected, case.doc = name, expected, (make.__doc__ or "").strip()
    return case


def rehashed(record: Record, header: bytes, key: Key | None = None) -> Record:
    """The record with another header and its hash; signed again if a key is given."""
    digest = record_hash(header)
    signature = key.sign(SIGNATURE_DOMAIN + digest) if key else record.signature
    return replace(record, header=header, record_hash=digest, signature=signature)


def edited(record: Record, old: str, new: str) -> bytes:
    assert old.encode() in record.header
    return record.header.replace(old.encode(), new.encode(), 1)


def trust_of(
    log: SampleLog, *, complete: bool, keys=((WRITER, "writer"), (LOG_KEY, "log"), (OTHER_WRITER, "writer"))
) -> dict:
    return {
        "log": log.log,
        "log_uid": log.log_uid,
        "complete": complete,
        "keys": [{"kid": key.kid, "role": role, "alg": key.alg, "name": f"trusted {role}"} for key, role in keys],
    }


# -- honest -------------------------------------------------------------------------------------------------------


@vector()
def good_genesis_only():
    """A log that holds nothing but its genesis."""
    return SampleLog()


@vector()
def good_mixed():
    """Two writers, decisions, an outcome that refers to a decision."""
    return base_log()


@vector()
def good_withheld():
    """A text withheld by policy: salt and commitment stay, the bytes were never stored."""
    log = base_log()
    salt = log.draw(32)
    parts = [
        PartInput("s", jcs({"schema": "amfs-otel/decision/1", "x": {"$part": 3, "len": 6, "media": "text/plain"}})),
        PartInput("i", jcs([])),
        PartInput("m", None, salt, part_commitment(salt, b"secret")),
    ]
    log.seal(log.record("decision", parts))
    return log


def _erased(**facts) -> SampleLog:
    log = base_log()
    target = log.entries[2].record
    named = facts or {"erases": [(target.record_id, 2), (target.record_id, 3)]}
    log.seal(log.record("erasure", [PartInput("s", jcs({"schema": "amfs-otel/erasure/1"}))], **named))
    log.drop_parts(2, 2, 3)
    return log


@vector()
def good_erased():
    """Two parts erased by name; the erasure record stands behind."""
    return _erased()


@vector()
def good_erased_by_range():
    """Parts of two classes erased by age."""
    return _erased(erase_range={"before": "2027-01-01T00:00:00.000000Z", "class": "im"})


@vector()
def good_rotated_writer():
    """A key is added, the old one retired; what the old one signed stays valid, wherever it is sealed."""
    log = base_log()
    log.seal(log.key_record("retire", OTHER_WRITER))
    log.seal(log.decision("signed before it was retired, sealed behind", key=OTHER_WRITER))
    return log


@vector()
def good_rotated_log_key():
    """A second log key is announced and seals from then on."""
    log = base_log()
    log.seal(log.key_record("add", STRANGER, role="log", name="sealer 2"))
    log.log_key = STRANGER
    log.seal(log.decision())
    return Case(log, keys=(*KEYS, STRANGER))


@vector()
def good_revoked_later():
    """A revoked key's records stay good where they stand before the revocation."""
    log = base_log()
    log.seal(log.key_record("revoke", OTHER_WRITER))
    return log


@vector()
def good_unsealed_young():
    """A record that has no entry yet and is younger than the deadline."""
    log = base_log()
    log.loose.append(log.decision())
    return Case(log, age_s=5)


@vector()
def good_text_beyond_ascii():
    """Texts and strings in other scripts, decomposed and composed, astral, with U+FFFD."""
    log = base_log()
    log.seal(log.decision("Größe e\u0301 é 漢字 🚀 \ufffd \u2028 \x01"))
    return log


@vector()
def good_complete_trust():
    """A complete trust file names every key."""
    log = base_log()
    return Case(log, trust=trust_of(log, complete=True))


@vector()
def good_headers_level():
    """At level headers no part is looked at."""
    log = base_log()
    log.drop_parts(2, 1, 2, 3, 4)
    return Case(log, level="headers")


# -- content ------------------------------------------------------------------------------------------------------


@vector(("CONTENT_ALTERED", 3))
def content_value_changed():
    """One character of a text."""
    log = base_log()
    log.replace_part(3, 3, data=b"step 2")
    return log


@vector(("CONTENT_ALTERED", 3))
def content_space_appended():
    """One space behind a text."""
    log = base_log()
    log.replace_part(3, 3, data=log.entries[3].record.parts[2].data + b" ")
    return log


@vector(("CONTENT_ALTERED", 3))
def content_skeleton_respaced():
    """The same JSON with other white space."""
    log = base_log()
    data = log.entries[3].record.parts[0].data
    log.replace_part(3, 1, data=data.replace(b":", b": ", 1))
    return log


@vector(("CONTENT_ALTERED", 3))
def content_salt_replaced():
    """Another salt."""
    log = base_log()
    log.replace_part(3, 3, salt=bytes(32))
    return log


@vector(("CONTENT_ALTERED", 3), ("CONTENT_ALTERED", 4))
def content_swapped_between_records():
    """Two texts with their salts change places."""
    log = base_log()
    one, two = (log.entries[at].record.parts[2] for at in (3, 4))
    log.replace_part(3, 3, salt=two.salt, data=two.data)
    log.replace_part(4, 3, salt=one.salt, data=one.data)
    return log


@vector(("CONTENT_ALTERED", 3))
def content_and_commitment_changed():
    """A text with a commitment that fits it: the header fixes the commitments."""
    log = base_log()
    record = log.entries[3].record
    commitments = list(record.commitments)
    commitments[2] = part_commitment(record.parts[2].salt, b"forged")
    log.replace_record(3, commitments=tuple(commitments))
    log.replace_part(3, 3, data=b"forged")
    return log


@vector(("CONTENT_ALTERED", 3))
def content_extra_part():
    """A part that the header does not count."""
    log = base_log()
    record = log.entries[3].record
    log.replace_record(3, parts=(*record.parts, replace(record.parts[2], number=5)))
    return log


@vector(("CONTENT_ALTERED", 3), ("CONTENT_ALTERED", 3), ("CONTENT_MISSING", 3))
def content_commitment_dropped():
    """A commitment and its part taken away."""
    log = base_log()
    log.replace_record(3, commitments=log.entries[3].record.commitments[:3])
    log.drop_parts(3, 3)
    return log


@vector(("CONTENT_MISSING", 3))
def content_deleted_without_erasure():
    """A part's row is gone and nobody recorded why."""
    log = base_log()
    log.drop_parts(3, 3)
    return log


@vector(("CONTENT_MISSING", 3))
def content_null_not_withheld():
    """A part's bytes are NULL and its number is not withheld."""
    log = base_log()
    log.replace_part(3, 3, data=None)
    return log


@vector(("CONTENT_MISSING", 7))
def content_withheld_row_deleted():
    """The salt of a withheld text is gone: nobody can prove it any more."""
    log = good_withheld()
    log.drop_parts(7, 3)
    return log


@vector(("BAD_SIGNATURE", 7), ("CONTENT_MISSING", 2), ("CONTENT_MISSING", 2))
def erasure_not_authentic():
    """An erasure record without a genuine signature lets nothing go."""
    log = _erased()
    stored = log.entries.pop()
    log.seal(replace(stored.record, signature=bytes(32)))
    return log


@vector(("CONTENT_MISSING", 2))
def erasure_range_of_another_class():
    """A range that covers one of two deleted parts."""
    return _erased(erase_range={"before": "2027-01-01T00:00:00.000000Z", "class": "m"})


@vector(("CONTENT_MISSING", 2), ("CONTENT_MISSING", 2))
def erasure_range_ends_before():
    """A range that ends exactly when the record was captured."""
    return _erased(erase_range={"before": base_log().entries[2].record.captured_at, "class": "im"})


@vector(("CONTENT_MISSING", 2))
def erasure_names_another_part():
    """More was deleted than the erasure record names."""
    log = _erased()
    log.drop_parts(2, 1)
    return log


# -- header -------------------------------------------------------------------------------------------------------


@vector(("HEADER_ALTERED", 3), ("BAD_SIGNATURE", 3))
def header_changed():
    """A header edited in place, hash kept."""
    log = base_log()
    record = log.entries[3].record
    log.replace_record(3, header=edited(record, "2026-", "2025-"))
    return log


@vector(("HEADER_ALTERED", 3), ("BAD_SIGNATURE", 3))
def header_changed_and_rehashed():
    """A header edited with its hash recomputed; the entry still names the old one."""
    log = base_log()
    record = log.entries[3].record
    log.entries[3] = replace(log.entries[3], record=rehashed(record, edited(record, "2026-", "2025-")))
    return log


@vector(("BAD_HEADER", 3))
def header_respaced_and_signed():
    """A header that is not canonical, signed and sealed by the genuine keys."""
    log = base_log()
    record = log.entries[3].record
    log.entries[3] = StoredEntry(log.entries[3].entry, rehashed(record, edited(record, ":", ": "), OTHER_WRITER))
    log.reseal()
    return log


@vector(("BAD_HEADER", 3))
def header_duplicate_key_and_signed():
    """A member twice in one header."""
    log = base_log()
    record = log.entries[3].record
    header = edited(record, '"v":1', '"v":1,"v":1')
    log.entries[3] = StoredEntry(log.entries[3].entry, rehashed(record, header, OTHER_WRITER))
    log.reseal()
    return log


@vector(("BAD_HEADER", 3))
def header_unknown_member_and_signed():
    """A member that the format does not know."""
    log = base_log()
    record = log.entries[3].record
    header = edited(record, '"v":1', '"user":"ann","v":1')
    log.entries[3] = StoredEntry(log.entries[3].entry, rehashed(record, header, OTHER_WRITER))
    log.reseal()
    return log


@vector(("BAD_HEADER", 3), ("BAD_SIGNATURE", 3))
def header_alg_none():
    """Algorithm none and an empty signature, sealed by the genuine log key."""
    log = base_log()
    record = log.entries[3].record
    broken = rehashed(record, edited(record, '"HMAC-SHA256"', '"none"'))
    log.entries[3] = StoredEntry(log.entries[3].entry, replace(broken, signature=b""))
    log.reseal()
    return log


@vector(("BAD_HEADER", 3), ("HEADER_ALTERED", 3), ("BAD_SIGNATURE", 3))
def header_not_json():
    """A header cut in the middle."""
    log = base_log()
    log.replace_record(3, header=log.entries[3].record.header[:90])
    return log


@vector(("BAD_HEADER", 0), ("UNKNOWN_KEY", 0), ("BAD_HEADER", 2), ("BAD_HEADER", 3))
def genesis_not_first():
    """The log begins with a decision, a genesis stands behind it; the trust file names one key only."""
    log = base_log()
    log.entries = [log.entries[3], log.entries[2], log.entries[0], SampleLog(seed="second").entries[0]]
    log.reseal()
    return Case(log, trust=trust_of(log, complete=False, keys=((WRITER, "writer"), (LOG_KEY, "log"))))


# -- signature and keys -------------------------------------------------------------------------------------------


@vector(("BAD_SIGNATURE", 3))
def signature_bit_flipped():
    """One bit of a signature."""
    log = base_log()
    signature = log.entries[3].record.signature
    log.replace_record(3, signature=bytes([signature[0] ^ 1]) + signature[1:])
    return log


@vector(("BAD_SIGNATURE", 3))
def signature_of_another_record():
    """A genuine signature at the wrong record."""
    log = base_log()
    log.replace_record(3, signature=log.entries[5].record.signature)
    return log


@vector(("BAD_SIGNATURE", 3), ("NO_KEY", None))
def signature_swapped_without_keys():
    """Without a key the entry still says which signature was sealed."""
    log = base_log()
    log.replace_record(3, signature=log.entries[5].record.signature)
    return Case(log, keys=())


@vector(("BAD_SIGNATURE", 3))
def signature_cut():
    """Half a signature."""
    log = base_log()
    log.replace_record(3, signature=log.entries[3].record.signature[:16])
    return log


STRIPPED = [("BAD_SIGNATURE", at) for at in range(7)]
STRIPPED[4:4] = [("UNKNOWN_KEY", 3)]
STRIPPED[7:7] = [("UNKNOWN_KEY", 5)]


@vector(*STRIPPED)
def signatures_all_stripped():
    """Every signature taken away: never 'nothing to check'; a key record without one announces nobody."""
    log = base_log()
    for at in range(7):
        log.replace_record(at, signature=b"")
    return log


@vector(*STRIPPED, ("NO_KEY", None))
def signatures_all_stripped_without_keys():
    """The same, seen by someone who holds no key."""
    return Case(signatures_all_stripped(), keys=())


@vector(("BAD_SIGNATURE", 3))
def algorithm_not_as_announced():
    """A record that claims another algorithm than its key was announced for."""
    log = base_log()
    record = log.entries[3].record
    header = edited(record, '"HMAC-SHA256"', '"Ed25519"')
    log.entries[3] = StoredEntry(log.entries[3].entry, rehashed(record, header, OTHER_WRITER))
    log.reseal()
    return log


@vector(("UNKNOWN_KEY", 7))
def stranger_sealed_by_genuine_sealer():
    """A stranger's record, placed by the genuine sealer."""
    log = base_log()
    log.seal(log.decision("forged", key=STRANGER))
    return log


@vector(("UNKNOWN_KEY", 7))
def stranger_against_complete_trust():
    """The same against a trust file that lists every key: tampering."""
    log = base_log()
    log.seal(log.decision("forged", key=STRANGER))
    return Case(log, trust=trust_of(log, complete=True))


@vector(("UNKNOWN_KEY", 8))
def key_added_by_stranger_is_not_followed():
    """A key record with a forged signature announces nobody; complete trust does not take what the log adds."""
    log = base_log()
    log.seal(log.key_record("add", STRANGER))
    log.seal(log.decision("forged", key=STRANGER))
    return Case(log, trust=trust_of(log, complete=True))


@vector(("UNKNOWN_KEY", 7))
def log_key_signs_as_writer():
    """A key announced for one role used in another."""
    log = base_log()
    log.seal(log.decision(key=LOG_KEY))
    return log


@vector(("UNKNOWN_KEY", 7))
def writer_key_seals():
    """A writer's key used to seal."""
    log = base_log()
    log.seal(log.decision(), log_key=WRITER)
    return log


@vector(("REVOKED_KEY", 8))
def revoked_writer_goes_on():
    """A record of a revoked key, placed after the revocation."""
    log = base_log()
    log.seal(log.key_record("revoke", OTHER_WRITER))
    log.seal(log.decision(key=OTHER_WRITER))
    return log


@vector(("REVOKED_KEY", 8))
def revoked_log_key_goes_on():
    """An entry of a revoked log key."""
    log = base_log()
    log.seal(log.key_record("revoke", LOG_KEY, role="log", name="sealer"))
    log.seal(log.decision())
    return log


@vector(("BAD_SIGNATURE", 7))
def revocation_forged():
    """A revocation without a genuine signature revokes nothing."""
    log = base_log()
    record = log.key_record("revoke", OTHER_WRITER)
    log.seal(replace(record, signature=STRANGER.sign(SIGNATURE_DOMAIN + record.record_hash)))
    log.seal(log.decision(key=OTHER_WRITER))
    return log


@vector(("KEY_NOT_HELD", 3))
def key_not_held():
    """One of the announced secrets is not here."""
    return Case(base_log(), keys=(WRITER, LOG_KEY))


@vector(("KEY_NOT_HELD", 0), ("KEY_NOT_HELD", 0), ("KEY_NOT_HELD", 3))
def wrong_key_file():
    """Only a key that the log does not know: named, never reported as tampering."""
    return Case(base_log(), keys=(STRANGER,))


@vector(("NO_KEY", None))
def no_key():
    """An honest log and no key at all: nobody can say that it is intact."""
    return Case(base_log(), keys=())


# -- entries ------------------------------------------------------------------------------------------------------


@vector(("ENTRY_ALTERED", 3))
def entry_changed():
    """An entry edited in place, hash and MAC kept."""
    log = base_log()
    log.replace_entry(3, entry=log.entries[3].entry.entry.replace(b".003", b".002"))
    return log


def _rehash_entry(log: SampleLog, at: int, data: bytes) -> None:
    log.replace_entry(at, entry=data, entry_hash=entry_hash(data))


@vector(("BAD_MAC", 3), ("LINK_BROKEN", 4))
def entry_changed_and_rehashed():
    """An entry edited with its hash recomputed."""
    log = base_log()
    _rehash_entry(log, 3, log.entries[3].entry.entry.replace(b".003", b".002"))
    return log


@vector(("ENTRY_ALTERED", 3), ("LINK_BROKEN", 4))
def entry_respaced_and_rehashed():
    """An entry that is not canonical."""
    log = base_log()
    _rehash_entry(log, 3, log.entries[3].entry.entry.replace(b":", b": ", 1))
    return log


@vector(("ENTRY_ALTERED", 0), ("LINK_BROKEN", 1))
def entry_of_the_genesis_unreadable():
    """The first entry is no JSON; its record still announces the keys."""
    log = base_log()
    _rehash_entry(log, 0, b"{")
    return log


@vector(("ENTRY_ALTERED", 3), ("LINK_BROKEN", 4))
def entry_unreadable_and_record_gone():
    """An entry that is no JSON, and so no record that it could name."""
    log = base_log()
    _rehash_entry(log, 3, b"null")
    log.entries[3] = replace(log.entries[3], record=None)
    return log


@vector(("BAD_MAC", 3))
def mac_bit_flipped():
    """One bit of a MAC."""
    log = base_log()
    mac = log.entries[3].entry.entry_mac
    log.replace_entry(3, entry_mac=bytes([mac[0] ^ 1]) + mac[1:])
    return log


@vector(("BAD_MAC", 3), ("NO_KEY", None))
def mac_stripped_without_keys():
    """An entry without a MAC, seen by someone who holds no key."""
    log = base_log()
    log.replace_entry(3, entry_mac=b"")
    return Case(log, keys=())


@vector(("MISSING", 3), ("LINK_BROKEN", 4))
def entry_deleted():
    """One entry from the middle."""
    log = base_log()
    del log.entries[3]
    return log


@vector(("MISSING", 0), ("LINK_BROKEN", 3), ("BAD_REF", 6))
def entries_deleted_at_the_beginning():
    """The first three entries, genesis among them."""
    log = base_log()
    del log.entries[:3]
    return log


@vector(*[("BAD_MAC", at) for at in (3, 4, 5)])
def entry_deleted_and_renumbered():
    """One entry taken out and the rest numbered and linked again, without the log key."""
    log = base_log()
    del log.entries[3]
    log.reseal(3, log_key=Key(bytes(range(32))))
    for at in (3, 4, 5):
        data = log.entries[at].entry.entry.replace(Key(bytes(range(32))).kid.encode(), LOG_KEY.kid.encode())
        if at > 3:
            data = data.replace(
                log.entries[at].entry.parent_hash.hex().encode(), log.entries[at - 1].entry.entry_hash.hex().encode()
            )
        log.replace_entry(at, entry=data, entry_hash=entry_hash(data))
    return log


@vector(("MISSING", 3))
def record_deleted():
    """The entry stands, its record is gone."""
    log = base_log()
    log.entries[3] = replace(log.entries[3], record=None)
    return log


@vector(("DUPLICATE", 3))
def entry_replayed():
    """An entry twice."""
    log = base_log()
    log.entries.insert(4, log.entries[3])
    return log


@vector(("DUPLICATE", 7))
def record_sealed_twice():
    """One record in two places."""
    log = base_log()
    log.seal(log.entries[3].record)
    return log


@vector(("LINK_BROKEN", 3), ("LINK_BROKEN", 4), ("LINK_BROKEN", 5))
def entries_swapped():
    """Two entries have exchanged numbers, with hashes recomputed and MACs by the genuine key."""
    log = base_log()
    three, four = log.entries[3], log.entries[4]
    for at, other in ((3, four), (4, three)):
        data = other.entry.entry.replace(
            f'"sequence_number":{7 - at}'.encode(), f'"sequence_number":{at}'.encode()
        ).replace(b".004", b".003")
        digest = entry_hash(data)
        from amfs_otel.chain.hashes import ENTRY_DOMAIN

        log.entries[at] = replace(other, entry=Entry(data, digest, LOG_KEY.sign(ENTRY_DOMAIN + digest)))
    return log


@vector(("FOREIGN_RECORD", 7))
def record_of_another_log():
    """A record made for another log of the same writer."""
    log = base_log()
    log.seal(log.record("decision", [PartInput("s", b"{}"), PartInput("i", b"[]")], log="other"))
    return log


@vector(("FOREIGN_RECORD", 7))
def entry_of_another_identity():
    """An entry made for a log of the same name and another identity."""
    log = base_log()
    log.seal(log.decision(), log_uid="ab" * 16)
    return log


@vector(("FOREIGN_RECORD", 0), *[("FOREIGN_RECORD", at) for at in range(7)])
def trust_of_another_identity():
    """The trust file fixes another identity: a new log was put in the old one's place."""
    log = base_log()
    return Case(log, trust=trust_of(log, complete=False) | {"log_uid": "cd" * 16})


@vector(("TIME_REGRESSION", 7))
def time_set_back():
    """An entry sealed before the one in front of it."""
    log = base_log()
    log.seal(log.decision(), sealed_at_ns=log.now_ns - 10**9)
    return log


@vector(("COLUMN_MISMATCH", 3))
def column_changed():
    """A query column shows another kind than the signed header."""
    log = base_log()
    log.entries[3] = replace(log.entries[3], columns={"kind": "outcome", "sequence_number": 3, "trace": None})
    return log


@vector(("BAD_REF", 7))
def reference_to_another_hash():
    """An outcome that names a decision with another hash."""
    log = base_log()
    target = log.entries[2].record
    log.seal(log.decision(refs=[Ref("amends", target.record_id, "ab" * 32)]))
    return log


@vector(("BAD_REF", 7))
def reference_to_nothing():
    """A reference to a record that is not in the log."""
    log = base_log()
    log.seal(log.decision(refs=[Ref("continues", "00000000-0000-7000-8000-000000000000")]))
    return log


# -- whole ----------------------------------------------------------------------------------------------------------


@vector(("EMPTY_STORE", None))
def empty():
    """Nothing at all."""
    log = base_log()
    log.entries = []
    return log


@vector(("UNSEALED", None))
def unsealed_old():
    """A record that should long have had an entry."""
    log = base_log()
    log.loose.append(log.decision())
    return log


@vector(("CONTENT_ALTERED", None), ("UNSEALED", None))
def unsealed_and_changed():
    """A record without an entry is checked all the same."""
    log = base_log()
    record = log.decision()
    log.loose.append(replace(record, parts=(replace(record.parts[0], data=b"{}"), *record.parts[1:])))
    return log


@vector(("GAP", 7))
def gap_recorded():
    """The writer reports lost events."""
    log = base_log()
    log.seal(log.record("gap", [PartInput("s", jcs({"lost": 12, "schema": "amfs-otel/gap/1"})), PartInput("i", b"[]")]))
    return log


def document(case: Case) -> dict:
    log = case.log
    trust = trust_from_json(json.dumps(case.trust)) if case.trust else None
    verification = log.verify(case.keys, age_s=case.age_s, level=case.level, trust=trust)
    if codes(verification) != case.expected:
        raise SystemExit(f"{case.name}: expected {case.expected}, found {codes(verification)}")
    return {
        "description": case.doc,
        "log": log.log,
        "level": case.level,
        "now_ns": log.now_ns + int(case.age_s * 1e9),
        "keys": ["hex:" + key.secret.hex() for key in case.keys],
        "trust": case.trust,
        "expected": {
            "verdict": verification.verdict.name,
            "findings": [[code, at] for code, at in case.expected],
            "erased_parts": verification.coverage.erased_parts,
            "withheld_parts": verification.coverage.withheld_parts,
        },
        "lines": [line_from_entry(stored) for stored in log.entries]
        + [line_from_record(record) for record in log.loose],
    }


def main() -> int:
    DIRECTORY.mkdir(exist_ok=True)
    documents = {name: document(case_named(name)) for name in CASES}
    for name, content in documents.items():
        (DIRECTORY / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
