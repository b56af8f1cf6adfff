"""Which keys a log has announced, as its own sealed genesis and key records say."""

from dataclasses import dataclass

from amfs_otel.chain.hashes import SIGNATURE_DOMAIN
from amfs_otel.chain.header import read_header
from amfs_otel.chain.keys import KeyRing
from amfs_otel.errors import FormatError
from amfs_otel.store.connect import Connection

KEY_RECORDS = """
SELECT r.header, r.record_hash, r.signature
FROM ONLY amfs_otel.record AS r
JOIN ONLY amfs_otel.entry AS e ON e.record_hash = r.record_hash AND e.log = r.log
WHERE r.log = %s AND r.kind IN ('genesis', 'key')
ORDER BY e.sequence_number
"""


def announcing_step(role: str) -> str:
    """What to do where the key that is held for a role is not one that the log knows."""
    return (
        "Put an announced key there. Who holds an announced writer key makes and announces another with: "
        f"amfs-otel keygen --role {role} --announce --out FILE."
    )


@dataclass(frozen=True, slots=True)
class AnnouncedKey:
    """A key that a log speaks of.

    Attributes:
        kid: Its id, 16 hex digits.
        role: ``writer | log | checkpoint``.
        alg: ``HMAC-SHA256`` or ``Ed25519``.
        name: The workload it belongs to.
        state: ``add`` while it may sign; ``retire`` or ``revoke`` after.
    """

    kid: str
    role: str
    alg: str
    name: str
    state: str


def announced_keys(connection: Connection, log: str, keys: KeyRing | None = None) -> list[AnnouncedKey]:
    """Return every key that the sealed records of a log announce, with its newest state.

    This answers a process that asks whether it may start signing; whether the announcements hold is for `verify`. A
    record that is not of the format, or whose signature is visibly wrong, says nothing: else a writer without a key
    could stop the sealer.

    Args:
        connection: In any mode.
        log: Name of the log.
        keys: Writer keys held here.
    """
    found: dict[tuple[str, str], AnnouncedKey] = {}
    for header, digest, signature in connection.execute(KEY_RECORDS, (log,)).fetchall():
        for key in _keys_in(header.encode(), digest, signature, keys or KeyRing()):
            found[key.kid, key.role] = key
    return list(found.values())


def announced_kids(connection: Connection, log: str, role: str, keys: KeyRing | None = None) -> frozenset[str]:
    """Return the ids of the keys that may sign in a role now."""
    announced = announced_keys(connection, log, keys)
    return frozenset(key.kid for key in announced if key.role == role and key.state == "add")


def _keys_in(header: bytes, digest: bytes, signature: bytes, keys: KeyRing) -> list[AnnouncedKey]:
    try:
        read = read_header(header)
    except FormatError:
        return []
    signer = keys.get(read.signing_key_id)
    if read.facts is None or (signer is not None and not signer.verifies(SIGNATURE_DOMAIN + digest, signature)):
        return []
    facts = [read.facts["key"]] if read.kind == "key" else read.facts["genesis"]["keys"]
    return [AnnouncedKey(one["kid"], one["role"], one["alg"], one["name"], one.get("op", "add")) for one in facts]
