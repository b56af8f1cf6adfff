"""What a record shows by itself: header, content and parts, and with its writer's key its signature (FORMAT 8.2).

Each function returns what it found; nothing found is the usual case and costs no allocation. Checking goes on after a
finding.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from amfs_otel.chain.entry import EntryFields
from amfs_otel.chain.findings import Finding
from amfs_otel.chain.hashes import CONTENT_DOMAIN, SIGNATURE_DOMAIN, part_commitment, record_hash
from amfs_otel.chain.header import HEADER_COLUMNS, Header, guessed_header, read_header
from amfs_otel.chain.keys import VerifyingKey
from amfs_otel.chain.record import Record
from amfs_otel.chain.verification import shown_column
from amfs_otel.errors import FormatError, VerificationError

_NOTHING: tuple[Finding, ...] = ()


def header_of(record: Record, at: int | None) -> tuple[Header, Sequence[Finding]]:
    """Return a record's header, and BAD_HEADER if it is not of the format; then the header is what could be read.

    Args:
        record: The record.
        at: Sequence number of its entry, for the finding.
    """
    try:
        return read_header(record.header), _NOTHING
    except FormatError as error:
        header = guessed_header(record.header)
        message = f"The header is not of the format: {error.what} ({error.where})."
        return header, (Finding("BAD_HEADER", message, at, header.record_id or None),)


def content_findings(record: Record, header: Header, at: int | None) -> Sequence[Finding]:
    """Return CONTENT_ALTERED if the commitments are not those that the header, if readable, fixes (FORMAT 4.2)."""
    commitments = record.commitments
    digest = sha256(CONTENT_DOMAIN + len(commitments).to_bytes(4, "big") + b"".join(commitments)).hexdigest()
    if digest == header.content_hash or not header.content_hash:
        return _NOTHING
    message = "The commitments of the parts are not those that the header fixes."
    return (Finding("CONTENT_ALTERED", message, at, header.record_id or None, header.content_hash or None, digest),)


def part_findings(record: Record, header: Header, at: int | None) -> tuple[Sequence[Finding], Sequence[int]]:
    """Check the bytes of every part against its commitment (FORMAT 4.1).

    Returns:
        Findings CONTENT_ALTERED, and the numbers of the parts whose bytes are neither there nor withheld by policy:
            these are
        CONTENT_MISSING unless an erasure record names them.
    """
    commitments = record.commitments
    present: set[int] = set()
    altered: list[Finding] = []
    withheld = header.withheld_numbers() if header.withheld else ()
    for part in record.parts:
        number = part.number
        if number in present or not 1 <= number <= len(commitments):
            message = f"Part {number} stands there and the header does not count it."
            altered.append(Finding("CONTENT_ALTERED", message, at, header.record_id or None, part=number))
            continue
        if part.salt is None or (part.data is None and number not in withheld):
            continue
        present.add(number)
        if part.data is not None and part_commitment(part.salt, part.data) != commitments[number - 1]:
            message = f"Part {number} is not what was recorded."
            altered.append(Finding("CONTENT_ALTERED", message, at, header.record_id or None, part=number))
    if len(present) == len(commitments):
        return altered, ()
    return altered, [number for number in range(1, len(commitments) + 1) if number not in present]


def missing_part(header: Header, at: int | None, number: int) -> Finding:
    """Return CONTENT_MISSING for a part."""
    message = f"Part {number} is gone, no policy withheld it and no erasure record names it."
    return Finding("CONTENT_MISSING", message, at, header.record_id or None, part=number)


def column_findings(
    columns: Mapping[str, object], fields: EntryFields, header: Header | None, at: int
) -> Sequence[Finding]:
    """Return COLUMN_MISMATCH for each column of the store that does not show what the signed bytes say (FORMAT 8.5).

    Args:
        columns: By the names of the entry's members, then of the header's; ``entry_log`` and ``record_id`` avoid a
            clash.
        fields: The entry.
        header: The record's header, None if there is no record: its columns are not compared.
        at: Sequence number.

    Raises:
        VerificationError: A column's name is not of the format.
    """
    if header is not None and columns == _usual_columns(fields, header, at):
        return _NOTHING
    signed: dict[str, Any] = fields._asdict() | {"sequence_number": at, "entry_log": fields.log}
    if header is not None:
        signed |= header.columns()
    found: list[Finding] = []
    for name, value in columns.items():
        if name not in signed:
            if header is None and name in HEADER_COLUMNS:
                continue
            raise VerificationError("the store shows a column that the format does not know", where=name)
        shown = shown_column(value)
        if shown != signed[name]:
            message = f"The column {name} does not show what was signed."
            record_id = header.record_id if header is not None else None
            found.append(Finding("COLUMN_MISMATCH", message, at, record_id, signed[name], shown))
    return found


def _usual_columns(fields: EntryFields, header: Header, at: int) -> dict[str, object]:
    """The columns that our own store generates, as it shows them where they are right: compared at once, in C."""
    return {
        "entry_log": fields.log,
        "sequence_number": at,
        "parent_hash": bytes.fromhex(fields.parent_hash),
        "record_hash": bytes.fromhex(fields.record_hash),
        "log": header.log,
        "record_id": header.record_id,
        "kind": header.kind,
        "session": header.session,
        "trace": None if header.trace == "null" else header.trace[1:-1],
    }


def check_record(record: Record, key: VerifyingKey | None) -> list[Finding]:
    """Check a record by itself, as a sealer does before it places it (FORMAT 8.2).

    Args:
        record: With all its parts.
        key: The writer's key, or None: then a signature that is there is not judged, and one that is missing is still
            BAD_SIGNATURE.

    Returns:
        HEADER_ALTERED, BAD_HEADER, CONTENT_ALTERED, CONTENT_MISSING, BAD_SIGNATURE; empty if all is well.
    """
    header, found = header_of(record, None)
    findings = list(found)
    digest = record_hash(record.header)
    if digest != record.record_hash:
        message = "The header is not the one whose hash stands beside it."
        findings.append(
            Finding("HEADER_ALTERED", message, None, header.record_id or None, record.record_hash.hex(), digest.hex())
        )
    findings += content_findings(record, header, None)
    altered, missing = part_findings(record, header, None)
    findings += altered
    findings += [missing_part(header, None, number) for number in missing]
    wrong = bool(key) and (key.alg != header.alg or not key.verifies(SIGNATURE_DOMAIN + digest, record.signature))
    if wrong or not record.signature:
        findings.append(
            Finding("BAD_SIGNATURE", "The signature is not that of the named key.", None, header.record_id or None)
        )
    return findings
