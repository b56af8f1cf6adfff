"""The verifier of a whole log (FORMAT 8).

It is fed the entries in order of their sequence numbers, then the records without an entry, and answers with
findings, one verdict and how far the verdict reaches. It trusts nothing it is shown: bytes are hashed as they stand
and never rebuilt. Checking goes on after a finding.

Pure: the time and the keys are arguments. Not thread-safe; verify ranges in processes of their own. Memory: about 200
bytes a record, for DUPLICATE and BAD_REF.
"""

from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from amfs_otel.chain.canonical import ns_from_timestamp
from amfs_otel.chain.check import column_findings, content_findings, header_of, part_findings
from amfs_otel.chain.entry import Entry, EntryFields, read_entry
from amfs_otel.chain.findings import Finding, worst
from amfs_otel.chain.hashes import ENTRY_DOMAIN, RECORD_DOMAIN, SIGNATURE_DOMAIN
from amfs_otel.chain.header import Header
from amfs_otel.chain.keys import KeyRing
from amfs_otel.chain.pending import Pending
from amfs_otel.chain.record import Record
from amfs_otel.chain.trust import KeyBook, Standing, Trust, TrustedKey, trust_from_json
from amfs_otel.chain.verification import Checked, Coverage, StoredEntry, Verification
from amfs_otel.errors import FormatError

__all__ = [
    "Coverage",
    "LogVerifier",
    "StoredEntry",
    "Trust",
    "TrustedKey",
    "Verification",
    "trust_from_json",
]

MAX_FINDINGS_PER_CODE = 1000
"""Findings beyond are counted, not listed; the verdict is the same."""

_NO_PARENT = "0" * 64


class LogVerifier:
    """Verifies one log.

    Args:
        log: Name of the log.
        keys: The keys held here.
        trust: A trust file, or None: then what the log announces is taken, and only keys held here prove anything.
        level: ``headers`` does not look at parts, ``full`` does.
        now_ns: Now, nanoseconds since the epoch.
        seal_deadline_s: A record without an entry and older than this is UNSEALED.
        first: Sequence number of the first entry that will be fed. Above 0 nothing is said about what stands before
            it: its parent, its key announcements and revocations (a key held here is taken), the targets of ``refs``.
        last: Sequence number of the last one, None = up to the head. With it, targets of ``refs`` behind it are not
            missed.
    """

    def __init__(
        self,
        log: str,
        keys: KeyRing,
        trust: Trust | None = None,
        *,
        level: Literal["full", "headers"] = "full",
        now_ns: int,
        seal_deadline_s: float = 60,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        self._log = log
        self._keys = keys
        self._book = KeyBook(keys, trust)
        self._trust_complete = trust is not None and trust.complete
        self._look_at_parts = level == "full"
        self._now_ns = now_ns
        self._deadline_ns = int(seal_deadline_s * 1e9)
        self._first = self._expected = first
        self._is_whole = first == 0 and last is None
        self._parent = _NO_PARENT if first == 0 else None
        self._log_uid = trust.log_uid if trust else None
        self._unbroken = True
        self._findings: list[Finding] = []
        self._listed: dict[str, int] = {}
        self._not_held: dict[tuple[str, str], list[Any]] = {}
        self._pending = Pending()
        self._coverage = Coverage()
        self._checked = Checked()

    def add(self, finding: Finding) -> None:
        """Take a finding that another reader made (HIDDEN_ROWS, NOT_A_TABLE, checkpoints, receipts)."""
        listed = self._listed[finding.code] = self._listed.get(finding.code, 0) + 1
        if listed <= MAX_FINDINGS_PER_CODE:
            self._findings.append(finding)
        else:
            self._coverage.findings_not_listed += 1

    def feed(self, stored: StoredEntry) -> None:
        """Check the next entry and its record.

        Args:
            stored: In order of sequence numbers; an order that is not ascending is itself a finding.
        """
        entry, record = stored.entry, stored.record
        self._checked.entries += 1
        try:
            fields = read_entry(entry.entry)
        except FormatError as error:
            self._damaged_entry(entry, record, error)
            return
        at = int(fields.sequence_number)
        if at != self._expected and not self._goes_on(at):
            return
        header = None
        if record is not None:
            header, found = header_of(record, at)
            for finding in found:
                self.add(finding)
            if at == 0:
                self._begin(header)
        sound = self._check_entry(entry, fields, at)
        self._expected = at + 1
        self._parent = entry.entry_hash.hex()
        self._unbroken = self._unbroken and sound
        if self._unbroken:
            self._coverage.authenticated_up_to = at
        if record is None or header is None:
            self.add(Finding("MISSING", "The record of this entry is not in the store.", at, None, fields.record_hash))
        else:
            self._check_record(record, header, at, fields)
        if stored.columns is not None:
            for finding in column_findings(stored.columns, fields, header, at):
                self.add(finding)

    def unsealed(self, record: Record, stored_at: datetime | None = None) -> None:
        """Check a record that has no entry yet. Feed these after all entries.

        Args:
            record: The record.
            stored_at: When the store took it, aware; None = its writer's time.
        """
        header, found = header_of(record, None)
        for finding in found:
            self.add(finding)
        self._check_record(record, header, None, None)
        if stored_at is not None:
            since_ns = int(stored_at.timestamp() * 1e9)
        else:
            try:
                since_ns = ns_from_timestamp(header.captured_at)
            except FormatError:
                since_ns = 0
        if self._now_ns - since_ns <= self._deadline_ns:
            self._coverage.unsealed_young += 1
            return
        self._coverage.unsealed_old += 1
        message = (
            f"The record was stored more than {self._deadline_ns // 10**9} s ago and has no entry; is a sealer running?"
        )
        self.add(Finding("UNSEALED", message, None, header.record_id or None))

    def erasure_elsewhere(self, record: Record) -> None:
        """Take an erasure record that stands outside the range, so that what it let go is not CONTENT_MISSING.

        Args:
            record: One that is not genuine is passed over; the range in which it stands shows why.
        """
        header, found = header_of(record, None)
        digest = sha256(RECORD_DOMAIN + record.header).digest()
        standing = self._book.standing(header.signing_key_id, "writer")
        genuine = (
            not found and digest == record.record_hash and _wrong_signature(record, header, digest, standing) is None
        )
        if genuine and standing.problem in (None, "KEY_NOT_HELD") and header.kind == "erasure" and header.facts:
            self._pending.erase(header.facts)

    def finish(self) -> Verification:
        """Judge what needs the whole log (erasures, refs, keys) and return the answer. Call it once."""
        coverage = self._coverage
        coverage.erased_parts = self._pending.settle_parts(self.add)
        self._pending.settle_refs(self.add, whole_log=self._is_whole)
        self._settle_keys()
        if not self._checked.entries:
            message = "The log holds no entry. `amfs-otel list` shows what the spool of this machine still holds."
            self.add(Finding("EMPTY_STORE", message))
        if self._checked.entries:
            after = coverage.anchored_up_to + 1 if coverage.anchored_up_to is not None else self._first
            coverage.unanchored_tail = max(0, self._expected - after)
        verdict = worst(self._findings, trust_complete=self._trust_complete)
        return Verification(verdict, tuple(self._findings), coverage, self._checked)

    def _damaged_entry(self, entry: Entry, record: Record | None, error: FormatError) -> None:
        """Report an entry whose members cannot be read; its place is taken to be the expected one."""
        at = self._expected
        self.add(Finding("ENTRY_ALTERED", f"The entry is not of the format: {error.what} ({error.where}).", at))
        self._expected += 1
        self._parent = entry.entry_hash.hex()
        self._unbroken = False
        if record is not None:
            header, found = header_of(record, at)
            for finding in found:
                self.add(finding)
            if at == 0:
                self._begin(header)
            self._check_record(record, header, at, None)

    def _goes_on(self, at: int) -> bool:
        """Report a number that is not the expected one; say whether the log goes on behind it."""
        self._unbroken = False
        if at < self._expected:
            self.add(Finding("DUPLICATE", "Another entry has this sequence number.", at, None, self._expected, at))
            return False
        numbers = f"{self._expected}" if at == self._expected + 1 else f"{self._expected} to {at - 1}"
        message = f"No entry has the sequence number {numbers}."
        self.add(Finding("MISSING", message, self._expected, None, self._expected, at))
        return True

    def _begin(self, header: Header) -> None:
        """Take what the first record fixes for the log, or report that it is no genesis (FORMAT 5.3)."""
        genesis = header.facts.get("genesis") if header.facts and header.kind == "genesis" else None
        if genesis is None:
            message = "The first record of the log is not its genesis."
            self.add(Finding("BAD_HEADER", message, 0, header.record_id or None, "genesis", header.kind or None))
            return
        if self._log_uid is None:
            self._log_uid = genesis["log_uid"]
        expected, got = f"{self._log}/{self._log_uid}", f"{genesis['log']}/{genesis['log_uid']}"
        if expected != got:
            message = "The genesis is that of another log."
            self.add(Finding("FOREIGN_RECORD", message, 0, header.record_id, expected, got))
        self._book.follow_genesis(genesis)

    def _check_entry(self, entry: Entry, fields: EntryFields, at: int) -> bool:
        """Check hash, MAC, link, log and time of an entry; say whether it is authentic."""
        sound = True
        digest = sha256(b"\x00" + entry.entry).digest()
        if digest != entry.entry_hash:
            sound = False
            message = "The entry is not the one whose hash stands beside it."
            self.add(Finding("ENTRY_ALTERED", message, at, None, entry.entry_hash.hex(), digest.hex()))
        if self._parent is not None and fields.parent_hash != self._parent:
            sound = False
            message = "The entry does not continue the one before it."
            self.add(Finding("LINK_BROKEN", message, at, None, self._parent, fields.parent_hash))
        standing = self._book.standing(fields.log_key_id, "log")
        sound &= self._check_mac(entry, standing, at)
        if self._log_uid is None:
            self._log_uid = fields.log_uid
        if fields.log != self._log or fields.log_uid != self._log_uid:
            sound = False
            message = "The entry was made for another log."
            expected, got = f"{self._log}/{self._log_uid}", f"{fields.log}/{fields.log_uid}"
            self.add(Finding("FOREIGN_RECORD", message, at, None, expected, got))
        previous = self._coverage.last_sealed_at
        if previous is None:
            self._coverage.first_sealed_at = fields.sealed_at
        elif fields.sealed_at < previous:
            message = "The entry was sealed before the one in front of it."
            self.add(Finding("TIME_REGRESSION", message, at, None, f">= {previous}", fields.sealed_at))
        self._coverage.last_sealed_at = fields.sealed_at
        return sound

    def _check_mac(self, entry: Entry, standing: Standing, at: int) -> bool:
        """Check an entry's MAC and its key; say whether it is proven."""
        mac, key = entry.entry_mac, standing.key
        wrong = not mac or (key is not None and not key.verifies(ENTRY_DOMAIN + entry.entry_hash, mac))
        if wrong:
            message = f"The MAC of the entry is not that of log key {standing.label}."
            self.add(Finding("BAD_MAC", message, at))
        if standing.problem is not None:
            self._report_key(standing, "log", at, None)
        return not wrong and standing.problem is None

    def _check_record(self, record: Record, header: Header, at: int | None, fields: EntryFields | None) -> None:
        """Check hash, log, content, parts and signature of a record, then take what it says about others."""
        self._checked.records += 1
        record_id = header.record_id or None
        digest = sha256(RECORD_DOMAIN + record.header).digest()
        placed = fields.record_hash if fields is not None else record.record_hash.hex()
        intact = digest == record.record_hash and digest.hex() == placed
        if not intact:
            message = "The header is not the one that was recorded."
            self.add(Finding("HEADER_ALTERED", message, at, record_id, placed, digest.hex()))
        if header.log not in (self._log, ""):
            message = "The record was made for another log."
            self.add(Finding("FOREIGN_RECORD", message, at, record_id, self._log, header.log))
        if record_id is not None and not self._pending.is_new(header, record.record_hash):
            message = "The same record stands in the log twice."
            self.add(Finding("DUPLICATE", message, at, record_id))
        for finding in content_findings(record, header, at):
            self.add(finding)
        if self._look_at_parts:
            self._check_parts(record, header, at)
        if header.withheld:
            self._coverage.withheld_parts += len(header.withheld_numbers())
        signed = self._check_signature(record, header, digest, at, fields)
        self._take(header, at, authentic=intact and signed)

    def _check_parts(self, record: Record, header: Header, at: int | None) -> None:
        self._checked.parts += len(record.parts)
        altered, missing = part_findings(record, header, at)
        for finding in altered:
            self.add(finding)
        if missing:
            self._pending.miss(header, at, missing)

    def _check_signature(
        self, record: Record, header: Header, digest: bytes, at: int | None, fields: EntryFields | None
    ) -> bool:
        """Check a record's signature and its key; say whether, as far as the keys held here can tell, it is genuine."""
        standing = self._book.standing(header.signing_key_id, "writer")
        reason = _wrong_signature(record, header, digest, standing)
        if reason is None and fields is not None and sha256(record.signature).hexdigest() != fields.signature_hash:
            reason = "The signature is not the one that was sealed."
        if reason is not None:
            self.add(Finding("BAD_SIGNATURE", reason, at, header.record_id or None, standing.alg, header.alg or None))
        if standing.problem is not None and standing.kid:
            self._report_key(standing, "writer", at, header.record_id or None)
        return reason is None and standing.problem in (None, "KEY_NOT_HELD")

    def _take(self, header: Header, at: int | None, *, authentic: bool) -> None:
        """Take what a record says about others (FORMAT 5.4, 8.4); one that is not authentic says nothing."""
        if header.refs:
            self._pending.refer(header, at)
        if header.kind == "gap":
            message = "The writer reports that events were lost; the record says how many and why."
            self.add(Finding("GAP", message, at, header.record_id))
        elif header.kind == "genesis" and at != 0:
            message = "A genesis stands behind the beginning of the log."
            self.add(Finding("BAD_HEADER", message, at, header.record_id))
        if header.facts is None or not authentic:
            return
        if header.kind == "erasure":
            self._pending.erase(header.facts)
        elif header.kind == "key" and at is not None:
            self._book.follow_key(header.facts["key"])

    def _report_key(self, standing: Standing, role: str, at: int | None, record_id: str | None) -> None:
        """Report a key that may not or cannot be used; KEY_NOT_HELD once a key, at the end."""
        if standing.problem == "KEY_NOT_HELD":
            seen = self._not_held.setdefault((standing.kid, role), [at, record_id, 0])
            seen[2] += 1
            return
        if standing.problem == "REVOKED_KEY":
            message = f"{role.capitalize()} key {standing.label} was revoked before this place in the log."
        else:
            message = f"Key {standing.label} was not announced as a {role} key, by the log or by the trust file."
        self.add(Finding(standing.problem or "", message, at, record_id, None, standing.kid))

    def _settle_keys(self) -> None:
        held = ", ".join(map(self._book.label, self._keys.kids()))
        if not held:
            message = "No key is held here, so no signature and no MAC was checked."
            self.add(Finding("NO_KEY", message))
            return
        for (kid, role), (at, record_id, count) in self._not_held.items():
            what = "records" if role == "writer" else "entries"
            message = (
                f"{role.capitalize()} key {self._book.label(kid)} is not among the keys held here ({held}): "
                f"{count} {what} were not checked. If a key file was meant to hold this key, it is the wrong file."
            )
            self.add(Finding("KEY_NOT_HELD", message, at, record_id, kid, list(self._keys.kids())))


def _wrong_signature(record: Record, header: Header, digest: bytes, standing: Standing) -> str | None:
    """Return why a signature cannot be right, as far as the keys held can tell (FORMAT 5.5); None if it can."""
    if not record.signature:
        return "The record carries no signature."
    if not header.signing_key_id:
        return "The record names no key."
    if standing.alg is not None and header.alg != standing.alg:
        return f"The record claims another algorithm than key {standing.label} was announced for."
    if standing.key is not None and not standing.key.verifies(SIGNATURE_DOMAIN + digest, record.signature):
        return f"The signature is not that of key {standing.label}."
    return None
