"""The grammar of headers: both readers, ours and the offline one, take and refuse the same."""

import importlib.util
import json
from pathlib import Path

import pytest

from amfs_otel.chain.canonical import jcs
from amfs_otel.chain.entry import read_entry
from amfs_otel.chain.header import guessed_header, loose_header, read_header
from amfs_otel.errors import FormatError
from tests.vectors.sample_log import base_log

OFFLINE = Path(__file__).parents[3] / "examples" / "verify_offline.py"
SPEC = importlib.util.spec_from_file_location("verify_offline", OFFLINE)
offline = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(offline)

BASE = base_log()
GENESIS, KEY, DECISION = (json.loads(BASE.entries[at].record.header) for at in range(3))
ENTRY = json.loads(BASE.entries[2].entry.entry)
ERASURE = DECISION | {"kind": "erasure", "schema": "amfs-otel/erasure/1", "erases": [[DECISION["id"], 1]]}


def without(members, name):
    return {key: value for key, value in members.items() if key != name}


def inside(members, fact, **changes):
    return members | {fact: members[fact] | changes}


GOOD = {
    "genesis": GENESIS,
    "key": KEY,
    "decision": DECISION,
    "erasure": ERASURE,
    "erasure by range": without(ERASURE, "erases")
    | {"erase_range": {"before": DECISION["captured_at"], "class": "md"}},
    "trace": DECISION | {"trace": "a" * 32, "span": "b" * 16},
    "withheld": DECISION | {"withheld": [3, 4]},
    "policy": inside(GENESIS, "genesis", policy={"content": ["none", 1, True, None]}),
    "public key": inside(KEY, "key", alg="Ed25519", public="ab" * 32),
}
BAD = {
    "unknown member": DECISION | {"user": "ann"},
    "unknown member of a genesis": GENESIS | {"user": "ann"},
    "member gone": without(DECISION, "trace"),
    "other version": DECISION | {"v": 2},
    "version as true": DECISION | {"v": True},
    "other schema": DECISION | {"schema": "amfs-otel/outcome/1"},
    "other kind": DECISION | {"kind": "thought", "schema": "amfs-otel/thought/1"},
    "alg none": DECISION | {"alg": "none"},
    "count and classes differ": DECISION | {"parts": 3},
    "unknown class": DECISION | {"classes": "simx"},
    "withheld twice": DECISION | {"withheld": [3, 3]},
    "withheld out of order": DECISION | {"withheld": [4, 3]},
    "withheld zero": DECISION | {"withheld": [0]},
    "withheld beyond": DECISION | {"withheld": [5]},
    "upper case": DECISION | {"session": DECISION["session"].upper()[:31] + "A"},
    "time without fraction": DECISION | {"captured_at": "2026-05-28T20:26:40Z"},
    "empty refs": DECISION | {"refs": []},
    "refs of another kind": DECISION | {"refs": [{"rel": "likes", "record": DECISION["id"], "hash": None}]},
    "decision that erases": DECISION | {"erases": [[DECISION["id"], 1]]},
    "decision with a key": DECISION | {"key": KEY["key"]},
    "erasure of nothing": without(ERASURE, "erases"),
    "erasure of no part": ERASURE | {"erases": []},
    "erasure of part 0": ERASURE | {"erases": [[DECISION["id"], 0]]},
    "erasure of part true": ERASURE | {"erases": [[DECISION["id"], True]]},
    "erasure of a name": ERASURE | {"erases": [["ann", 1]]},
    "erasure of a pair too long": ERASURE | {"erases": [[DECISION["id"], 1, 2]]},
    "erasure of an object": ERASURE | {"erases": {DECISION["id"]: 1}},
    "erase range without class": ERASURE | {"erase_range": {"before": DECISION["captured_at"]}},
    "erase range of no class": ERASURE | {"erase_range": {"before": DECISION["captured_at"], "class": ""}},
    "key borrowed": inside(KEY, "key", op="borrow"),
    "key of another role": inside(KEY, "key", role="king"),
    "key with control characters": inside(KEY, "key", name="a\nb"),
    "key by nobody": KEY | {"key": without(KEY["key"], "by")},
    "key as text": KEY | {"key": "add"},
    "genesis of another format": inside(GENESIS, "genesis", format="amfs-otel/v2"),
    "genesis with a fraction": inside(GENESIS, "genesis", policy={"rate": 0.5}),
    "genesis with a number beyond": inside(GENESIS, "genesis", policy={"rate": 2**53}),
    "genesis with other letters": inside(GENESIS, "genesis", policy={"name": "ü"}),
    "genesis with a policy list": inside(GENESIS, "genesis", policy=[]),
    "genesis with a bad old head": inside(GENESIS, "genesis", old_head={}),
    "genesis with an unknown member": inside(GENESIS, "genesis", extra=1),
}


def plain(members) -> str:
    return json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("name", GOOD)
def test_both_readers_take(name):
    text = plain(GOOD[name])
    assert read_header(text.encode()).record_id == GOOD[name]["id"]
    assert offline.read_header(text) == GOOD[name]


@pytest.mark.parametrize("name", BAD)
def test_both_readers_refuse(name):
    text = plain(BAD[name])
    with pytest.raises(FormatError):
        read_header(text.encode())
    with pytest.raises(offline.BadFormat):
        offline.read_header(text)


@pytest.mark.parametrize("members", [GENESIS, KEY, DECISION], ids=["genesis", "key", "decision"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(":", ": ", 1),
        lambda text: text + " ",
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text.replace('"v":1', '"v":1,"v":1'),
        lambda text: text.replace('"v":1', '"v":1.0'),
        lambda text: text.replace('"v":1', '"v":1e0'),
        lambda text: text.replace("default", "d\\u0065fault"),
        lambda text: "[" + text + "]",
        lambda text: text[:-1],
        lambda text: "\ufeff" + text,
        lambda text: "{" + text[1:-1].rpartition(',"withheld"')[0] + "}",
        lambda text: "",
    ],
)
def test_both_readers_refuse_what_is_not_canonical(members, change):
    text = change(plain(members))
    with pytest.raises(FormatError):
        read_header(text.encode())
    with pytest.raises(offline.BadFormat):
        offline.read_header(text)


@pytest.mark.parametrize(
    "changed",
    [
        *(ENTRY | {"v": 2}, ENTRY | {"x": 1}, without(ENTRY, "log"), ENTRY | {"sequence_number": -1}),
        *(
            ENTRY | {"sequence_number": "1"},
            ENTRY | {"sealed_at": "now"},
            ENTRY | {"log": "a b"},
            ENTRY | {"parent_hash": ""},
        ),
    ],
)
def test_both_readers_refuse_an_entry(changed):
    text = plain(changed)
    with pytest.raises(FormatError):
        read_entry(text.encode())
    with pytest.raises(offline.BadFormat):
        offline.read_entry(text)
    assert offline.read_entry(jcs(ENTRY).decode()) == ENTRY


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"1", b'{"id":5}', b"[" * 100_000])
def test_what_cannot_be_read_is_guessed_without_raising(data):
    assert loose_header(data) in ({}, {"id": 5})
    assert guessed_header(data).record_id == ""
    with pytest.raises(FormatError):
        read_header(data)
