import base64

import pytest

from amfs_otel.chain.checkpoint import (
    checkpoint_matches,
    disagreement,
    make_checkpoint,
    origin_of,
    parse_checkpoint,
    public_key_text,
)
from amfs_otel.chain.keys import Ed25519Key, PublicKey
from amfs_otel.chain.merkle import root
from amfs_otel.errors import FormatError
from tests.vectors.sample_log import base_log

KEY = Ed25519Key(bytes(range(32)))
STRANGER = Ed25519Key(bytes(32))
HASHES = [stored.entry.entry_hash for stored in base_log().entries]
GIVEN = {"log": "default", "log_uid": "ab" * 16, "size": len(HASHES), "root": root(HASHES), "key": KEY}


def test_a_checkpoint_is_three_lines_in_a_signed_note():
    note = make_checkpoint(**GIVEN)
    lines = note.split("\n")
    assert lines[:2] == [origin_of("default", "ab" * 16), "7"]
    assert base64.b64decode(lines[2]) == root(HASHES)
    assert lines[3] == ""
    assert lines[4].startswith("— amfs-otel/default/")
    checkpoint = parse_checkpoint(note)
    assert checkpoint.is_signed_by(KEY.public)
    assert not checkpoint.is_signed_by(STRANGER.public)
    assert not checkpoint.is_signed_by(KEY.public, "another name")
    assert checkpoint_matches(checkpoint, HASHES)
    assert checkpoint_matches(checkpoint, [*HASHES, bytes(32)])
    assert not checkpoint_matches(checkpoint, HASHES[:-1])
    assert not checkpoint_matches(checkpoint, [bytes(32), *HASHES[1:]])


def test_any_change_of_the_text_breaks_the_signature():
    note = make_checkpoint(**GIVEN)
    for old, new in (("\n7\n", "\n8\n"), ("default", "defaulT")):
        assert not parse_checkpoint(note.replace(old, new, 1)).is_signed_by(KEY.public)


def test_the_example_of_go_signed_notes_reads_the_same():
    # Public example of golang.org/x/mod/sumdb/note.
    verifier = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    blob = base64.b64decode(
        "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    )
    key = PublicKey(base64.b64decode(verifier.split("+", 2)[2])[1:])
    assert public_key_text("PeterNeumann", key) == verifier
    assert blob[:4].hex() == "c74f20a3"
    assert key.verifies(text.encode(), blob[4:])


def test_signatures_of_others_stand_beside_ours():
    note = make_checkpoint(**GIVEN)
    other = make_checkpoint(**GIVEN | {"key": STRANGER, "name": "witness.example"})
    both = parse_checkpoint(note + other.split("\n\n")[1])
    assert both.is_signed_by(KEY.public)
    assert both.is_signed_by(STRANGER.public, "witness.example")


def test_two_roots_for_one_size_are_a_fork():
    one = parse_checkpoint(make_checkpoint(**GIVEN))
    two = parse_checkpoint(make_checkpoint(**GIVEN | {"root": bytes(32)}))
    longer = parse_checkpoint(make_checkpoint(**GIVEN | {"size": 8, "root": bytes(32)}))
    assert disagreement(one, two)
    assert not disagreement(one, one)
    assert not disagreement(one, longer)


def test_a_verifier_key_for_other_tools():
    name, key_hash, encoded = public_key_text("example.org/log", KEY.public).split("+", 2)
    assert name == "example.org/log"
    assert base64.b64decode(encoded) == b"\x01" + KEY.public.public
    signature = parse_checkpoint(make_checkpoint(**GIVEN | {"name": name})).signatures[0]
    assert signature.key_hash.hex() == key_hash


@pytest.mark.parametrize("change", [{"size": 0}, {"root": b"short"}, {"name": "a b"}, {"name": "a+b"}])
def test_impossible_checkpoints_are_refused(change):
    with pytest.raises(FormatError):
        make_checkpoint(**GIVEN | change)


def damaged_notes():
    note = make_checkpoint(**GIVEN)
    body, signature = note.split("\n\n")
    origin, size, encoded = body.split("\n")
    yield ""
    yield body
    yield body + "\n\n"
    yield note[:-1]
    yield note + "x\n"
    yield f"{origin}\n0{size}\n{encoded}\n\n{signature}"
    yield f"{origin}\n-1\n{encoded}\n\n{signature}"
    yield f"{origin}\n{size}\n{encoded}\nextension\n\n{signature}"
    yield f"{origin}\n{size}\nAAAA\n\n{signature}"
    yield f"{origin}\n{size}\n{encoded[:-1]}\n\n{signature}"
    yield f"\n{size}\n{encoded}\n\n{signature}"
    yield f"{body}\n\n{signature.replace('— ', '- ')}"
    yield f"{body}\n\n— name AAAA\n"
    yield f"{body}\n\n— name ****\n"


@pytest.mark.parametrize("note", list(damaged_notes()))
def test_what_is_no_signed_checkpoint_is_refused(note):
    with pytest.raises(FormatError):
        parse_checkpoint(note)
