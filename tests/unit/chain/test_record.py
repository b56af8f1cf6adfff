import json
import uuid
from dataclasses import replace

import pytest

from amfs_otel.chain.check import check_record
from amfs_otel.chain.entry import FIRST_PARENT, make_entry, read_entry
from amfs_otel.chain.genesis import genesis_record, key_fact, key_record, new_log_uid
from amfs_otel.chain.header import read_header
from amfs_otel.chain.keys import Ed25519Key
from amfs_otel.chain.parts import PartInput
from amfs_otel.chain.record import (
    Record,
    Ref,
    make_record,
    new_record_id,
    part_commitment,
    record_from_bytes,
    record_to_bytes,
)
from amfs_otel.errors import FormatError
from tests.vectors.sample_log import LOG_KEY, START_NS, STRANGER, WRITER, SampleLog, base_log

SESSION = "ab" * 16


def make(**changes) -> Record:
    given = {
        "kind": "decision",
        "log": "default",
        "record_id": new_record_id(START_NS),
        "session": SESSION,
        "parts": [PartInput("s", b"{}"), PartInput("i", b"[]")],
        "key": WRITER,
        "captured_at_ns": START_NS,
    } | changes
    return make_record(**given)


def test_the_properties_are_those_of_the_header():
    ref = Ref("amends", new_record_id(0), None)
    record = make(trace="1" * 32, span="2" * 16, refs=[ref])
    assert record.kind == "decision"
    assert record.log == "default"
    assert record.session == SESSION
    assert (record.trace, record.span) == ("1" * 32, "2" * 16)
    assert record.signing_key_id == WRITER.kid
    assert record.captured_at == "2026-05-28T20:26:40.000000Z"
    assert record.classes == "si"
    assert record.withheld == ()
    assert record.refs == (ref,)
    assert record.content_hash == json.loads(record.header)["content_hash"]
    assert check_record(record, WRITER) == []


def test_a_record_id_is_a_uuid7_in_order_of_time():
    ids = [new_record_id(START_NS + step) for step in (0, 1_000, 1_000_000, 10**12)]
    assert ids == sorted(ids)
    parsed = uuid.UUID(ids[0])
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 80 == START_NS // 10**6


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "thought"},
        {"log": "my log"},
        {"log": ""},
        {"log": "ünï"},
        {"session": "ann@example.org"},
        {"record_id": "1"},
        {"trace": "0x1"},
        {"span": ""},
        {"refs": [Ref("likes", new_record_id(0))]},
        {"refs": [Ref("amends", "DEP-500")]},
        {"refs": [Ref("amends", new_record_id(0), "short")]},
        {"kind": "erasure"},
        {"erases": [(new_record_id(0), 1)]},
        {"kind": "erasure", "erases": [(new_record_id(0), 0)]},
        {"kind": "erasure", "erases": []},
        {"kind": "erasure", "erase_range": {"before": "yesterday", "class": "m"}},
        {"kind": "key", "key_fact": key_fact(op="borrow", role="writer", kid="0" * 16, name="", by="")},
        {"kind": "key", "key_fact": key_fact(op="add", role="king", kid="0" * 16, name="", by="")},
        {"kind": "key", "key_fact": key_fact(op="add", role="writer", kid="0" * 16, name="\0", by="")},
        {"kind": "key", "key_fact": key_fact(op="add", role="writer", kid="0" * 16, name="", by="ü")},
        {"captured_at_ns": 10**30},
        {"parts": [PartInput("m", None)]},
        {"parts": [PartInput("m", None, bytes(32))]},
        {"parts": [PartInput("m", b"x", b"short")]},
        {"parts": [PartInput("x", b"x")]},
    ],
)
def test_what_the_header_cannot_hold_is_refused(changes):
    with pytest.raises(FormatError):
        make(**changes)


def test_check_record_finds_and_names():
    record = make()
    codes = lambda broken, key=WRITER: [finding.code for finding in check_record(broken, key)]  # noqa: E731
    assert codes(record, STRANGER) == ["BAD_SIGNATURE"]
    assert codes(record, None) == []
    assert codes(replace(record, signature=b""), None) == ["BAD_SIGNATURE"]
    assert codes(replace(record, header=record.header + b" ")) == ["BAD_HEADER", "HEADER_ALTERED", "BAD_SIGNATURE"]
    assert codes(replace(record, parts=record.parts[:1])) == ["CONTENT_MISSING"]
    assert codes(replace(record, parts=(replace(record.parts[0], data=b"[]"), record.parts[1]))) == ["CONTENT_ALTERED"]
    assert codes(replace(record, commitments=record.commitments[:1])) == ["CONTENT_ALTERED", "CONTENT_ALTERED"]
    assert codes(replace(record, header=b"\xff")) == ["BAD_HEADER", "HEADER_ALTERED", "BAD_SIGNATURE"]


def test_an_ed25519_writer():
    key = Ed25519Key(bytes(range(32)))
    record = make(key=key)
    assert record.head["alg"] == "Ed25519"
    assert check_record(record, key.public) == []
    assert [finding.code for finding in check_record(replace(record, signature=bytes(64)), key.public)] == [
        "BAD_SIGNATURE"
    ]


def records():
    log = base_log()
    salt = bytes(32)
    withheld = make(parts=[PartInput("s", b"{}"), PartInput("m", None, salt, part_commitment(salt, b"x"))])
    whole = [stored.record for stored in log.entries]
    erased = replace(whole[2], parts=whole[2].parts[:1])
    nulls = replace(whole[2], parts=tuple(replace(part, salt=None, data=None) for part in whole[2].parts))
    empty_part = make(parts=[PartInput("s", b"")])
    damaged = replace(whole[2], header=b"\xff\0", signature=b"", record_hash=b"")
    return [*whole, withheld, erased, nulls, empty_part, damaged]


@pytest.mark.parametrize("record", records())
def test_the_wire_form_keeps_every_byte(record):
    assert record_from_bytes(record_to_bytes(record)) == record


def test_a_damaged_wire_form_is_refused_at_every_length():
    data = record_to_bytes(make())
    for length in range(len(data)):
        with pytest.raises(FormatError):
            record_from_bytes(data[:length])
    with pytest.raises(FormatError):
        record_from_bytes(data + b"\0")
    with pytest.raises(FormatError):
        record_from_bytes(b"XXXX" + data[4:])


def test_a_huge_count_in_a_wire_form_costs_nothing():
    data = bytearray(record_to_bytes(make()))
    with pytest.raises(FormatError):
        record_from_bytes(bytes(data[:4] + b"\xff\xff\xff\xff" + data[8:]))


def test_the_strict_reader_agrees_with_a_json_reader():
    for stored in base_log().entries:
        header, members = read_header(stored.record.header), json.loads(stored.record.header)
        assert header.record_id == members["id"]
        assert header.signing_key_id == members["signing_key_id"]
        assert json.loads(header.trace) == members["trace"]
        assert json.loads(header.refs or "[]") == members.get("refs", [])
        fields, entry = read_entry(stored.entry.entry), json.loads(stored.entry.entry)
        assert fields._asdict() | {"sequence_number": int(fields.sequence_number), "v": 1} == entry


def test_entries():
    record = make()
    given = {
        "log": "default",
        "log_uid": "cd" * 16,
        "sequence_number": 0,
        "parent_hash": FIRST_PARENT,
        "record": (record.record_hash, record.signature),
        "sealed_at": "2026-05-28T20:26:40.000000Z",
        "log_key": LOG_KEY,
    }
    entry = make_entry(**given)
    assert entry.sequence_number == 0
    assert entry.parent_hash == FIRST_PARENT
    assert entry.record_hash == record.record_hash
    assert (entry.log, entry.log_uid, entry.log_key_id) == ("default", "cd" * 16, LOG_KEY.kid)
    assert entry.sealed_at == "2026-05-28T20:26:40.000000Z"
    for changes in (
        {"log": "a b"},
        {"log_uid": "x"},
        {"sequence_number": -1},
        {"sealed_at": "now"},
        {"parent_hash": b""},
    ):
        with pytest.raises(FormatError):
            make_entry(**given | changes)


def test_genesis_and_key_records():
    old = SampleLog().entries[-1].entry
    record = genesis_record(
        log="default",
        log_uid=new_log_uid(),
        writer_key=WRITER,
        log_key=LOG_KEY,
        now_ns=START_NS,
        old_head=old,
        policy={"content": "none"},
    )
    assert check_record(record, WRITER) == []
    fact = read_header(record.header).facts["genesis"]
    assert fact["old_head"]["entry_hash"] == old.entry_hash.hex()
    assert [key["role"] for key in fact["keys"]] == ["writer", "log"]
    public = Ed25519Key(bytes(32)).public
    fact = key_fact(op="add", role="checkpoint", kid="", name="checkpointer", by="operator", public=public)
    record = key_record(log="default", writer_key=WRITER, now_ns=START_NS, fact=fact)
    assert record.head["key"]["kid"] == public.kid
    with pytest.raises(FormatError):
        genesis_record(
            log="default",
            log_uid=new_log_uid(),
            writer_key=WRITER,
            log_key=LOG_KEY,
            now_ns=START_NS,
            policy={"rate": 0.5},
        )
