"""The first record of a log, and the records that announce, retire and revoke keys (FORMAT 5.3 to 5.6)."""

import secrets
from collections.abc import Mapping
from typing import Any

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.header import FORMAT_NAME
from amfs_otel.chain.keys import PublicKey, SigningKey
from amfs_otel.chain.record import Record, make_record, new_record_id


def new_log_uid() -> str:
    """Return 128 random bits, hex: the identity of a new log."""
    return secrets.token_hex(16)


def genesis_fact(
    *,
    log: str,
    log_uid: str,
    writer_key: SigningKey,
    log_key: SigningKey,
    writer_name: str = "",
    log_name: str = "",
    policy: Mapping[str, Any] | None = None,
    old_head: Entry | None = None,
) -> dict[str, Any]:
    """Return the header fact ``genesis`` (FORMAT 5.3).

    Args:
        log: Name of the log.
        log_uid: Its identity, 32 hex digits.
        writer_key: Announced with role ``writer``; it signs the record.
        log_key: Announced with role ``log``.
        writer_name: The workload the writer key belongs to, printable ASCII.
        log_name: The same for the log key.
        policy: What the operator fixes for the log, JSON.
        old_head: Last entry of the log that this one continues.
    """
    fact: dict[str, Any] = {
        "format": FORMAT_NAME,
        "log": log,
        "log_uid": log_uid,
        "keys": [
            {"kid": writer_key.kid, "role": "writer", "alg": writer_key.alg, "name": writer_name},
            {"kid": log_key.kid, "role": "log", "alg": log_key.alg, "name": log_name},
        ],
        "policy": dict(policy or {}),
    }
    if old_head is not None:
        fact["old_head"] = {
            "log": old_head.log,
            "log_uid": old_head.log_uid,
            "sequence_number": old_head.sequence_number,
            "entry_hash": old_head.entry_hash.hex(),
        }
    return fact


def genesis_record(
    *,
    log: str,
    log_uid: str,
    writer_key: SigningKey,
    log_key: SigningKey,
    now_ns: int,
    old_head: Entry | None = None,
    writer_name: str = "",
    log_name: str = "",
    policy: Mapping[str, Any] | None = None,
) -> Record:
    """Make the record that entry 0 places. It has no parts; what it says stands in the header.

    Args:
        log: Name of the log.
        log_uid: From `new_log_uid`.
        writer_key: Signs the record and is announced for role ``writer``.
        log_key: Announced for role ``log``.
        now_ns: Nanoseconds since the epoch.
        old_head: Last entry of the log that this one continues.
        writer_name: The workload the writer key belongs to, printable ASCII.
        log_name: The same for the log key.
        policy: What the operator fixes for the log, JSON.

    Raises:
        FormatError: A name is not of the format.
    """
    fact = genesis_fact(
        log=log,
        log_uid=log_uid,
        writer_key=writer_key,
        log_key=log_key,
        writer_name=writer_name,
        log_name=log_name,
        policy=policy,
        old_head=old_head,
    )
    return make_record(
        kind="genesis",
        log=log,
        record_id=new_record_id(now_ns),
        session=secrets.token_hex(16),
        parts=(),
        key=writer_key,
        captured_at_ns=now_ns,
        genesis=fact,
    )


def key_fact(
    *, op: str, role: str, kid: str, name: str, by: str, alg: str = "HMAC-SHA256", public: PublicKey | None = None
) -> dict[str, Any]:
    """Return the header fact ``key`` (FORMAT 5.4).

    Args:
        op: ``add | retire | revoke``.
        role: ``writer | log | checkpoint``.
        kid: Id of the key concerned.
        name: The workload it belongs to, printable ASCII.
        by: Who ordered it, printable ASCII.
        alg: The concerned key's algorithm.
        public: Its public half, for Ed25519; then it also gives ``alg`` and ``kid``.
    """
    fact: dict[str, Any] = {"op": op, "role": role, "alg": alg, "kid": kid, "name": name, "by": by}
    if public is not None:
        fact |= {"alg": public.alg, "kid": public.kid, "public": public.public.hex()}
    return fact


def key_record(*, log: str, writer_key: SigningKey, now_ns: int, fact: Mapping[str, Any]) -> Record:
    """Make the record that adds, retires or revokes a key. No secret is in it.

    Args:
        log: Name of the log.
        writer_key: A writer key that the log announced before; signs the record.
        now_ns: Nanoseconds since the epoch.
        fact: From `key_fact`.

    Raises:
        FormatError: A member is not of the format.
    """
    return make_record(
        kind="key",
        log=log,
        record_id=new_record_id(now_ns),
        session=secrets.token_hex(16),
        parts=(),
        key=writer_key,
        captured_at_ns=now_ns,
        key_fact=fact,
    )
