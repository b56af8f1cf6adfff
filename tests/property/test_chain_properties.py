"""Properties of the record format: canonical bytes equal the oracle, and any single change of a log is found and located."""

import contextlib
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs_otel.chain.canonical import canonical_bytes, jcs, normalised
from amfs_otel.chain.check import check_record
from amfs_otel.chain.findings import Verdict
from amfs_otel.chain.header import read_header
from amfs_otel.chain.jcs import is_plain
from amfs_otel.chain.keys import Key, KeyRing
from amfs_otel.chain.lines import line_from_entry
from amfs_otel.chain.merkle import (
    Frontier,
    consistency_proof,
    inclusion_proof,
    root,
    verify_consistency,
    verify_inclusion,
)
from amfs_otel.chain.parts import PartInput
from amfs_otel.chain.record import record_from_bytes, record_to_bytes
from amfs_otel.chain.skeleton import compose, decompose, prepare_text
from amfs_otel.chain.verify import LogVerifier
from amfs_otel.errors import FormatError
from tests.vectors.sample_log import KEYS, LOG_KEY, OTHER_WRITER, WRITER, SampleLog, base_log

SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | SAFE | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text(st.characters()) | st.integers() | st.booleans(), inner, max_size=4)
    ),
    max_leaves=20,
)

PATIENT = settings(deadline=None)
"""A busy machine is no failure."""

ROOT = Path(__file__).parents[2]
BASE = base_log()


def offline():
    spec = importlib.util.spec_from_file_location("verify_offline", ROOT / "examples" / "verify_offline.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OFFLINE = offline()


@PATIENT
@given(JSON)
def test_jcs_equals_the_oracle(value):
    assert jcs(value) == rfc8785.dumps(value)


@PATIENT
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_equal_the_oracle(value):
    assert jcs(value) == rfc8785.dumps(value)


@PATIENT
@given(JSON)
def test_where_the_fast_path_is_taken_it_is_right(value):
    if is_plain(value):
        fast = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        assert fast == rfc8785.dumps(value)


@PATIENT
@given(ANYTHING)
def test_any_value_has_canonical_bytes(value):
    data = canonical_bytes(value)
    assert data == rfc8785.dumps(normalised(value))
    assert b"\\u0000" not in data
    json.loads(data)


@PATIENT
@given(st.sets(st.integers() | st.text(st.characters()) | st.binary(), max_size=6))
def test_the_order_within_a_set_does_not_show(value):
    assert canonical_bytes(value) == canonical_bytes(frozenset(value) | value)


@PATIENT
@given(st.dictionaries(st.text(st.characters(), max_size=3) | st.integers(0, 3), st.integers(), max_size=6))
def test_no_two_keys_fall_together(value):
    tree = normalised(value)
    assert len(tree.get("$map", tree)) == len(value) or not value


@PATIENT
@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40), st.data())
def test_proofs(leaves, data):
    top = root(leaves)
    index = data.draw(st.integers(0, len(leaves) - 1))
    assert verify_inclusion(leaves[index], index, len(leaves), inclusion_proof(leaves, index), top)
    old = data.draw(st.integers(1, len(leaves)))
    assert verify_consistency(old, len(leaves), root(leaves[:old]), top, consistency_proof(leaves, old))
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    assert frontier.root() == top


@PATIENT
@given(
    st.lists(st.binary(max_size=32), max_size=8),
    st.integers(-1, 20),
    st.integers(-1, 20),
    st.binary(min_size=32, max_size=32),
)
def test_a_made_up_proof_proves_nothing(proof, index, size, claimed):
    assert not verify_inclusion(bytes(32), index, size, proof, claimed) or (
        size == 1 and claimed == bytes(32) and not proof
    )
    assert not verify_consistency(index, size, bytes(32), claimed, proof) or (
        index == size and claimed == bytes(32) and not proof
    )


@PATIENT
@given(st.lists(st.tuples(st.text(st.characters()), st.booleans(), st.booleans()), max_size=5), JSON)
def test_what_is_composed_is_decomposed(texts, value):
    prepared = [
        prepare_text(canonical_bytes(text), "m", "application/json", keep, WRITER.digest_key() if digest else None)
        for text, keep, digest in texts
    ]
    facts = {
        "schema": "x",
        "value": normalised([text for text, *_ in texts]),
        "texts": [{"$t": n} for n in range(len(texts))],
    }
    log = SampleLog()
    record = log.record("decision", compose(facts, prepared))
    assert check_record(record, WRITER) == []
    back = decompose(record_from_bytes(record_to_bytes(record)))
    assert back.facts["texts"] == facts["texts"]
    assert [text.data for text in back.texts] == [text.data for text in prepared]
    assert [text.length for text in back.texts] == [text.length_bytes for text in prepared]


@PATIENT
@given(st.binary(max_size=200))
def test_no_bytes_make_the_readers_fail_otherwise(data):
    for read in (read_header, record_from_bytes):
        with contextlib.suppress(FormatError):
            read(data)


FIELDS = ("header", "record_hash", "signature", "entry", "entry_hash", "entry_mac", "commitment", "salt", "data")


def flipped(value: bytes, position: int, bit: int) -> bytes:
    position %= len(value)
    return value[:position] + bytes([value[position] ^ 1 << bit]) + value[position + 1 :]


def damaged(stored, field, which, position, bit):
    """The stored entry with one bit of one stored value flipped; None where there is no such value."""
    record, entry = stored.record, stored.entry
    if field in ("entry", "entry_hash", "entry_mac"):
        return replace(stored, entry=replace(entry, **{field: flipped(getattr(entry, field), position, bit)}))
    if field in ("header", "record_hash", "signature"):
        return replace(stored, record=replace(record, **{field: flipped(getattr(record, field), position, bit)}))
    if not record.parts:
        return None
    which %= len(record.parts)
    if field == "commitment":
        commitments = list(record.commitments)
        commitments[which] = flipped(commitments[which], position, bit)
        return replace(stored, record=replace(record, commitments=tuple(commitments)))
    part = record.parts[which]
    changed = replace(part, **{field: flipped(getattr(part, field), position, bit)})
    return replace(stored, record=replace(record, parts=(*record.parts[:which], changed, *record.parts[which + 1 :])))


def verified(entries):
    verifier = LogVerifier(BASE.log, KeyRing(KEYS), now_ns=BASE.now_ns)
    for stored in entries:
        verifier.feed(stored)
    return verifier.finish()


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, len(BASE.entries) - 1),
    st.sampled_from(FIELDS),
    st.integers(0, 10),
    st.integers(0, 10_000),
    st.integers(0, 7),
)
def test_any_flipped_bit_is_found_and_located(at, field, which, position, bit):
    broken = damaged(BASE.entries[at], field, which, position, bit)
    if broken is None:
        return
    verification = verified([*BASE.entries[:at], broken, *BASE.entries[at + 1 :]])
    assert verification.verdict is Verdict.TAMPERED
    assert at in {finding.sequence_number for finding in verification.findings}
    assert {finding.sequence_number for finding in verification.findings} <= {at, at + 1, *range(at, 7)}


@settings(deadline=None, max_examples=60)
@given(st.permutations(range(len(BASE.entries))), st.integers(1, len(BASE.entries)))
def test_any_other_order_or_missing_middle_is_found(order, count):
    entries = [BASE.entries[at] for at in order[:count]]
    verification = verified(entries)
    if [stored.entry.sequence_number for stored in entries] == list(range(len(entries))):
        # A prefix is a valid log: only a checkpoint or a receipt kept outside shows a tail that was cut off.
        assert verification.verdict in (Verdict.INTACT, Verdict.TAMPERED)
    else:
        assert verification.verdict is Verdict.TAMPERED


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(BASE.entries) - 1), st.sampled_from(FIELDS[:6]), st.integers(0, 10_000), st.integers(0, 6))
def test_the_offline_verifier_finds_the_same_flipped_bits(at, field, position, bit):
    broken = damaged(BASE.entries[at], field, 0, position, bit)
    entries = [*BASE.entries[:at], broken, *BASE.entries[at + 1 :]]
    try:
        lines = [line_from_entry(stored) for stored in entries]
    except UnicodeDecodeError:
        return
    answer = OFFLINE.verify(lines, log=BASE.log, secrets=[key.secret for key in KEYS], now_s=BASE.now_ns / 1e9)
    ours = [[finding.code, finding.sequence_number] for finding in verified(entries).findings]
    theirs = [[finding["code"], finding["sequence_number"]] for finding in answer["findings"]]
    assert sorted(ours, key=str) == sorted(theirs, key=str)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.booleans()), max_size=8))
def test_an_honest_log_of_any_content_is_intact(decisions):
    log = SampleLog()
    log.seal(log.key_record("add", OTHER_WRITER))
    for text, other in decisions:
        log.seal(
            log.record(
                "decision", [PartInput("s", b"{}"), PartInput("m", text.encode())], key=OTHER_WRITER if other else None
            )
        )
    verification = log.verify()
    assert verification.findings == ()
    assert verification.coverage.authenticated_up_to == len(log.entries) - 1


@PATIENT
@given(st.binary(min_size=32, max_size=100), st.binary(max_size=200))
def test_one_key_never_verifies_anothers_signature(secret, message):
    key = Key(secret)
    assert key.verifies(message, key.sign(message))
    assert secret == LOG_KEY.secret or not LOG_KEY.verifies(message, key.sign(message))
