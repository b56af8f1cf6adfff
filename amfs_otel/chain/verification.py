"""What goes into a verification and what comes out (FORMAT 8)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.findings import Finding, Verdict
from amfs_otel.chain.record import Record


@dataclass(slots=True)
class StoredEntry:
    """An entry and its record as a store shows them. Not frozen: a verification makes one for each entry of a log.

    Attributes:
        entry: The entry.
        record: The record with the hash that the entry names; None if the store has none.
        columns: The store's generated columns by name (`COLUMNS` of `verify`), to be compared; None if there are none
            to compare.
    """

    entry: Entry
    record: Record | None
    columns: Mapping[str, object] | None = None


def shown_column(value: object) -> str | int | None:
    """What a column shows, as the format writes it: bytes as hex, UUIDs and other objects as their text."""
    if isinstance(value, bytes | memoryview):
        return value.hex()
    return value if value is None or isinstance(value, int) else str(value)


@dataclass(slots=True)
class Coverage:
    """How far a verification reaches. Sequence numbers are inclusive; None = nothing.

    Attributes:
        authenticated_up_to: Every entry up to here has a valid MAC and link.
        anchored_up_to: Every entry up to here lies under a checkpoint kept outside.
        unanchored_tail: Entries after that.
        unsealed_young: Records without an entry, younger than the deadline.
        unsealed_old: The same, older.
        erased_parts: Parts that an erasure record names and that are gone.
        withheld_parts: Parts that policy withheld.
        first_sealed_at: Time of the first entry read.
        last_sealed_at: Time of the last one.
        findings_not_listed: Findings beyond the first 1,000 of each code.
    """

    authenticated_up_to: int | None = None
    anchored_up_to: int | None = None
    unanchored_tail: int = 0
    unsealed_young: int = 0
    unsealed_old: int = 0
    erased_parts: int = 0
    withheld_parts: int = 0
    first_sealed_at: str | None = None
    last_sealed_at: str | None = None
    findings_not_listed: int = 0


@dataclass(slots=True)
class Checked:
    """How much was looked at."""

    entries: int = 0
    records: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer: one verdict, what it rests on, and how far it reaches."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    coverage: Coverage = field(default_factory=Coverage)
    checked: Checked = field(default_factory=Checked)

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``verify --json`` shows it, without the posture section."""
        return {
            "verdict": self.verdict.name,
            "findings": [finding.to_dict() for finding in self.findings],
            "coverage": asdict(self.coverage),
            "checked": asdict(self.checked),
        }
