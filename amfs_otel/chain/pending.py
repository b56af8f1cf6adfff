"""What a verification can judge only when it has seen the whole log: erasures, references, duplicates (FORMAT 8.4).

An erasure record stands behind the records whose parts it lets go, and a reference may be sealed before its target,
so both are collected while the log is read and settled at the end. Memory: about 200 bytes a record.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amfs_otel.chain.check import missing_part
from amfs_otel.chain.findings import Finding
from amfs_otel.chain.header import Header


class Pending:
    """Collects, then settles. Not thread-safe; one for each verification."""

    def __init__(self) -> None:
        self._hash_of: dict[str, bytes] = {}
        self._refs: list[tuple[int | None, str, Mapping[str, Any]]] = []
        self._missing: list[tuple[Header, int | None, Sequence[int]]] = []
        self._erased: set[tuple[str, int]] = set()
        self._erased_ranges: list[tuple[str, str]] = []

    def is_new(self, header: Header, record_hash: bytes) -> bool:
        """Note a record; say whether its id was not seen before."""
        if header.record_id in self._hash_of:
            return False
        self._hash_of[header.record_id] = record_hash
        return True

    def refer(self, header: Header, at: int | None) -> None:
        """Note the references of a record."""
        for ref in json.loads(header.refs or "[]"):
            self._refs.append((at, header.record_id, ref))

    def miss(self, header: Header, at: int | None, numbers: Sequence[int]) -> None:
        """Note parts that are gone."""
        self._missing.append((header, at, numbers))

    def erase(self, facts: Mapping[str, Any]) -> None:
        """Note what an authentic erasure record lets go."""
        self._erased.update((record, part) for record, part in facts.get("erases", ()))
        if "erase_range" in facts:
            self._erased_ranges.append((facts["erase_range"]["before"], facts["erase_range"]["class"]))

    def settle_parts(self, report: Callable[[Finding], None]) -> int:
        """Report CONTENT_MISSING for the parts that no erasure record names; return how many were erased."""
        erased = 0
        for header, at, numbers in self._missing:
            for number in numbers:
                if self._is_erased(header, number):
                    erased += 1
                else:
                    report(missing_part(header, at, number))
        return erased

    def settle_refs(self, report: Callable[[Finding], None], *, whole_log: bool) -> None:
        """Report BAD_REF for references whose target is another than they say, or, in a whole log, nowhere."""
        for at, record_id, ref in self._refs:
            target = self._hash_of.get(ref["record"])
            if target is None and not whole_log:
                continue
            if target is None or (ref["hash"] is not None and ref["hash"] != target.hex()):
                state = "is not in the log" if target is None else "has another hash"
                message = f"The record that this one {ref['rel']} ({ref['record']}) {state}."
                report(Finding("BAD_REF", message, at, record_id, ref["hash"], target.hex() if target else None))

    def _is_erased(self, header: Header, number: int) -> bool:
        if (header.record_id, number) in self._erased:
            return True
        letter = header.classes[number - 1 : number]
        return any(
            header.captured_at < before and letter in classes for before, classes in self._erased_ranges if letter
        )
