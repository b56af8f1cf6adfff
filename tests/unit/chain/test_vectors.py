"""Golden vectors: ours, the offline verifier and the files on disk say the same."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from amfs_otel.chain.findings import VERDICT_OF, Verdict
from amfs_otel.chain.keys import KeyRing, key_from_text
from amfs_otel.chain.lines import line_from_entry, line_from_record, read_lines
from amfs_otel.chain.trust import trust_from_json
from amfs_otel.chain.verify import LogVerifier, StoredEntry
from tests.vectors import make_chain_vectors
from tests.vectors.sample_log import codes

ROOT = Path(__file__).parents[3]
OFFLINE = ROOT / "examples" / "verify_offline.py"
NAMES = sorted(path.stem for path in make_chain_vectors.DIRECTORY.glob("*.json"))


def load(name):
    return json.loads((make_chain_vectors.DIRECTORY / f"{name}.json").read_text())


def offline_module():
    spec = importlib.util.spec_from_file_location("verify_offline", OFFLINE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


offline = offline_module()


def verified(document):
    trust = trust_from_json(json.dumps(document["trust"])) if document["trust"] else None
    keys = KeyRing(map(key_from_text, document["keys"]))
    verifier = LogVerifier(document["log"], keys, trust, level=document["level"], now_ns=document["now_ns"])
    for item in read_lines(document["lines"]):
        if isinstance(item, StoredEntry):
            verifier.feed(item)
        else:
            verifier.unsealed(item)
    return verifier.finish()


def test_every_vector_of_the_script_is_on_disk_and_the_reverse():
    assert sorted(make_chain_vectors.CASES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_verifier_finds_what_the_vector_states(name):
    document = load(name)
    verification = verified(document)
    assert codes(verification) == [tuple(finding) for finding in document["expected"]["findings"]]
    assert verification.verdict.name == document["expected"]["verdict"]
    assert verification.coverage.erased_parts == document["expected"]["erased_parts"]
    assert verification.coverage.withheld_parts == document["expected"]["withheld_parts"]


@pytest.mark.parametrize("name", NAMES)
def test_the_offline_verifier_agrees(name):
    document = load(name)
    answer = offline.verify(
        document["lines"],
        log=document["log"],
        secrets=[offline.key_from_text(text.encode()) for text in document["keys"]],
        trust=document["trust"],
        level=document["level"],
        now_s=document["now_ns"] / 1e9,
    )
    found = [[finding["code"], finding["sequence_number"]] for finding in answer["findings"]]
    ours = verified(document)
    assert sorted(found, key=str) == sorted(document["expected"]["findings"], key=str)
    assert answer["verdict"] == document["expected"]["verdict"]
    assert answer["coverage"]["authenticated_up_to"] == ours.coverage.authenticated_up_to
    assert answer["coverage"]["erased_parts"] == ours.coverage.erased_parts
    assert answer["checked"] == ours.to_dict()["checked"]


@pytest.mark.parametrize("name", NAMES)
def test_the_script_still_makes_the_vector(name):
    assert make_chain_vectors.document(make_chain_vectors.case_named(name)) == load(name)


@pytest.mark.parametrize("name", NAMES)
def test_lines_keep_every_byte(name):
    lines = load(name)["lines"]
    again = [
        line_from_entry(item) if isinstance(item, StoredEntry) else line_from_record(item) for item in read_lines(lines)
    ]
    assert again == lines


def test_every_code_that_needs_no_checkpoint_has_a_vector():
    shown = {code for name in NAMES for code, _ in load(name)["expected"]["findings"]}
    elsewhere = {"CHECKPOINT_MISMATCH", "BAD_CHECKPOINT", "FORK", "TRUNCATED", "NO_ANCHOR"}
    elsewhere |= {"RECEIPT_MISMATCH", "RECEIPT_UNMATCHED", "BAD_PROOF", "SPOOL_ALTERED"}
    elsewhere |= {"HIDDEN_ROWS", "NOT_A_TABLE", "POSTURE"}
    assert shown | elsewhere == set(VERDICT_OF)
    assert not shown & elsewhere


def test_the_offline_verifier_is_a_program_with_the_verdict_as_exit_code(tmp_path):
    for name in ("good_mixed", "content_value_changed", "no_key", "gap_recorded"):
        document = load(name)
        log = tmp_path / f"{name}.jsonl"
        log.write_text("\n".join(document["lines"]) + "\n", encoding="utf-8")
        command = [sys.executable, "-I", str(OFFLINE), str(log), "--json"]
        for index, text in enumerate(document["keys"]):
            key = tmp_path / f"{index}.key"
            key.write_text(text + "\n")
            command += ["--key-file", str(key)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert done.returncode == Verdict[document["expected"]["verdict"]]
        assert json.loads(done.stdout)["verdict"] == document["expected"]["verdict"]


def test_the_offline_verifier_imports_nothing_of_ours():
    source = OFFLINE.read_text()
    assert "amfs_otel." not in source
    assert "import amfs" not in source


@pytest.mark.parametrize("text", ["{", "[]", '{"entry":null,"record":{}}', '{"entry":{},"record":null}'])
def test_a_line_that_is_none_is_a_usage_error(tmp_path, text):
    path = tmp_path / "log.jsonl"
    path.write_text(text + "\n")
    done = subprocess.run([sys.executable, "-I", str(OFFLINE), str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
