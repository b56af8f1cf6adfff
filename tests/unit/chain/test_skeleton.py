import hmac
import json
from dataclasses import replace

import pytest

from amfs_otel.chain.record import Record, make_record, new_record_id
from amfs_otel.chain.skeleton import Decomposed, compose, decompose, prepare_text
from tests.vectors.sample_log import START_NS, WRITER

FACTS = {
    "schema": "amfs-otel/decision/1",
    "agent": {"$n": "deploy-agent"},
    "temperature": 0.7,
    "events": [
        {"tool": {"$n": "search"}, "input": {"$t": 0}, "duration_ms": 12},
        {"tool": {"$n": "deploy-agent"}, "input": {"$t": 1}, "result": {"$t": 2}},
    ],
}


def texts(*, keep=(True, False, True), digest=True):
    key = WRITER.digest_key() if digest else None
    return [
        prepare_text(data, klass, "text/plain", kept, key)
        for data, klass, kept in zip((b"hello", b"secret", "Größe".encode()), ("m", "m", "d"), keep, strict=True)
    ]


def recorded(facts=FACTS, prepared=None) -> Record:
    return make_record(
        kind="decision",
        log="default",
        record_id=new_record_id(START_NS),
        session="0" * 32,
        parts=compose(facts, texts() if prepared is None else prepared),
        key=WRITER,
        captured_at_ns=START_NS,
    )


def erase(record: Record, *numbers: int) -> Record:
    return replace(record, parts=tuple(part for part in record.parts if part.number not in numbers))


def test_the_parts_are_as_the_format_says():
    record = recorded()
    assert record.classes == "simmdh"
    assert record.withheld == (4,)
    skeleton = json.loads(record.parts[0].data)
    assert skeleton["agent"] == {"$s": 0}
    assert skeleton["events"][0]["input"] == {"$part": 3, "len": 5, "media": "text/plain"}
    assert json.loads(record.parts[1].data) == ["deploy-agent", "search"]
    assert record.parts[3].data is None
    assert record.parts[3].salt is not None
    assert json.loads(record.parts[5].data)["4"] == hmac.digest(WRITER.digest_key(), b"secret", "sha256")[:16].hex()


def test_no_string_of_the_application_stands_in_header_or_skeleton():
    record = recorded()
    for word in (b"deploy-agent", b"search", b"hello", b"secret"):
        assert word not in record.header
        assert word not in record.parts[0].data


def test_a_withheld_text_stands_nowhere():
    assert b"secret" not in b"".join(part.data or b"" for part in recorded().parts)


def test_decompose_gives_the_facts_back():
    back = decompose(recorded())
    assert back.facts == {
        "schema": "amfs-otel/decision/1",
        "agent": "deploy-agent",
        "temperature": 0.7,
        "events": [
            {"tool": "search", "input": {"$t": 0}, "duration_ms": 12},
            {"tool": "deploy-agent", "input": {"$t": 1}, "result": {"$t": 2}},
        ],
    }
    assert [text.data for text in back.texts] == [b"hello", None, "Größe".encode()]
    assert [text.withheld_reason for text in back.texts] == [None, "policy", None]
    assert [text.length for text in back.texts] == [5, 6, 7]
    assert [text.part for text in back.texts] == [3, 4, 5]
    assert all(len(text.digest) == 32 for text in back.texts)
    assert not back.names_erased


def test_erased_parts_are_told_apart_from_withheld_ones():
    back = decompose(erase(recorded(), 2, 3, 6))
    assert back.names_erased
    assert back.facts["agent"] is None
    assert [text.withheld_reason for text in back.texts] == ["erased", "policy", None]
    assert back.texts[0].length == 5
    assert back.texts[0].digest is None


def test_an_erased_skeleton_leaves_the_texts():
    back = decompose(erase(recorded(), 1))
    assert back.facts is None
    assert back.texts[0].data == b"hello"


def test_no_digest_no_part():
    record = recorded(prepared=texts(digest=False))
    assert record.classes == "simmd"
    assert decompose(record).texts[0].digest is None


def test_a_record_without_texts_and_names():
    assert decompose(recorded({"schema": "x"}, [])) == Decomposed({"schema": "x"}, [], names_erased=False)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "$n", "ü", ""])
def test_any_name_is_kept(name):
    back = decompose(recorded({"schema": "x", "agent": {"$n": name}}, []))
    assert back.facts["agent"] == name.replace("\0", "\ufffd").replace("\ud800", "\ufffd")


def test_values_that_json_cannot_hold_are_normalised():
    back = decompose(recorded({"schema": "x", "n": float("nan"), "big": 2**63}, []))
    assert back.facts == {"schema": "x", "n": {"$float": "NaN"}, "big": {"$int": "9223372036854775808"}}


def test_equal_texts_have_equal_digests_and_other_commitments():
    one, two = (prepare_text(b"same", "m", "text/plain", True, WRITER.digest_key()) for _ in range(2))
    assert one.digest == two.digest
    assert one.commitment != two.commitment
