"""Salts: drawn in bulk, used once, in a forked child, too."""

import os

import pytest

from amfs_otel.chain.parts import SALT_BYTES, new_salt


def test_no_salt_is_drawn_twice():
    drawn = [new_salt() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert {len(salt) for salt in drawn} == {SALT_BYTES}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on, where a test before left a thread
def test_a_forked_child_has_salts_of_its_own():
    new_salt()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(new_salt() for _ in range(100)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        theirs = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == 100 * SALT_BYTES
    mine = {new_salt() for _ in range(100)}
    assert mine.isdisjoint(theirs[start : start + SALT_BYTES] for start in range(0, len(theirs), SALT_BYTES))
