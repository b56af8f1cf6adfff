import hashlib

import pytest

from amfs_otel.chain.merkle import (
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)
from amfs_otel.errors import FormatError

LEAVES = [leaf_hash(bytes([number])) for number in range(70)]
SIZES = [*range(1, 18), 31, 32, 33, 63, 64, 65, 69]


def reference_root(leaves):
    """RFC 6962 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(reference_root(leaves[:split]), reference_root(leaves[split:]))


def test_known_answers():
    # The test vectors of the Certificate Transparency code base.
    data = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [leaf_hash(bytes.fromhex(text)) for text in data]
    assert root([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert root(leaves[:1]).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert root(leaves).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.parametrize("size", [0, *SIZES])
def test_roots_equal_the_definition(size):
    assert root(LEAVES[:size]) == reference_root(LEAVES[:size])


@pytest.mark.parametrize("size", SIZES)
def test_every_inclusion_proof_holds_and_no_other(size):
    leaves = LEAVES[:size]
    top = root(leaves)
    for index, leaf in enumerate(leaves):
        proof = inclusion_proof(leaves, index)
        assert verify_inclusion(leaf, index, size, proof, top)
        assert not verify_inclusion(leaf, (index + 1) % (size + 1), size, proof, top)
        assert not verify_inclusion(leaf_hash(b"other"), index, size, proof, top)
        assert not verify_inclusion(leaf, index, size, [*proof, bytes(32)], top)
        assert not verify_inclusion(leaf, index, size, proof, bytes(32))
        if proof:
            assert not verify_inclusion(leaf, index, size, proof[:-1], top)
            assert not verify_inclusion(leaf, index, size, [bytes(32), *proof[1:]], top)


@pytest.mark.parametrize("new", SIZES)
def test_every_consistency_proof_holds_and_no_other(new):
    leaves = LEAVES[:new]
    top = root(leaves)
    for old in range(1, new + 1):
        before = root(leaves[:old])
        proof = consistency_proof(leaves, old)
        assert verify_consistency(old, new, before, top, proof)
        assert not verify_consistency(old, new, bytes(32), top, proof)
        assert not verify_consistency(old, new, before, bytes(32), proof)
        assert not verify_consistency(old, new, before, top, [*proof, bytes(32)])
        if proof:
            assert not verify_consistency(old, new, before, top, proof[:-1])
            assert not verify_consistency(old, new, before, top, [bytes(32), *proof[1:]])


def test_impossible_claims_are_false_and_impossible_requests_refused():
    assert not verify_inclusion(LEAVES[0], -1, 1, [], LEAVES[0])
    assert not verify_inclusion(LEAVES[0], 0, 0, [], LEAVES[0])
    assert not verify_inclusion(b"short", 0, 1, [], b"short")
    assert not verify_consistency(0, 1, LEAVES[0], LEAVES[0], [])
    assert not verify_consistency(2, 1, LEAVES[0], LEAVES[0], [])
    for request in (
        lambda: inclusion_proof(LEAVES, 70),
        lambda: inclusion_proof([], 0),
        lambda: consistency_proof(LEAVES, 0),
    ):
        with pytest.raises(FormatError):
            request()


def test_a_frontier_can_be_kept_and_taken_up():
    whole, taken_up = Frontier(), Frontier()
    for number, leaf in enumerate(LEAVES, 1):
        whole.append(leaf)
        taken_up = Frontier(taken_up.size, taken_up.nodes)
        taken_up.append(leaf)
        assert whole.root() == taken_up.root() == reference_root(LEAVES[:number])
        assert whole.size == number
    for size, nodes in ((1, []), (2, [bytes(32)] * 2), (1, [b"short"]), (-1, [])):
        with pytest.raises(FormatError):
            Frontier(size, nodes)
