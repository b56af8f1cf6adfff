"""Which key may sign what: by the log, by a trust file, at a point of the log (FORMAT 5.3 to 5.7)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from amfs_otel.chain.keys import KeyRing, PublicKey, VerifyingKey
from amfs_otel.errors import AmfsOtelError, FormatError


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key as announced. ``role``: ``writer | log | checkpoint``; ``name``: its workload; ``public``: Ed25519 only."""

    kid: str
    role: str
    alg: str
    name: str
    public: PublicKey | None = None


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust file, which reaches the verifier by another way than the log.

    Attributes:
        log: Name of the log.
        log_uid: Identity of the log, hex; None if the file does not fix it.
        complete: The file lists every key; one that it does not list is tampering, whatever the log announces.
        keys: The keys.
    """

    log: str
    log_uid: str | None
    complete: bool
    keys: tuple[TrustedKey, ...]


def trust_from_json(text: str | bytes) -> Trust:
    """Return what a trust file says: ``{log, log_uid, complete, keys: [{kid, role, alg, name, public?}]}``.

    Raises:
        FormatError: It is no such JSON.
    """
    try:
        members = cast("Mapping[str, Any]", json.loads(text))
        keys = tuple(_trusted_key(item) for item in members["keys"])
        return Trust(str(members["log"]), members.get("log_uid"), members["complete"] is True, keys)
    except (ValueError, KeyError, TypeError, AttributeError, AmfsOtelError) as error:
        raise FormatError("not a trust file", where="FORMAT 5.7", got=type(error).__name__) from error


def _trusted_key(item: Mapping[str, Any]) -> TrustedKey:
    public = PublicKey(bytes.fromhex(item["public"])) if item.get("public") else None
    return TrustedKey(item["kid"], item["role"], item["alg"], item.get("name", ""), public)


Problem = Literal["UNKNOWN_KEY", "KEY_NOT_HELD", "REVOKED_KEY"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a key stands, for one role, at one point of the log.

    Attributes:
        kid: Its id.
        key: What checks its signatures, if it is held here.
        alg: The algorithm it was announced for, None if it was not announced.
        problem: The finding that its use is, None if it may sign.
        label: The kid with the workload's name, for messages.
    """

    kid: str
    key: VerifyingKey | None
    alg: str | None
    problem: Problem | None
    label: str


class KeyBook:
    """Follows the announcements of one log while it is read. Not thread-safe; one book a verification.

    Args:
        ring: The keys held.
        trust: A trust file, or None.
    """

    def __init__(self, ring: KeyRing, trust: Trust | None) -> None:
        self._ring = ring
        self._complete = trust is not None and trust.complete
        self._announced: dict[tuple[str, str], TrustedKey] = {}
        self._names: dict[str, str] = {}
        self._public: dict[str, PublicKey] = {}
        self._revoked: set[str] = set()
        self._standings: dict[tuple[str, str], Standing] = {}
        self._knows_all = trust is not None
        for key in trust.keys if trust else ():
            self._enter(key)
            if key.public is not None:
                self._public[key.kid] = key.public

    def follow_genesis(self, fact: Mapping[str, Any]) -> None:
        """Take the keys that a genesis announces. From here on a key that nobody announced is UNKNOWN_KEY."""
        self._knows_all = True
        for item in fact["keys"]:
            self._announce(TrustedKey(item["kid"], item["role"], item["alg"], item["name"]))

    def follow_key(self, fact: Mapping[str, Any]) -> None:
        """Take what a key record says. A retired key's signatures stay valid wherever they stand."""
        if fact["op"] == "add":
            self._announce(TrustedKey(fact["kid"], fact["role"], fact["alg"], fact["name"]))
        elif fact["op"] == "revoke":
            self._revoked.add(fact["kid"])
            self._standings.clear()

    def standing(self, kid: str, role: str) -> Standing:
        """Return where a key stands for a role, here and now; O(1), cached until the next announcement."""
        cached = self._standings.get((kid, role))
        if cached is None:
            cached = self._standings[kid, role] = self._judge(kid, role)
        return cached

    def label(self, kid: str) -> str:
        """Return the kid with the name of its workload, if one was announced."""
        name = self._names.get(kid)
        return f'{kid} ("{name}")' if name else kid

    def _announce(self, key: TrustedKey) -> None:
        # A complete trust file is the only announcement: the log may name its keys and cannot add to them.
        if self._complete:
            self._names.setdefault(key.kid, key.name)
        else:
            self._enter(key)
        self._standings.clear()

    def _enter(self, key: TrustedKey) -> None:
        # The first announcement of a key for a role stands: a later one cannot change its algorithm.
        self._announced.setdefault((key.kid, key.role), key)
        self._names.setdefault(key.kid, key.name)

    def _judge(self, kid: str, role: str) -> Standing:
        announced = self._announced.get((kid, role))
        key = self._public.get(kid) or self._ring.get(kid)
        alg = announced.alg if announced else None
        problem: Problem | None = None
        if kid in self._revoked:
            problem = "REVOKED_KEY"
        elif announced is None and self._knows_all:
            problem = "UNKNOWN_KEY"
        elif key is None:
            problem = "KEY_NOT_HELD"
        return Standing(kid, key, alg or (key.alg if key else None), problem, self.label(kid))
