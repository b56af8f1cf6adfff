import base64
import copy
import hashlib
import hmac
import os

import pytest

from amfs_otel.chain.keys import (
    Ed25519Key,
    Key,
    KeyRing,
    PublicKey,
    ed25519_key_from_text,
    generate_key_text,
    key_from_file,
    key_from_text,
    kid_of,
)
from amfs_otel.errors import ConfigurationError, KeyUnavailable

RAW = bytes(range(32))


@pytest.mark.parametrize("length", [32, 64, 65, 200])
@pytest.mark.parametrize("message", [b"", b"short", b"x" * 1000])
def test_signatures_equal_hmac(length, message):
    secret = os.urandom(length)
    key = Key(secret)
    assert key.sign(message) == hmac.digest(secret, message, "sha256")
    assert key.verifies(message, hmac.digest(secret, message, "sha256"))
    assert not key.verifies(message, bytes(32))
    assert not key.verifies(message, b"")


def test_digest_key_and_kid_have_domains_of_their_own():
    key = Key(RAW)
    assert key.digest_key() == hmac.digest(RAW, b"amfs-otel/v1/digest\0", "sha256")
    assert key.kid == kid_of(RAW) == hashlib.sha256(b"amfs-otel/v1/kid\0" + RAW).hexdigest()[:16]


@pytest.mark.parametrize(
    "text",
    ["hex:" + RAW.hex(), "  base64:" + base64.b64encode(RAW).decode() + "\r\n", b"hex:" + RAW.hex().upper().encode()],
)
def test_key_text_is_decoded(text):
    assert key_from_text(text).secret == RAW


def test_other_text_is_its_utf8_bytes():
    assert key_from_text(" " + "ü" * 16 + "\n").secret == ("ü" * 16).encode()


@pytest.mark.parametrize(
    "text", ["", "short", "hex:00", "hex:zz" + "0" * 64, "base64:***", "hex:" + "0" * 63, "base64:" + "A" * 8]
)
def test_bad_key_text_is_refused_without_quoting_it(text):
    with pytest.raises(ConfigurationError) as caught:
        key_from_text(text, where="AMFS_OTEL_SIGNING_KEY")
    assert "AMFS_OTEL_SIGNING_KEY" in str(caught.value)
    assert len(text) < 6 or text not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_generated_key_is_new_and_readable():
    one, two = generate_key_text(), generate_key_text()
    assert one != two
    assert len(key_from_text(one).secret) == 32


def test_a_key_file(tmp_path):
    path = tmp_path / "writer.key"
    path.write_text(generate_key_text() + "\n")
    assert len(key_from_file(path).secret) == 32
    with pytest.raises(KeyUnavailable, match="missing"):
        key_from_file(tmp_path / "missing.key")


def test_a_secret_is_never_shown():
    key = Key(RAW)
    private = Ed25519Key(RAW)
    for shown in (repr(key), str(key), repr(private), repr(KeyRing([key]))):
        assert repr(RAW) not in shown
        assert RAW.hex() not in shown
    with pytest.raises(TypeError):
        copy.deepcopy(key)


def test_ed25519():
    # RFC 8032 7.1, test 2.
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    key = Ed25519Key(seed)
    assert key.public.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.kid == key.public.kid == kid_of(key.public.public)
    signature = key.sign(b"\x72")
    assert signature.hex().startswith("92a009a9f0d4cab8720e820b5f642540")
    assert key.public.verifies(b"\x72", signature)
    assert not key.public.verifies(b"\x73", signature)
    assert not key.public.verifies(b"\x72", b"")
    assert ed25519_key_from_text("hex:" + seed.hex()).public == key.public
    for make in (lambda: PublicKey(b"short"), lambda: Ed25519Key(b"short")):
        with pytest.raises(ConfigurationError):
            make()


def test_a_ring_finds_by_kid():
    key = Key(RAW)
    ring = KeyRing([key, key])
    assert len(ring) == 1
    assert ring.get(key.kid) is key
    assert ring.get("0" * 16) is None
    assert ring.kids() == (key.kid,)
