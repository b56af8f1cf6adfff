"""Made-up records: facts in plain Python -> signed records and documents, as the assembler makes them.

Field names decide, as they do in the product (`amfs_otel.model.FIELDS`): names go into the strings part, texts into
parts of their own, kept or withheld by the ledger policy.
"""

import itertools
import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.keys import Key
from amfs_otel.chain.record import Record, Ref, make_record, new_record_id
from amfs_otel.chain.skeleton import PreparedText, compose, prepare_text
from amfs_otel.graph.documents import Document, document_from_record
from amfs_otel.model import FIELDS, FieldClass

T0 = 1_772_900_000_000_000_000
"""2026-03-07T16:13:20Z: the stories' first moment, ns."""
MS = 1_000_000
KEPT = {"none": "", "decision": "d", "all": "dm"}
_ids = itertools.count(1)


class Texts:
    """Collects the free texts of one record while its facts are prepared."""

    def __init__(self, ledger: str) -> None:
        self.kept = KEPT[ledger]
        self.prepared: list[PreparedText] = []

    def facts(self, value, key: str = ""):
        field = FIELDS.get(key)
        if field is FieldClass.NAME and isinstance(value, str):
            return {"$n": value}
        if field in (FieldClass.DECISION, FieldClass.MESSAGE) and value is not None and key != "alternatives":
            return self.text(value, "d" if field is FieldClass.DECISION else "m")
        if key == "alternatives":
            return [self.text(one, "d") for one in value]
        if isinstance(value, dict):
            return {name: self.facts(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.facts(item, key) for item in value]
        return value

    def text(self, value, letter: str):
        plain = isinstance(value, str)
        data = value.encode() if plain else json.dumps(value, sort_keys=True).encode()
        media = "text/plain" if plain else "application/json"
        self.prepared.append(prepare_text(data, letter, media, letter in self.kept, None))
        return {"$t": len(self.prepared) - 1}


def event(kind: str, /, at: float = 0.0, ms: float | None = None, **fields) -> dict:
    """An event `at` seconds after T0 that took `ms` milliseconds (None: still open)."""
    start = T0 + int(at * 1e9)
    made = {
        "id": f"{next(_ids):016x}",
        "kind": kind,
        "seq": 0,
        "start_us": start // 1000,
        "status": "ok",
        "source": "amfs",
    }
    if ms is not None:
        made["end_us"] = (start + int(ms * MS)) // 1000
    return made | fields


def window(agent: str, events: list[dict], /, session_id: str | None = None, seconds: float = 60.0, **facts) -> dict:
    """The facts of a decision (or outcome) record."""
    base = {
        "agent": agent,
        "opened_by": "amfs",
        "inferred": False,
        "started_us": T0 // 1000,
        "ended_us": (T0 + int(seconds * 1e9)) // 1000,
        "closed_by": "commit",
        "status": "complete",
        "origin": {"service": "deploys", "version": "1.4", "process_id": 7, "libraries": {"amfs": "0.5.42"}},
        "coverage": {"events": len(events), "joined": 0, "inferred": 0, "dropped": {}},
        "events": [one | {"seq": place} for place, one in enumerate(events, 1)],
    }
    if session_id is not None:
        base["session_id"] = session_id
    return base | facts


@dataclass
class Writer:
    """One process that signs records into one log."""

    key: Key
    log: str = "default"
    ledger: str = "decision"

    def record(
        self,
        facts: dict,
        /,
        kind: str = "decision",
        at: float = 60.0,
        refs: dict[str, str] | None = None,
        trace: str | None = None,
        **members,
    ) -> Record:
        now = T0 + int(at * 1e9)
        texts = Texts(self.ledger)
        tree = {"schema": f"amfs-otel/{kind}/1", "policy": {"ledger": self.ledger, "masking": 1}, **facts}
        return make_record(
            kind=kind,
            log=self.log,
            record_id=new_record_id(now),
            session=secrets.token_hex(16),
            parts=compose(texts.facts(tree), texts.prepared) if facts else [],
            key=self.key,
            captured_at_ns=now,
            trace=trace,
            refs=[Ref(rel, record) for rel, record in (refs or {}).items()],
            **members,
        )

    def document(self, facts: dict, /, erase: Collection[str] = (), entry: Entry | None = None, **options) -> Document:
        record = self.record(facts, **options)
        gone = [part.number for part in record.parts if part.klass in erase]
        return document_from_record(without(record, erase), entry, dict.fromkeys(gone, ERASURE))


ERASURE = "01890a5d-0000-7000-8000-00000000e4a5"
"""Id of the erasure record that erased parts name."""


def without(record: Record, classes: Collection[str]) -> Record:
    """The record as it stands in the store once the parts of these classes are erased."""
    return replace(record, parts=tuple(part for part in record.parts if part.klass not in classes))


def writer(ledger: str = "decision", log: str = "default") -> Writer:
    return Writer(Key(secrets.token_bytes(32)), log, ledger)
