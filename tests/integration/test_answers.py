"""`amfs_otel.explain`, `traces`, `verify` from inside a program."""

from pathlib import Path

import pytest

from tests.integration.cli_calls import AGENT, Cli, run_program

ASKING = """
import amfs_otel

with amfs_otel.session(agent="deployer"):
    amfs_otel.record_context("incidents", "3 SEV-1", source="PagerDuty API")
    amfs_otel.outcome("DEP-7", "success", "Healthy again")
    amfs_otel.record_context("later", "after the commit")
answer = amfs_otel.explain("DEP-7")
assert answer["external_contexts"][0]["source"] == "PagerDuty API", answer
assert answer["sequence_number"] is None
assert [one["outcome_type"] for one in answer["outcomes"]] == ["success"]
assert amfs_otel.explain(answer["record_id"][-8:])["record_id"] == answer["record_id"]
assert amfs_otel.explain("last")["external_contexts"][0]["label"] == "later"
rows = amfs_otel.traces(agent="deployer")
assert [row["outcome_ref"] for row in rows] == [None, "DEP-7"], rows
assert amfs_otel.traces(ref="DEP-7")[0]["record_id"] == answer["record_id"]
for call in (lambda: amfs_otel.explain("DEP-8"), amfs_otel.verify):
    try:
        call()
    except amfs_otel.errors.AmfsOtelError as error:
        print(error)
"""
OTHERS = """
import amfs_otel

answer = amfs_otel.explain("DEP-7")
print(answer["decision_summary"], answer["sequence_number"], amfs_otel.verify()["verdict"], len(amfs_otel.traces()))
"""


def test_a_process_answers_from_its_own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    done = run_program(ASKING.replace("import amfs_otel", "import amfs_otel, amfs_otel.errors", 1), tmp_path)
    assert done.returncode == 0, done.stderr
    unknown, unverified = done.stdout.splitlines()
    assert "`amfs-otel explain DEP-8`" in unknown
    assert "`amfs-otel verify`" in unverified
    assert not (tmp_path / "state" / "postgres").exists(), "no server is started"


def test_what_others_recorded_comes_from_the_server(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_OTEL_DSN", database)
    assert Cli(capsys)("init").code == 0
    assert run_program(AGENT, tmp_path).returncode == 0
    assert Cli(capsys)("drain").code == 0
    done = run_program(OTHERS, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Healthy again ")
    assert done.stdout.endswith("INTACT 2\n")
