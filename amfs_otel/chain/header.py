"""The grammar of a record's header: what it may hold, and reading it strictly (FORMAT 3).

The header stays for ever, so it holds no string that an application chose. Its plain members have one fixed shape, in
JCS order, and are read by one regular expression: a match *is* the proof that the bytes are canonical, complete and
without duplicate keys. The structured facts of special records (``key``, ``genesis``, ``erases``, ``erase_range``)
are parsed as JSON and checked one by one.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from amfs_otel.chain.jcs import encode_plain, is_plain
from amfs_otel.errors import FormatError

KINDS = frozenset(
    ["genesis", "decision", "outcome", "amendment", "approval", "erasure", "hold", "key", "gap", "policy", "extraction"]
)
"""What a record can be."""

RELATIONS = frozenset(["outcome_of", "amends", "continues", "approves"])
"""What ``refs`` can say about another record."""

ROLES = frozenset(("writer", "log", "checkpoint"))
"""What a key may be announced for."""

FORMAT_NAME = "amfs-otel/v1"

LOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RECORD_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_WORKLOAD = re.compile(r"[ -~]{0,128}")
_KID = re.compile(r"[0-9a-f]{16}")
_UID = re.compile(r"[0-9a-f]{32}")
_HASH = re.compile(r"[0-9a-f]{64}")

_REF = (
    rf'{{"hash":(?:null|"{_HASH.pattern}"),"record":"{RECORD_ID.pattern}","rel":"(?:{"|".join(sorted(RELATIONS))})"}}'
)
_HEADER = re.compile(
    r'{"alg":"(?P<alg>HMAC-SHA256|Ed25519)"'
    rf',"captured_at":"(?P<captured_at>{TIMESTAMP.pattern})"'
    r',"classes":"(?P<classes>[sidmh]*)"'
    rf',"content_hash":"(?P<content_hash>{_HASH.pattern})"'
    rf',"id":"(?P<record_id>{RECORD_ID.pattern})"'
    rf',"kind":"(?P<kind>{"|".join(sorted(KINDS))})"'
    rf',"log":"(?P<log>{LOG_NAME.pattern})"'
    r',"parts":(?P<parts>0|[1-9][0-9]{0,9})'
    rf'(?:,"refs":(?P<refs>\[{_REF}(?:,{_REF})*\]))?'
    r',"schema":"amfs-otel/(?P=kind)/1"'
    r',"session":"(?P<session>[0-9a-f]{32})"'
    r',"signing_key_id":"(?P<signing_key_id>[0-9a-f]{16})"'
    r',"span":(?P<span>null|"[0-9a-f]{16}")'
    r',"trace":(?P<trace>null|"[0-9a-f]{32}")'
    r',"v":1,"withheld":\[(?P<withheld>(?:[1-9][0-9]{0,9}(?:,[1-9][0-9]{0,9})*)?)\]}'
)
_FACT_NAMES = ("erase_range", "erases", "genesis", "key")
_FACT_START = tuple(f'"{name}":' for name in _FACT_NAMES)
_FACTS_OF_KIND: Mapping[str, tuple[frozenset[str], ...]] = {
    "genesis": (frozenset({"genesis"}),),
    "key": (frozenset({"key"}),),
    "erasure": (frozenset({"erases"}), frozenset({"erase_range"}), frozenset({"erases", "erase_range"})),
}


HEADER_COLUMNS = frozenset(
    (
        "alg",
        "captured_at",
        "classes",
        "content_hash",
        "id",
        "kind",
        "log",
        "record_id",
        "session",
        "signing_key_id",
        "span",
        "trace",
    )
)
"""Names under which a store may show members of a header."""


class Header(NamedTuple):
    """A header that was read strictly. Hex and times are the text of the header; absent members are None."""

    alg: str
    captured_at: str
    classes: str
    content_hash: str
    record_id: str
    kind: str
    log: str
    parts: str
    refs: str | None
    session: str
    signing_key_id: str
    span: str
    trace: str
    withheld: str
    facts: Mapping[str, Any] | None

    def columns(self) -> dict[str, str | None]:
        """Return the members that a store may show as columns, by name; ``trace`` and ``span`` without quotes."""
        shown: dict[str, str | None] = {name: getattr(self, name) for name in HEADER_COLUMNS if name != "id"}
        for name in ("trace", "span"):
            shown[name] = None if shown[name] == "null" else (shown[name] or "").strip('"')
        return shown | {"id": self.record_id}

    def withheld_numbers(self) -> frozenset[int]:
        """Return the numbers of the parts that policy withheld, 1-based."""
        return frozenset(map(int, self.withheld.split(","))) if self.withheld else frozenset()


def read_header(header: bytes) -> Header:
    """Return the members of a header, checked against the whole grammar.

    Raises:
        FormatError: The bytes are not the canonical form of a header of this format; the message names the first
            reason.
    """
    try:
        text = header.decode("ascii")
    except UnicodeDecodeError:
        raise FormatError("the header is not ASCII", where="FORMAT 3.1") from None
    facts: Mapping[str, Any] | None = None
    match = _HEADER.fullmatch(text)
    if match is None and any(start in text for start in _FACT_START):
        facts, text = _facts_and_rest(text)
        match = _HEADER.fullmatch(text)
    if match is None:
        raise FormatError("the header's members are not those of the format, in canonical form", where="FORMAT 3.1")
    read = Header._make((*match.groups(), facts))
    _check_counts(read)
    if facts is not None or read.kind in _FACTS_OF_KIND:
        _check_facts(read.kind, facts)
    return read


def loose_header(header: bytes) -> dict[str, Any]:
    """Return what can be read of a header that may be damaged; empty if nothing can. Never raises ``ValueError``."""
    try:
        value = json.loads(header)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def guessed_header(header: bytes) -> Header:
    """Return the members that can be read of a header that is not of the format; an unreadable one is an empty text."""
    members = loose_header(header)

    def text(name: str) -> str:
        value = members.get(name)
        return value if isinstance(value, str) else ""

    return Header(
        alg=text("alg"),
        captured_at=text("captured_at"),
        classes=text("classes"),
        content_hash=text("content_hash"),
        record_id=text("id"),
        kind=text("kind"),
        log=text("log"),
        parts="",
        refs=None,
        session=text("session"),
        signing_key_id=text("signing_key_id"),
        span=text("span"),
        trace=text("trace"),
        withheld="",
        facts=None,
    )


def _facts_and_rest(text: str) -> tuple[Mapping[str, Any], str]:
    """Split a header with structured facts into these and the canonical text of the plain members."""
    try:
        members = json.loads(text, parse_float=_no_fraction)
        canonical = encode_plain(members) if is_plain(members) else None
    except (ValueError, RecursionError):
        raise FormatError("the header is not JSON", where="FORMAT 3.1") from None
    if not isinstance(members, dict) or canonical != text:
        raise FormatError("the header is not in canonical form", where="FORMAT 3.1")
    plain = cast("dict[str, Any]", members)
    facts = {name: plain.pop(name) for name in _FACT_NAMES if name in plain}
    return facts, encode_plain(plain)


def _no_fraction(_: str) -> float:
    raise FormatError("the header holds a number that is no integer", where="FORMAT 3.1")


def _check_counts(header: Header) -> None:
    count = int(header.parts)
    if count != len(header.classes):
        raise FormatError(
            "the header's part count and classes differ", where="FORMAT 3.3", expected=count, got=len(header.classes)
        )
    if header.withheld:
        numbers = [int(number) for number in header.withheld.split(",")]
        if numbers != sorted(set(numbers)) or numbers[-1] > count:
            raise FormatError("withheld does not name parts in ascending order", where="FORMAT 3.3")


def _check_facts(kind: str, facts: Mapping[str, Any] | None) -> None:
    names = frozenset(facts or ())
    if names not in _FACTS_OF_KIND.get(kind, (frozenset[str](),)):
        raise FormatError(f"a record of kind {kind} carries the wrong facts", where="FORMAT 3.4", got=sorted(names))
    for name, value in (facts or {}).items():
        if not _FACT_CHECKS[name](value):
            raise FormatError(f"the fact {name} is malformed", where="FORMAT 3.4")


def _is_text(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _members(value: Any, required: frozenset[str], optional: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return an object with exactly these members, or an empty one."""
    if not isinstance(value, dict):
        return {}
    members = cast("dict[str, Any]", value)
    return members if required <= members.keys() <= required | optional else {}


def _is_erases(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    for item in cast("list[Any]", value):
        if not isinstance(item, list) or len(cast("list[Any]", item)) != 2:
            return False
        record, part = cast("list[Any]", item)
        if not _is_text(RECORD_ID, record) or type(part) is not int or part < 1:
            return False
    return True


def _is_erase_range(value: Any) -> bool:
    members = _members(value, frozenset({"before", "class"}))
    return (
        bool(members) and _is_text(TIMESTAMP, members["before"]) and _is_text(re.compile("[sidmh]+"), members["class"])
    )


def _is_announced_key(value: Any) -> bool:
    members = _members(value, frozenset({"kid", "role", "alg", "name"}), frozenset({"public"}))
    return bool(members) and (
        _is_text(_KID, members["kid"])
        and members["role"] in ROLES
        and members["alg"] in ("HMAC-SHA256", "Ed25519")
        and _is_text(_WORKLOAD, members["name"])
        and ("public" not in members or _is_text(_HASH, members["public"]))
    )


def _is_key(value: Any) -> bool:
    members = _members(value, frozenset({"op", "role", "alg", "kid", "name", "by"}), frozenset({"public"}))
    if not members or members["op"] not in ("add", "retire", "revoke") or not _is_text(_WORKLOAD, members["by"]):
        return False
    return _is_announced_key({name: member for name, member in members.items() if name not in ("op", "by")})


def _is_genesis(value: Any) -> bool:
    members = _members(value, frozenset({"format", "log", "log_uid", "keys", "policy"}), frozenset({"old_head"}))
    return bool(members) and (
        members["format"] == FORMAT_NAME
        and _is_text(LOG_NAME, members["log"])
        and _is_text(_UID, members["log_uid"])
        and isinstance(members["keys"], list)
        and all(map(_is_announced_key, cast("list[Any]", members["keys"])))
        and isinstance(members["policy"], dict)
        and ("old_head" not in members or _is_old_head(members["old_head"]))
    )


def _is_old_head(value: Any) -> bool:
    members = _members(value, frozenset({"log", "log_uid", "sequence_number", "entry_hash"}))
    return bool(members) and (
        _is_text(LOG_NAME, members["log"])
        and _is_text(_UID, members["log_uid"])
        and type(members["sequence_number"]) is int
        and _is_text(_HASH, members["entry_hash"])
    )


_FACT_CHECKS = {"erases": _is_erases, "erase_range": _is_erase_range, "genesis": _is_genesis, "key": _is_key}
