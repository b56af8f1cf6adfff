"""Attacks on a log in memory, each by someone with a stated power, each mapped to the findings that must name it.

The attacker can write anything the store holds. Where noted, a secret leaked too. What only a checkpoint or a receipt kept outside can
show is stated as such: those tests pin that the log alone looks clean, so that nobody promises more.
"""

import json
from dataclasses import replace

import pytest

from amfs_otel.chain.checkpoint import checkpoint_matches, make_checkpoint, parse_checkpoint
from amfs_otel.chain.entry import Entry
from amfs_otel.chain.findings import Verdict
from amfs_otel.chain.hashes import ENTRY_DOMAIN, SIGNATURE_DOMAIN, entry_hash, record_hash
from amfs_otel.chain.keys import Ed25519Key, Key
from amfs_otel.chain.merkle import root
from amfs_otel.chain.trust import trust_from_json
from tests.vectors.make_chain_vectors import CASES, case_named, edited, rehashed, trust_of
from tests.vectors.sample_log import (
    KEYS,
    LOG_KEY,
    OTHER_WRITER,
    STRANGER,
    WRITER,
    SampleLog,
    assert_intact,
    base_log,
    codes,
)

# The acceptance list: attack -> vectors that carry it out. Each vector states its findings; test_vectors.py checks them.
ATTACKS = {
    "change a value inside a body": ["content_value_changed"],
    "append one space to a body": ["content_space_appended", "content_skeleton_respaced"],
    "edit a header, keep its hash": ["header_changed"],
    "edit a header and recompute the hash": ["header_changed_and_rehashed"],
    "re-space a header": ["header_respaced_and_signed"],
    "duplicate a key in a header": ["header_duplicate_key_and_signed"],
    "flip one bit of a signature": ["signature_bit_flipped"],
    "swap in another record's signature": ["signature_of_another_record"],
    "algorithm none, empty signature": ["header_alg_none"],
    "unknown key id with its own key": ["stranger_sealed_by_genuine_sealer", "stranger_against_complete_trust"],
    "empty every signature": ["signatures_all_stripped", "signatures_all_stripped_without_keys"],
    "change only a query column": ["column_changed"],
    "delete one middle row": ["entry_deleted", "record_deleted"],
    "delete, renumber and re-chain without the key": ["entry_deleted_and_renumbered"],
    "delete the first three rows": ["entries_deleted_at_the_beginning"],
    "truncate everything": ["empty"],
    "swap two bodies with salts": ["content_swapped_between_records"],
    "swap two positions": ["entries_swapped"],
    "replay an old row": ["entry_replayed", "record_sealed_twice"],
    "move in a record of another log": ["record_of_another_log", "entry_of_another_identity"],
    "delete a body without erasure record": ["content_deleted_without_erasure", "content_null_not_withheld"],
    "proper erasure": ["good_erased", "good_erased_by_range"],
    "replace a salt": ["content_salt_replaced"],
    "set a time back": ["time_set_back"],
    "revoke record with a forged reason": ["revocation_forged", "key_added_by_stranger_is_not_followed"],
    "use a revoked key": ["revoked_writer_goes_on", "revoked_log_key_goes_on"],
}


def test_the_attacks_name_vectors_that_exist():
    assert {name for names in ATTACKS.values() for name in names} <= set(CASES)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_never_intact(attack):
    for name in ATTACKS[attack]:
        case = case_named(name)
        trust = trust_from_json(json.dumps(case.trust)) if case.trust else None
        verdict = case.log.verify(case.keys, trust=trust, level=case.level, age_s=case.age_s).verdict
        assert (verdict is Verdict.INTACT) == name.startswith("good_")
        assert case.expected or name.startswith("good_")


def rechained(log: SampleLog) -> SampleLog:
    log.reseal()
    return log


def forged_tail(log: SampleLog, key: Key) -> SampleLog:
    """A record and an entry of the attacker's own making, under the genuine key ids and the right parent."""
    stored = log.seal(log.decision("forged", key=key), log_key=key)
    record, entry = stored.record, stored.entry
    header = record.header.replace(key.kid.encode(), WRITER.kid.encode())
    digest = record_hash(header)
    signature = key.sign(SIGNATURE_DOMAIN + digest)
    forged = log.seal(replace(record, header=header, record_hash=digest, signature=signature)).entry
    data = forged.entry.replace(b'"sequence_number":8', b'"sequence_number":7').replace(
        forged.parent_hash.hex().encode(), entry.parent_hash.hex().encode()
    )
    hashed = entry_hash(data)
    log.entries[-2:] = [replace(log.entries[-1], entry=Entry(data, hashed, key.sign(ENTRY_DOMAIN + hashed)))]
    return log


def test_a_forged_record_at_the_tail_with_the_right_parent():
    assert codes(forged_tail(base_log(), STRANGER).verify()) == [("BAD_MAC", 7), ("BAD_SIGNATURE", 7)]


def test_editing_a_header_and_chaining_again_without_the_writers_key():
    """The sealer's key leaked, the writer's did not."""
    log = base_log()
    record = log.entries[3].record
    log.entries[3] = replace(log.entries[3], record=rehashed(record, edited(record, "2026-", "2025-")))
    assert codes(rechained(log).verify()) == [("BAD_SIGNATURE", 3)]


def test_the_writers_key_leaked_and_the_sealers_did_not():
    log = base_log()
    record = log.entries[3].record
    log.entries[3] = replace(log.entries[3], record=rehashed(record, edited(record, "2026-", "2025-"), OTHER_WRITER))
    assert codes(log.verify()) == [("HEADER_ALTERED", 3), ("BAD_SIGNATURE", 3)]


def test_a_whole_log_rebuilt_with_fresh_keys_cannot_vouch_for_itself():
    """Everything is consistent, under keys that nobody here holds."""
    fake = SampleLog(writer=STRANGER, log_key=STRANGER)
    fake.seal(fake.decision("forged"))
    verification = fake.verify(KEYS)
    assert verification.verdict is Verdict.CANNOT_JUDGE
    assert {code for code, _ in codes(verification)} == {"KEY_NOT_HELD"}
    trust = trust_of(base_log(), complete=True)
    judged = fake.verify(KEYS, trust=trust_from_json(json.dumps(trust)))
    assert judged.verdict is Verdict.TAMPERED
    assert {"UNKNOWN_KEY"} <= {code for code, _ in codes(judged)}


def checkpoint_of(log: SampleLog):
    hashes = [stored.entry.entry_hash for stored in log.entries]
    key = Ed25519Key(bytes(range(32)))
    note = make_checkpoint(log=log.log, log_uid=log.log_uid, size=len(hashes), root=root(hashes), key=key)
    return parse_checkpoint(note)


def delete_last_two(log):
    del log.entries[-2:]


def delete_middle_and_rechain(log):
    del log.entries[3]
    log.reseal()


def edit_and_rechain(log):
    log.entries[3] = replace(log.entries[3], record=log.decision("something else"))
    log.reseal()


def delete_a_writers_every_record(log):
    log.entries = [stored for stored in log.entries if stored.record.signing_key_id != OTHER_WRITER.kid]
    log.reseal()


def restore_an_old_state_and_go_on(log):
    del log.entries[4:]
    for _ in range(4):
        log.seal(log.decision("after the restore"))


@pytest.mark.parametrize(
    "attack",
    [
        delete_last_two,
        delete_middle_and_rechain,
        edit_and_rechain,
        delete_a_writers_every_record,
        restore_an_old_state_and_go_on,
    ],
)
def test_what_only_a_checkpoint_outside_can_show(attack):
    """With the keys, or by cutting the tail, the log alone looks clean; the checkpoint kept outside does not fit any more."""
    log = base_log()
    if attack is not restore_an_old_state_and_go_on and attack is not delete_last_two:
        log.entries[-1] = replace(log.entries[-1], record=log.decision("no references"))
        log.reseal()
    outside = checkpoint_of(log)
    attack(log)
    assert_intact(log.verify())
    assert log.verify().coverage.anchored_up_to is None
    assert not checkpoint_matches(outside, [stored.entry.entry_hash for stored in log.entries])


def test_an_honest_log_that_grew_fits_its_old_checkpoint():
    log = base_log()
    outside = checkpoint_of(log)
    log.seal(log.decision())
    assert checkpoint_matches(outside, [stored.entry.entry_hash for stored in log.entries])


def test_a_log_of_the_same_name_does_not_pass_for_ours():
    """Another genesis, the same keys: a new log in the old one's place, against a trust file that fixes the identity."""
    ours, theirs = base_log(), SampleLog(seed="another")
    theirs.seal(theirs.decision())
    trust = trust_from_json(json.dumps(trust_of(ours, complete=False)))
    assert {code for code, _ in codes(theirs.verify(trust=trust))} == {"FOREIGN_RECORD"}


def test_checking_goes_on_after_a_finding():
    log = base_log()
    log.replace_part(2, 3, data=b"x")
    log.replace_record(4, signature=bytes(32))
    log.replace_entry(5, entry_mac=bytes(32))
    del log.entries[3]
    assert codes(log.verify()) == [
        ("CONTENT_ALTERED", 2),
        ("MISSING", 3),
        ("LINK_BROKEN", 4),
        ("BAD_SIGNATURE", 4),
        ("BAD_MAC", 5),
    ]
    assert log.verify().coverage.authenticated_up_to == 2


def test_the_log_key_alone_cannot_make_a_record():
    log = base_log()
    log.seal(log.decision("forged", key=LOG_KEY))
    assert codes(log.verify()) == [("UNKNOWN_KEY", 7)]
