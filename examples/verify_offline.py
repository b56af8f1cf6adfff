"""Verify a log of decision traces offline. One file, standard library only.

    python verify_offline.py LOG.jsonl [--key-file FILE ...] [--trust FILE] [--log NAME] [--level full|headers] [--json]

LOG.jsonl holds one JSON object a line, as FORMAT.md section 9 says. The format is FORMAT.md; the numbers in comments
are its paragraphs. Exit code = verdict: 0 INTACT, 1 TAMPERED, 3 CANNOT_JUDGE, 4 INCOMPLETE; 2 is a usage error.

What this can and cannot show: an HMAC proves something only to those who hold the key, so without keys the verdict is
never INTACT. Ed25519 signatures are not checked here. A log cannot vouch for itself: take the keys, the trust file
and this program from somewhere else.
"""

import argparse
import base64
import hashlib
import hmac
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

TAMPERED, CANNOT_JUDGE, INCOMPLETE = "TAMPERED", "CANNOT_JUDGE", "INCOMPLETE"
EXIT_CODES = {"INTACT": 0, TAMPERED: 1, CANNOT_JUDGE: 3, INCOMPLETE: 4}
CANNOT_JUDGE_CODES = {"UNKNOWN_KEY", "KEY_NOT_HELD", "NO_KEY", "EMPTY_STORE"}
INCOMPLETE_CODES = {"UNSEALED", "GAP"}  # every other code is tampering (8.1)
SEAL_DEADLINE_S = 60

HEX64, HEX32, HEX16 = "[0-9a-f]{64}", "[0-9a-f]{32}", "[0-9a-f]{16}"
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
LOG_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
KINDS = "genesis|decision|outcome|amendment|approval|erasure|hold|key|gap|policy|extraction"
RELATIONS = "outcome_of|amends|continues|approves"
NAME = "[ -~]{0,128}"
ALGORITHMS = "HMAC-SHA256|Ed25519"
ROLES = "writer|log|checkpoint"


Json = dict[str, Any]
Check = Callable[[Any], bool]


class BadFormat(Exception):
    """Bytes are not of the format."""


def sha256(*pieces: bytes) -> bytes:
    return hashlib.sha256(b"".join(pieces)).digest()


def kid_of(key: bytes) -> str:
    return sha256(b"amfs-otel/v1/kid\0", key)[:8].hex()  # 5.2


def key_from_text(raw: bytes) -> bytes:
    """Return the bytes of a key (5.1)."""
    raw = raw.strip(b" \t\n\r\v\f")
    if raw.startswith(b"hex:"):
        raw = bytes.fromhex(raw[4:].decode("ascii"))
    elif raw.startswith(b"base64:"):
        raw = base64.b64decode(raw[7:], validate=True)
    if len(raw) < 32:
        raise ValueError("a key has at least 32 bytes")
    return raw


# -- reading strictly -------------------------------------------------------------------------------------------


def canonical(text: str) -> Json:
    """Return the members of an object in canonical form (2.1); fractions do not occur in what is signed (3.1)."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> Json:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise BadFormat("a member stands twice")
        return members

    def in_range(digits: str) -> int:
        if len(digits) > 17 or abs(int(digits)) >= 2**53:
            raise BadFormat("an integer out of range")
        return int(digits)

    def no_fraction(_: str) -> Any:
        raise BadFormat("a fraction")

    try:
        members = json.loads(
            text,
            object_pairs_hook=no_duplicates,
            parse_int=in_range,
            parse_float=no_fraction,
            parse_constant=no_fraction,
        )
        again = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        raise BadFormat("not JSON") from None
    if not is_object(members) or again != text or not text.isascii():
        raise BadFormat("not in canonical form")
    return members


def text_of(pattern: str) -> Check:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def count(value: Any) -> bool:
    return is_integer(value) and 0 <= value < 10**15


def null_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def list_of(check: Check, least: int = 0) -> Check:
    return lambda value: is_list(value) and len(value) >= least and all(map(check, value))


def object_of(required: dict[str, Check], optional: dict[str, Check] | None = None) -> Check:
    known = required | (optional or {})

    def check(value: Any) -> bool:
        if not is_object(value) or not required.keys() <= value.keys() <= known.keys():
            return False
        return all(known[name](member) for name, member in value.items())

    return check


def is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_integer(value: Any) -> TypeGuard[int]:
    return type(value) is int


def is_one(value: Any) -> bool:
    return is_integer(value) and value == 1


def is_part_name(value: Any) -> bool:
    return is_list(value) and len(value) == 2 and text_of(UUID)(value[0]) and count(value[1]) and value[1] > 0


KEY = {"alg": text_of(ALGORITHMS), "kid": text_of(HEX16), "name": text_of(NAME), "role": text_of(ROLES)}
HEAD = {
    "log": text_of(LOG_NAME),
    "log_uid": text_of(HEX32),
    "sequence_number": is_integer,
    "entry_hash": text_of(HEX64),
}
FACTS = {
    "genesis": object_of(
        {
            "format": text_of("amfs-otel/v1"),
            "keys": list_of(object_of(KEY, {"public": text_of(HEX64)})),
            "log": text_of(LOG_NAME),
            "log_uid": text_of(HEX32),
            "policy": is_object,
        },
        {"old_head": object_of(HEAD)},
    ),
    "key": object_of(KEY | {"op": text_of("add|retire|revoke"), "by": text_of(NAME)}, {"public": text_of(HEX64)}),
    "erases": list_of(is_part_name, 1),
    "erase_range": object_of({"before": text_of(TIME), "class": text_of("[sidmh]+")}),
}
FACTS_OF_KIND = {
    "genesis": [{"genesis"}],
    "key": [{"key"}],
    "erasure": [{"erases"}, {"erase_range"}, {"erases", "erase_range"}],
}
REF = object_of({"hash": null_or(text_of(HEX64)), "record": text_of(UUID), "rel": text_of(RELATIONS)})
HEADER = object_of(
    {
        "alg": text_of(ALGORITHMS),
        "captured_at": text_of(TIME),
        "classes": text_of("[sidmh]*"),
        "content_hash": text_of(HEX64),
        "id": text_of(UUID),
        "kind": text_of(KINDS),
        "log": text_of(LOG_NAME),
        "parts": count,
        "schema": text_of(f"amfs-otel/({KINDS})/1"),
        "session": text_of(HEX32),
        "signing_key_id": text_of(HEX16),
        "span": null_or(text_of(HEX16)),
        "trace": null_or(text_of(HEX32)),
        "v": is_one,
        "withheld": list_of(count),
    },
    {"refs": list_of(REF, 1)} | FACTS,
)
ENTRY = object_of(
    {
        "log": text_of(LOG_NAME),
        "log_key_id": text_of(HEX16),
        "log_uid": text_of(HEX32),
        "parent_hash": text_of(HEX64),
        "record_hash": text_of(HEX64),
        "sealed_at": text_of(TIME),
        "sequence_number": count,
        "signature_hash": text_of(HEX64),
        "v": is_one,
    }
)


def read_header(text: str) -> Json:
    """Return a header's members, checked (3.1 to 3.5)."""
    header = canonical(text)
    if not HEADER(header):
        raise BadFormat("members")
    numbers = header["withheld"]
    if header["parts"] != len(header["classes"]) or numbers != sorted(set(numbers)):
        raise BadFormat("part counts")
    if numbers and not (numbers[0] >= 1 and numbers[-1] <= header["parts"]):
        raise BadFormat("withheld")
    kind = header["kind"]
    if header["schema"] != f"amfs-otel/{kind}/1" or (set(header) & set(FACTS)) not in FACTS_OF_KIND.get(kind, [set()]):
        raise BadFormat("facts")
    return header


def loose_header(text: str) -> Json:
    """What can be read of a damaged header: its plain texts."""
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {name: text for name, text in members.items() if isinstance(text, str)} if is_object(members) else {}


def read_entry(text: str) -> Json:
    """Return an entry's members, checked (6.1)."""
    entry = canonical(text)
    if not ENTRY(entry):
        raise BadFormat("members")
    return entry


# -- keys -------------------------------------------------------------------------------------------------------


class Keys:
    """Which key may sign what (section 5)."""

    def __init__(self, secrets: Iterable[bytes], trust: Json | None) -> None:
        self.secrets = {kid_of(secret): secret for secret in secrets}
        self.complete = bool(trust) and trust["complete"] is True
        self.announced: dict[tuple[str, str], str] = {}
        self.names: dict[str, str] = {}
        self.revoked: set[str] = set()
        self.judges_strangers = bool(trust)
        for key in trust["keys"] if trust else ():
            self._enter(key)

    def announce(self, key: Json) -> None:
        if self.complete:
            self.names.setdefault(key["kid"], key["name"])
        else:
            self._enter(key)

    def _enter(self, key: Json) -> None:
        self.announced.setdefault((key["kid"], key["role"]), key["alg"])
        self.names.setdefault(key["kid"], key.get("name", ""))

    def label(self, kid: str) -> str:
        return f'{kid} ("{self.names[kid]}")' if self.names.get(kid) else kid

    def problem(self, kid: str, role: str) -> str | None:
        if kid in self.revoked:
            return "REVOKED_KEY"
        if (kid, role) not in self.announced and self.judges_strangers:
            return "UNKNOWN_KEY"
        held = kid in self.secrets and self.algorithm(kid, role) == "HMAC-SHA256"
        return None if held else "KEY_NOT_HELD"

    def algorithm(self, kid: str, role: str) -> str | None:
        return self.announced.get((kid, role)) or ("HMAC-SHA256" if kid in self.secrets else None)

    def refutes(self, kid: str, message: bytes, signature: bytes) -> bool:
        """The secret is held and the signature is not its."""
        if kid not in self.secrets:
            return False
        return not hmac.compare_digest(hmac.digest(self.secrets[kid], message, "sha256"), signature)


# -- the verifier -----------------------------------------------------------------------------------------------


class Verifier:
    """Reads the lines in order; `finish` gives the answer."""

    def __init__(self, log: str | None, secrets: Iterable[bytes], trust: Json | None, level: str, now_s: float) -> None:
        self.log, self.level, self.now_s = log, level, now_s
        self.keys = Keys(secrets, trust)
        self.log_uid: str | None = trust.get("log_uid") if trust else None
        self.expected, self.parent = 0, "0" * 64
        self.sealed_at: str | None = None
        self.findings: list[Json] = []
        self.not_held: dict[tuple[str, str], tuple[int | None, str | None]] = {}
        self.hash_of: dict[str, str] = {}
        self.refs: list[tuple[int | None, str | None, Json]] = []
        self.missing: list[tuple[Json, int | None, int]] = []
        self.erased: set[tuple[str, int]] = set()
        self.erased_ranges: list[tuple[str, str]] = []
        self.checked = {"entries": 0, "records": 0, "parts": 0}
        self.coverage: Json = {"authenticated_up_to": None, "erased_parts": 0, "withheld_parts": 0}
        self.unbroken = True

    def report(self, code: str, at: int | None, record: str | None, message: str) -> None:
        self.findings.append({"code": code, "sequence_number": at, "record": record, "message": message})

    def line(self, members: Json) -> None:
        if members["entry"] is None:
            header = self.header(members["record"], None)
            self.record(members["record"], header, None, None)
            self.unsealed(header)
            return
        self.checked["entries"] += 1
        stored, record = members["entry"], members["record"]
        try:
            entry = read_entry(stored["entry"])
            at = entry["sequence_number"]
        except BadFormat as error:
            self.report("ENTRY_ALTERED", self.expected, None, f"the entry is not of the format: {error}")
            entry, at = None, self.expected
        if at != self.expected:
            self.unbroken = False
            if at < self.expected:
                self.report("DUPLICATE", at, None, "another entry has this sequence number")
                return
            self.report(
                "MISSING", self.expected, None, f"no entry has the sequence numbers {self.expected} to {at - 1}"
            )
        header = self.header(record, at) if record is not None else None
        if at == 0 and header is not None:
            self.begin(header)
        sound = entry is not None and self.entry(stored, entry, at)
        self.expected, self.parent = at + 1, stored["entry_hash"]
        self.unbroken = self.unbroken and sound
        if self.unbroken:
            self.coverage["authenticated_up_to"] = at
        if record is not None and header is not None:
            self.record(record, header, at, entry)
        elif entry is not None:
            self.report("MISSING", at, None, "the record of this entry is not there")
        self.columns(members.get("columns") or {}, entry, header, at)

    def header(self, record: Json, at: int | None) -> Json:
        try:
            return read_header(record["header"])
        except BadFormat as error:
            header = loose_header(record["header"])
            self.report("BAD_HEADER", at, header.get("id"), f"the header is not of the format: {error}")
            return header

    def begin(self, header: Json) -> None:
        """Take what the genesis fixes (5.3)."""
        genesis = header.get("genesis")
        if header.get("kind") != "genesis" or not is_object(genesis):
            self.report("BAD_HEADER", 0, header.get("id"), "the first record of the log is not its genesis")
            return
        self.log_uid = self.log_uid or genesis["log_uid"]
        if (genesis["log"], genesis["log_uid"]) != (self.log, self.log_uid):
            self.report("FOREIGN_RECORD", 0, header["id"], "the genesis is that of another log")
        self.keys.judges_strangers = True
        for key in genesis["keys"]:
            self.keys.announce(key)

    def entry(self, stored: Json, entry: Json, at: int) -> bool:
        """Section 6: hash, link, MAC, log, time. Says whether the entry is authentic."""
        before = len(self.findings)
        if sha256(b"\0", stored["entry"].encode()).hex() != stored["entry_hash"]:
            self.report("ENTRY_ALTERED", at, None, "the entry is not the one whose hash stands beside it")
        if entry["parent_hash"] != self.parent:
            self.report("LINK_BROKEN", at, None, "the entry does not continue the one before it")
        kid, mac = entry["log_key_id"], bytes.fromhex(stored["entry_mac"])
        message = b"amfs-otel/v1/entry\0" + bytes.fromhex(stored["entry_hash"])
        if not mac or self.keys.refutes(kid, message, mac):
            self.report("BAD_MAC", at, None, f"the MAC is not that of log key {self.keys.label(kid)}")
        held = self.key(kid, "log", at, None)
        self.log_uid = self.log_uid or entry["log_uid"]
        if (entry["log"], entry["log_uid"]) != (self.log, self.log_uid):
            self.report("FOREIGN_RECORD", at, None, "the entry was made for another log")
        sound = held and len(self.findings) == before
        if self.sealed_at is not None and entry["sealed_at"] < self.sealed_at:
            self.report("TIME_REGRESSION", at, None, "the entry was sealed before the one in front of it")
        self.sealed_at = entry["sealed_at"]
        return sound

    def key(self, kid: str, role: str, at: int | None, record: str | None) -> bool:
        """Check the key itself (5.5, 5.6); says whether the key is held and may sign."""
        problem = self.keys.problem(kid, role)
        if problem == "KEY_NOT_HELD":
            self.not_held.setdefault((kid, role), (at, record))
        elif problem == "REVOKED_KEY":
            self.report(problem, at, record, f"{role} key {self.keys.label(kid)} was revoked before this place")
        elif problem:
            self.report(problem, at, record, f"key {self.keys.label(kid)} was not announced as a {role} key")
        return problem is None

    def record(self, record: Json, header: Json, at: int | None, entry: Json | None) -> None:
        """Check one record (sections 3 and 4)."""
        self.checked["records"] += 1
        record_id = header.get("id")
        digest = sha256(b"amfs-otel/v1/record\0", record["header"].encode())
        placed = entry["record_hash"] if entry else record["record_hash"]
        intact = digest.hex() == record["record_hash"] == placed
        if not intact:
            self.report("HEADER_ALTERED", at, record_id, "the header is not the one that was recorded")
        if header.get("log", self.log) != self.log:
            self.report("FOREIGN_RECORD", at, record_id, "the record was made for another log")
        if record_id is not None:
            if record_id in self.hash_of:
                self.report("DUPLICATE", at, record_id, "the same record stands in the log twice")
            self.hash_of.setdefault(record_id, record["record_hash"])
        self.content(record, header, at)
        self.coverage["withheld_parts"] += len(header.get("withheld", ()))
        signed = self.signature(record, header, digest, at, entry)
        self.take(header, at, intact and signed)

    def content(self, record: Json, header: Json, at: int | None) -> None:
        """Check commitments and parts (4.1, 4.2)."""
        commitments = [bytes.fromhex(commitment) for commitment in record["commitments"]]
        total = sha256(b"amfs-otel/v1/content\0", len(commitments).to_bytes(4, "big"), *commitments).hex()
        if header.get("content_hash", total) != total:
            self.report("CONTENT_ALTERED", at, header.get("id"), "the commitments are not those that the header fixes")
        if self.level == "headers":
            return
        self.checked["parts"] += len(record["parts"])
        present: set[int] = set()
        for part in record["parts"]:
            number = part["number"]
            if number in present or not 1 <= number <= len(commitments):
                self.report("CONTENT_ALTERED", at, header.get("id"), f"part {number} is not counted by the header")
                continue
            if part["salt"] is None or (part["data"] is None and number not in header.get("withheld", ())):
                continue
            present.add(number)
            if part["data"] is None:
                continue
            data = base64.b64decode(part["data"], validate=True)
            salt, length = bytes.fromhex(part["salt"]), len(data).to_bytes(8, "big")
            if sha256(b"amfs-otel/v1/part\0", salt, length, data) != commitments[number - 1]:
                self.report("CONTENT_ALTERED", at, header.get("id"), f"part {number} is not what was recorded")
        gone = [number for number in range(1, len(commitments) + 1) if number not in present]
        self.missing += [(header, at, number) for number in gone]

    def signature(self, record: Json, header: Json, digest: bytes, at: int | None, entry: Json | None) -> bool:
        """Check the signature (4.3, 5.5); says whether the record is genuine as far as the keys held can tell (8.3)."""
        kid: str = header.get("signing_key_id", "")
        signature = bytes.fromhex(record["signature"])
        announced = self.keys.algorithm(kid, "writer")
        reason = None
        if not signature:
            reason = "the record carries no signature"
        elif not kid:
            reason = "the record names no key"
        elif announced is not None and header.get("alg") != announced:
            reason = f"the record claims another algorithm than key {self.keys.label(kid)} was announced for"
        elif self.keys.refutes(kid, b"amfs-otel/v1/signature\0" + digest, signature):
            reason = f"the signature is not that of key {self.keys.label(kid)}"
        elif entry and sha256(signature).hex() != entry["signature_hash"]:
            reason = "the signature is not the one that was sealed"
        if reason:
            self.report("BAD_SIGNATURE", at, header.get("id"), reason)
        if not kid:
            return False
        self.key(kid, "writer", at, header.get("id"))
        return reason is None and self.keys.problem(kid, "writer") in (None, "KEY_NOT_HELD")

    def take(self, header: Json, at: int | None, genuine: bool) -> None:
        """What a record says about others."""
        self.refs += [(at, header.get("id"), ref) for ref in header.get("refs", ())]
        if header.get("kind") == "gap":
            self.report("GAP", at, header.get("id"), "the writer reports that events were lost")
        elif header.get("kind") == "genesis" and at != 0:
            self.report("BAD_HEADER", at, header.get("id"), "a genesis stands behind the beginning of the log")
        if not genuine:
            return
        self.erased |= {(record, part) for record, part in header.get("erases", ())}
        if "erase_range" in header:
            self.erased_ranges.append((header["erase_range"]["before"], header["erase_range"]["class"]))
        fact = header.get("key")
        if is_object(fact) and at is not None:
            if fact["op"] == "add":
                self.keys.announce(fact)
            elif fact["op"] == "revoke":
                self.keys.revoked.add(fact["kid"])

    def columns(self, columns: Json, entry: Json | None, header: Json | None, at: int | None) -> None:
        """Compare the store's columns (8.5)."""
        signed = (entry or {}) | {"entry_log": (entry or {}).get("log")} | (header or {})
        signed["record_id"] = signed.get("id")
        for name, shown in columns.items():
            if shown != signed.get(name):
                self.report("COLUMN_MISMATCH", at, signed["record_id"], f"column {name} does not show what was signed")

    def unsealed(self, header: Json) -> None:
        captured = header.get("captured_at", "")
        since = 0.0
        if re.fullmatch(TIME, captured):
            since = datetime.strptime(captured, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
        if self.now_s - since > SEAL_DEADLINE_S:
            self.report("UNSEALED", None, header.get("id"), "the record has no entry")

    def finish(self) -> Json:
        for header, at, number in self.missing:
            letter = header.get("classes", "")[number - 1 : number]
            by_range = any(letter and letter in c and header["captured_at"] < t for t, c in self.erased_ranges)
            if by_range or (header.get("id"), number) in self.erased:
                self.coverage["erased_parts"] += 1
            else:
                self.report(
                    "CONTENT_MISSING", at, header.get("id"), f"part {number} is gone and no erasure record names it"
                )
        for at, record_id, ref in self.refs:
            target = self.hash_of.get(ref["record"])
            if target is None or ref["hash"] not in (None, target):
                self.report(
                    "BAD_REF", at, record_id, f"the record that it {ref['rel']} is not there or has another hash"
                )
        if not self.keys.secrets:
            self.report(
                "NO_KEY", None, None, "no key is held here: no signature and no MAC was checked (needs the secret)"
            )
        else:
            for (kid, role), (at, record) in self.not_held.items():
                self.report(
                    "KEY_NOT_HELD", at, record, f"{role} key {self.keys.label(kid)} is not held here: not checked"
                )
        if not self.checked["entries"]:
            self.report("EMPTY_STORE", None, None, "the log holds no entry")
        verdicts = {self.verdict_of(finding["code"]) for finding in self.findings}
        verdict = next((v for v in (TAMPERED, CANNOT_JUDGE, INCOMPLETE) if v in verdicts), "INTACT")
        return {"verdict": verdict, "findings": self.findings, "coverage": self.coverage, "checked": self.checked}

    def verdict_of(self, code: str) -> str:
        if code == "UNKNOWN_KEY" and self.keys.complete:
            return TAMPERED
        return CANNOT_JUDGE if code in CANNOT_JUDGE_CODES else INCOMPLETE if code in INCOMPLETE_CODES else TAMPERED


def verify(
    lines: Iterable[str],
    *,
    log: str | None = None,
    secrets: Iterable[bytes] = (),
    trust: Json | None = None,
    level: str = "full",
    now_s: float | None = None,
) -> Json:
    """Verify the lines of a log; returns what --json prints. Raises ValueError where a line is not of section 9."""
    verifier = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            members: Json = json.loads(line)
            if verifier is None:
                claimed = loose_header(members["record"]["header"]).get("log") if members["record"] else None
                name = log or (trust["log"] if trust else claimed)
                verifier = Verifier(name, secrets, trust, level, time.time() if now_s is None else now_s)
            verifier.line(members)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number} is not a line of a log ({type(error).__name__})") from error
    return (verifier or Verifier(log, secrets, trust, level, 0)).finish()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Verify a log of decision traces offline.")
    parser.add_argument("file", help="the log as JSON lines")
    parser.add_argument("--key-file", action="append", default=[], help="a writer's or the log's key; may be repeated")
    parser.add_argument("--trust", help="trust file, from outside the log's own store")
    parser.add_argument("--log", help="name of the log; default: as the trust file or the first record says")
    parser.add_argument("--level", choices=("full", "headers"), default="full")
    parser.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    options = parser.parse_args(arguments)
    try:
        secrets = [key_from_text(Path(path).read_bytes()) for path in options.key_file]
        trust = None
        if options.trust:
            trust = json.loads(Path(options.trust).read_text(encoding="utf-8"))
        with Path(options.file).open(encoding="utf-8", newline="\n") as file:
            answer = verify(file, log=options.log, secrets=secrets, trust=trust, level=options.level)
    except (OSError, ValueError) as error:
        print(f"verify_offline: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(answer, indent=2))
    else:
        for finding in answer["findings"]:
            at = "-" if finding["sequence_number"] is None else finding["sequence_number"]
            print(f"{finding['code']} @{at} {finding['record'] or ''}: {finding['message']}")
        counts = ", ".join(f"{number} {what}" for what, number in answer["checked"].items())
        print(
            f"{answer['verdict']}: {counts} looked at; authenticated up to {answer['coverage']['authenticated_up_to']}"
        )
    return EXIT_CODES[answer["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
