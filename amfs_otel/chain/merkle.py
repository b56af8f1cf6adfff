"""Merkle tree hashes and proofs of RFC 6962 2.1 and RFC 9162 2.1 (FORMAT 7.1, 7.2).

Leaves are given as leaf hashes; an entry hash is one already. Pure functions; verification never raises and never
trusts a proof's length.
"""

import hashlib
from collections.abc import Iterable, Sequence

from amfs_otel.errors import FormatError

HASH_BYTES = 32


def leaf_hash(data: bytes) -> bytes:
    """Return H(0x00 ‖ data), 32 bytes."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return H(0x01 ‖ left ‖ right), 32 bytes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(hashes: Iterable[bytes]) -> bytes:
    """Return the Merkle tree hash over leaf hashes; of none it is H of nothing. O(n) time, O(log n) memory."""
    frontier = Frontier()
    for leaf in hashes:
        frontier.append(leaf)
    return frontier.root()


def inclusion_proof(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Return the audit path of a leaf, from the leaf upwards (RFC 9162 2.1.3.1). O(n).

    Raises:
        FormatError: There is no such leaf.
    """
    if not 0 <= index < len(hashes):
        raise FormatError("no such leaf", where="FORMAT 7.2", expected=f"0 to {len(hashes) - 1}", got=index)
    if len(hashes) == 1:
        return []
    split = _split(len(hashes))
    if index < split:
        return [*inclusion_proof(hashes[:split], index), root(hashes[split:])]
    return [*inclusion_proof(hashes[split:], index - split), root(hashes[:split])]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected_root: bytes) -> bool:
    """Say whether a proof shows a leaf hash at an index of a tree of that size and root (RFC 9162 2.1.3.2)."""
    if not 0 <= index < size or not _are_hashes(leaf, expected_root, *proof):
        return False
    position, last, current = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            current = node_hash(sibling, current)
            while position and not position & 1:
                position >>= 1
                last >>= 1
        else:
            current = node_hash(current, sibling)
        position >>= 1
        last >>= 1
    return last == 0 and current == expected_root


def consistency_proof(hashes: Sequence[bytes], old_size: int) -> list[bytes]:
    """Return the proof that the tree of these leaves continues that of the first ``old_size`` (RFC 9162 2.1.4.1). O(n).

    Raises:
        FormatError: ``old_size`` is not within 1 to the number of leaves.
    """
    if not 1 <= old_size <= len(hashes):
        raise FormatError("no such tree", where="FORMAT 7.2", expected=f"1 to {len(hashes)}", got=old_size)
    return _subproof(hashes, old_size, whole=True)


def verify_consistency(old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether a proof shows that the new tree continues the old one (RFC 9162 2.1.4.2)."""
    if not 1 <= old_size <= new_size or not _are_hashes(old_root, new_root, *proof):
        return False
    if old_size == new_size:
        return not proof and old_root == new_root
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    if not path:
        return False
    position, last = old_size - 1, new_size - 1
    while position & 1:
        position >>= 1
        last >>= 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while position and not position & 1:
                position >>= 1
                last >>= 1
        else:
            new = node_hash(new, sibling)
        position >>= 1
        last >>= 1
    return last == 0 and old == old_root and new == new_root


class Frontier:
    """The right edge of a growing tree: a hash for each perfect subtree, largest first. Not thread-safe.

    Args:
        size: Number of leaves so far.
        nodes: The hashes for that size.

    Raises:
        FormatError: The number of hashes does not fit the size.
    """

    __slots__ = ("_nodes", "_size")

    def __init__(self, size: int = 0, nodes: Sequence[bytes] = ()) -> None:
        if size < 0 or size.bit_count() != len(nodes) or not _are_hashes(*nodes):
            raise FormatError("a frontier has one hash for each bit of its size", where="FORMAT 7.1", got=len(nodes))
        self._size = size
        self._nodes = list(nodes)

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self._size

    @property
    def nodes(self) -> tuple[bytes, ...]:
        """The hashes, to be kept and given to a later `Frontier`."""
        return tuple(self._nodes)

    def append(self, leaf: bytes) -> None:
        """Add the next leaf hash; amortised O(1)."""
        current, size = leaf, self._size
        while size & 1:
            current = node_hash(self._nodes.pop(), current)
            size >>= 1
        self._nodes.append(current)
        self._size += 1

    def root(self) -> bytes:
        """Return the Merkle tree hash over the leaves so far; O(log n)."""
        if not self._nodes:
            return hashlib.sha256(b"").digest()
        current = self._nodes[-1]
        for node in reversed(self._nodes[:-1]):
            current = node_hash(node, current)
        return current


def _subproof(hashes: Sequence[bytes], old_size: int, *, whole: bool) -> list[bytes]:
    if old_size == len(hashes):
        return [] if whole else [root(hashes)]
    split = _split(len(hashes))
    if old_size <= split:
        return [*_subproof(hashes[:split], old_size, whole=whole), root(hashes[split:])]
    return [*_subproof(hashes[split:], old_size - split, whole=False), root(hashes[:split])]


def _split(size: int) -> int:
    """Return the largest power of two below a size of at least 2."""
    return 1 << (size - 1).bit_length() - 1


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
