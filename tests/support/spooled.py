"""What lies in a state directory: records, journal items, status files, as plain data."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amfs_otel.assemble.journal import JournalItem, decoded
from amfs_otel.chain.record import Record, record_from_bytes
from amfs_otel.chain.skeleton import decompose
from amfs_otel.spool import Damage, Frame, StateDirectory, destinations, list_segments, read_frames, read_stream


@dataclass(frozen=True)
class Spooled:
    """One spooled record with its facts, names in place, kept texts as text, withheld ones as None."""

    record: Record
    facts: dict[str, Any]

    @property
    def kind(self) -> str:
        return self.record.kind


def spooled(path: Path, destination: str | None = None) -> list[Spooled]:
    """Every record of the spool, oldest first; fails on damage."""
    state, found = StateDirectory(path), []
    for name in [destination] if destination is not None else destinations(state):
        for _, item in read_stream([s for s in list_segments(state, name) if s.stream == "records"], state.spool_key()):
            assert isinstance(item, Frame), item
            found.append(spooled_from(record_from_bytes(item.payload)))
    return found


def spooled_from(record: Record) -> Spooled:
    read = decompose(record)

    def tree(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$t"}:
                data = read.texts[value["$t"]].data
                return None if data is None else data.decode()
            return {key: tree(item) for key, item in value.items()}
        return [tree(item) for item in value] if isinstance(value, list) else value

    return Spooled(record, tree(read.facts))


def journaled(path: Path) -> list[JournalItem]:
    """Every item of every journal."""
    state, found = StateDirectory(path), []
    for name in destinations(state):
        for segment in list_segments(state, name):
            if segment.stream == "journal":
                for item in read_frames(segment.path, state.spool_key()):
                    assert not isinstance(item, Damage), item
                    found.append(decoded(item.payload))
    return found


def statuses(path: Path) -> list[dict[str, Any]]:
    """Every process's status, oldest first."""
    return [json.loads(file.read_text()) for file in sorted((path / "status").glob("*.json"))]


def all_bytes(path: Path) -> bytes:
    """The bytes of every file below, names included."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return b"\n".join(str(file.relative_to(path)).encode() + b"\n" + file.read_bytes() for file in files)
