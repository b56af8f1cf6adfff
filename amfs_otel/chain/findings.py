"""What a verifier may report, and what each report means for the verdict (FORMAT 8).

A `Finding` is a result, not an error: it says what was seen and where. `VERDICT_OF` is the normative table code ->
verdict, `worst` folds findings into one verdict. Values are immutable; safe to share between threads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any


class Verdict(IntEnum):
    """The answer of a verification; the number is the process's exit code (2 is a usage error, never a verdict)."""

    INTACT = 0
    TAMPERED = 1
    CANNOT_JUDGE = 3
    INCOMPLETE = 4


_TAMPERED = (
    "CONTENT_ALTERED CONTENT_MISSING HEADER_ALTERED BAD_HEADER BAD_SIGNATURE REVOKED_KEY ENTRY_ALTERED BAD_MAC "
    "LINK_BROKEN MISSING DUPLICATE FOREIGN_RECORD COLUMN_MISMATCH TIME_REGRESSION CHECKPOINT_MISMATCH BAD_CHECKPOINT "
    "FORK TRUNCATED RECEIPT_MISMATCH BAD_PROOF BAD_REF SPOOL_ALTERED"
)
_CANNOT_JUDGE = "UNKNOWN_KEY KEY_NOT_HELD NO_KEY EMPTY_STORE HIDDEN_ROWS NOT_A_TABLE NO_ANCHOR"
_INCOMPLETE = "UNSEALED RECEIPT_UNMATCHED GAP"

VERDICT_OF: Mapping[str, Verdict] = MappingProxyType(
    dict.fromkeys(_TAMPERED.split(), Verdict.TAMPERED)
    | dict.fromkeys(_CANNOT_JUDGE.split(), Verdict.CANNOT_JUDGE)
    | dict.fromkeys(_INCOMPLETE.split(), Verdict.INCOMPLETE)
    | {"POSTURE": Verdict.INTACT}
)
"""Every finding code and the verdict it leads to on its own."""

_SEVERITY = (Verdict.TAMPERED, Verdict.CANNOT_JUDGE, Verdict.INCOMPLETE, Verdict.INTACT)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a verifier saw.

    Attributes:
        code: A key of `VERDICT_OF`.
        message: One sentence for a person; names the workload behind a key where it was announced; never content,
            never a secret.
        sequence_number: The entry it concerns, None for what has no place in the log.
        record: The record's id, None where it cannot be told.
        expected: What would have been right (JSON-able).
        got: What was there (JSON-able).
        part: Number of the part it concerns, 1-based.
    """

    code: str
    message: str
    sequence_number: int | None = None
    record: str | None = None
    expected: Any = None
    got: Any = None
    part: int | None = None

    def __post_init__(self) -> None:
        if self.code not in VERDICT_OF:
            raise ValueError(f"{self.code} is not a finding code")

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as ``verify --json`` shows it."""
        shown: dict[str, Any] = {
            "code": self.code,
            "sequence_number": self.sequence_number,
            "record": self.record,
            "expected": self.expected,
            "got": self.got,
            "message": self.message,
        }
        if self.part is not None:
            shown["part"] = self.part
        return shown


def verdict_of(code: str, *, trust_complete: bool = False) -> Verdict:
    """Return the verdict that a finding code leads to.

    Args:
        code: A key of `VERDICT_OF`.
        trust_complete: The trust file says that it lists every key, so a key that it does not list is tampering.
    """
    if trust_complete and code == "UNKNOWN_KEY":
        return Verdict.TAMPERED
    return VERDICT_OF[code]


def worst(findings: Iterable[Finding], *, trust_complete: bool = False) -> Verdict:
    """Return the verdict of several findings: TAMPERED > CANNOT_JUDGE > INCOMPLETE > INTACT."""
    seen = {verdict_of(finding.code, trust_complete=trust_complete) for finding in findings}
    return next((verdict for verdict in _SEVERITY if verdict in seen), Verdict.INTACT)
