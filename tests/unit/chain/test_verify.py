"""What the vectors do not show: ranges, times, trust files, messages, limits."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from amfs_otel import chain
from amfs_otel.chain.findings import VERDICT_OF, Finding, Verdict, worst
from amfs_otel.chain.genesis import key_fact
from amfs_otel.chain.keys import Ed25519Key, KeyRing
from amfs_otel.chain.lines import read_lines
from amfs_otel.chain.trust import trust_from_json
from amfs_otel.chain.verify import MAX_FINDINGS_PER_CODE, LogVerifier
from amfs_otel.errors import FormatError, VerificationError
from tests.vectors.make_chain_vectors import trust_of
from tests.vectors.sample_log import KEYS, OTHER_WRITER, STRANGER, WRITER, assert_intact, base_log, codes


def verifier_of(log, **options):
    return LogVerifier(log.log, KeyRing(options.pop("keys", KEYS)), now_ns=log.now_ns, **options)


def test_the_severity_of_verdicts():
    def findings(*names):
        return [Finding(name, "") for name in names]

    assert worst([]) is Verdict.INTACT
    assert worst(findings("POSTURE")) is Verdict.INTACT
    assert worst(findings("GAP", "POSTURE")) is Verdict.INCOMPLETE
    assert worst(findings("GAP", "NO_KEY")) is Verdict.CANNOT_JUDGE
    assert worst(findings("GAP", "NO_KEY", "MISSING")) is Verdict.TAMPERED
    assert worst(findings("UNKNOWN_KEY")) is Verdict.CANNOT_JUDGE
    assert worst(findings("UNKNOWN_KEY"), trust_complete=True) is Verdict.TAMPERED
    assert [verdict.value for verdict in Verdict] == [0, 1, 3, 4]
    with pytest.raises(ValueError, match="MAYBE"):
        Finding("MAYBE", "")


def test_the_table_of_the_format_is_the_table_of_the_code():
    text = Path(chain.__file__).with_name("FORMAT.md").read_text()
    rows = [
        line.strip("| \n").split(" | ")
        for line in text.split("8.2 A record")[0].split("8.1 ")[1].splitlines()
        if line.startswith("| ")
    ]
    stated = {code: row[-1] for row in rows for code in row[0].split(", ") if code.isupper() and code != "CODE"}
    assert stated == {code: verdict.name for code, verdict in VERDICT_OF.items()}


def test_findings_of_other_readers_count():
    log = base_log()
    verifier = verifier_of(log)
    for stored in log.entries:
        verifier.feed(stored)
    verifier.add(Finding("HIDDEN_ROWS", "a policy hides rows"))
    assert verifier.finish().verdict is Verdict.CANNOT_JUDGE


def test_a_range_is_verified_by_itself():
    log = base_log()
    verifier = verifier_of(log, first=4)
    for stored in log.entries[4:]:
        verifier.feed(stored)
    verification = verifier.finish()
    assert_intact(verification)
    assert verification.coverage.authenticated_up_to == 6
    assert verification.coverage.unanchored_tail == 3
    broken = verifier_of(log, first=4)
    for stored in log.entries[5:]:
        broken.feed(stored)
    assert codes(broken.finish()) == [("MISSING", 4)]


def test_a_range_that_ends_early_misses_nothing_behind_it():
    log = base_log()
    target = log.decision()
    log.seal(log.outcome(target))
    log.seal(target)
    log.seal(log.record("erasure", (), erases=[(log.entries[2].record.record_id, 3)]))
    log.drop_parts(2, 3)
    erasure = log.entries[9].record
    for record, expected in (
        (erasure, []),
        (replace(erasure, signature=bytes(32)), [("CONTENT_MISSING", 2)]),
        (log.entries[3].record, [("CONTENT_MISSING", 2)]),
    ):
        verifier = verifier_of(log, last=7)
        for stored in log.entries[:8]:
            verifier.feed(stored)
        verifier.erasure_elsewhere(record)
        assert codes(verifier.finish()) == expected


def test_a_range_names_keys_that_are_not_held():
    log = base_log()
    verifier = verifier_of(log, first=3, keys=(STRANGER,))
    for stored in log.entries[3:]:
        verifier.feed(stored)
    verification = verifier.finish()
    assert verification.verdict is Verdict.CANNOT_JUDGE
    assert {code for code, _ in codes(verification)} == {"KEY_NOT_HELD"}


def test_the_age_of_a_record_is_that_of_the_store_if_it_says_so():
    log = base_log()
    for age_s, expected in ((59, []), (61, [("UNSEALED", None)])):
        verifier = verifier_of(log)
        for stored in log.entries:
            verifier.feed(stored)
        verifier.unsealed(log.decision(), datetime.fromtimestamp(log.now_ns / 1e9 - age_s, UTC))
        verification = verifier.finish()
        assert codes(verification) == expected
        assert (verification.coverage.unsealed_young, verification.coverage.unsealed_old) == (
            (1, 0) if age_s < 60 else (0, 1)
        )


def test_an_unsealed_erasure_counts():
    log = base_log()
    target = log.entries[2].record
    log.loose.append(log.record("erasure", (), erases=[(target.record_id, 3)]))
    log.drop_parts(2, 3)
    verification = log.verify(age_s=1)
    assert_intact(verification)
    assert verification.coverage.erased_parts == 1


def test_a_reference_may_be_sealed_before_its_target():
    log = base_log()
    target = log.decision()
    log.seal(log.outcome(target))
    log.seal(target)
    assert_intact(log.verify())


def test_messages_name_the_workload_and_the_wrong_file():
    (finding,) = base_log().verify((WRITER, *KEYS[1:2])).findings
    assert finding.code == "KEY_NOT_HELD"
    assert f'{OTHER_WRITER.kid} ("review-agent")' in finding.message
    assert f'{WRITER.kid} ("deploy-agent")' in finding.message
    log = base_log()
    log.replace_record(3, signature=bytes(32))
    (finding,) = log.verify().findings
    assert '("review-agent")' in finding.message
    assert finding.record == log.entries[3].record.record_id


def test_no_secret_and_no_content_in_what_is_reported():
    log = base_log()
    for at in range(2, 6):
        log.replace_part(at, 3, data=b"forged text")
        log.replace_record(at, signature=bytes(32))
    shown = json.dumps(log.verify(keys=(*KEYS, STRANGER)).to_dict())
    for word in ("forged text", "roll out", "step 1", *(key.secret.hex() for key in KEYS)):
        assert word not in shown


def test_findings_beyond_a_thousand_of_a_code_are_counted():
    log = base_log()
    verifier = verifier_of(log)
    for number in range(MAX_FINDINGS_PER_CODE + 5):
        verifier.add(Finding("GAP", "lost", number))
    for stored in log.entries:
        verifier.feed(stored)
    verification = verifier.finish()
    assert len(verification.findings) == MAX_FINDINGS_PER_CODE
    assert verification.coverage.findings_not_listed == 5


def test_an_ed25519_writer_is_checked_if_the_trust_file_has_its_public_key():
    key = Ed25519Key(bytes(range(32)))
    log = base_log()
    fact = key_fact(op="add", role="writer", kid="", name="gateway", by="operator", public=key.public)
    log.seal(log.record("key", (), key_fact=fact))
    log.seal(log.decision(key=key))
    assert codes(log.verify()) == [("KEY_NOT_HELD", 8)]
    trust = trust_of(log, complete=True)
    trust["keys"].append(
        {"kid": key.kid, "role": "writer", "alg": "Ed25519", "name": "gateway", "public": key.public.public.hex()}
    )
    trusted = trust_from_json(json.dumps(trust))
    assert_intact(log.verify(trust=trusted))
    log.replace_record(8, signature=bytes(64))
    assert codes(log.verify(trust=trusted)) == [("BAD_SIGNATURE", 8)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"log":"x","complete":true,"keys":[{}]}',
        '{"log":"x","complete":true,"keys":[{"kid":"","role":"","alg":"","public":"00"}]}',
    ],
)
def test_a_bad_trust_file_is_refused(text):
    with pytest.raises(FormatError):
        trust_from_json(text)


def test_columns_are_compared_as_the_database_shows_them():
    log = base_log()
    stored = log.entries[3]
    columns = {
        "sequence_number": 3,
        "parent_hash": stored.entry.parent_hash,
        "record_hash": memoryview(stored.entry.record_hash),
        "log": "default",
        "record_id": stored.record.record_id,
        "kind": "decision",
        "session": stored.record.session,
        "trace": None,
    }
    log.entries[3] = replace(stored, columns=columns)
    assert_intact(log.verify())
    for name, value in (
        ("sequence_number", 4),
        ("sequence_number", "3"),
        ("parent_hash", bytes(32)),
        ("trace", "1" * 32),
        ("kind", None),
    ):
        log.entries[3] = replace(stored, columns=columns | {name: value})
        assert codes(log.verify()) == [("COLUMN_MISMATCH", 3)]
    log.entries[3] = replace(stored, record=None, columns=columns)
    assert codes(log.verify()) == [("MISSING", 3)]
    log.entries[3] = replace(stored, columns={"colour": "red"})
    with pytest.raises(VerificationError, match="colour"):
        log.verify()


def test_headers_level_still_checks_everything_signed():
    log = base_log()
    log.replace_part(3, 3, data=b"x")
    log.replace_record(4, signature=bytes(32))
    assert codes(log.verify(level="headers")) == [("BAD_SIGNATURE", 4)]
    assert log.verify(level="headers").checked.parts == 0


@pytest.mark.parametrize(
    "line", ["{", '"x"', '{"record":null}', '{"entry":{},"record":null}', '{"entry":null,"record":{}}']
)
def test_a_damaged_line_is_named(line):
    with pytest.raises(FormatError, match="line 2"):
        list(read_lines(["\n", line]))


def test_the_answer_is_json():
    answer = base_log().verify().to_dict()
    assert json.loads(json.dumps(answer)) == answer
    assert set(answer) == {"verdict", "findings", "coverage", "checked"}
    assert set(answer["checked"]) == {"entries", "records", "parts"}
