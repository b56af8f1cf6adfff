"""The CLI without configuration: everything stays on this machine."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from amfs_otel.demo.tampering import FORGERIES, Forgery, copies
from amfs_otel.store.embedded import EmbeddedServer
from tests.integration.cli_calls import AGENT, Called, Cli, check_schema, run_program


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory into which one agent recorded two traces; its local server is gone afterwards."""
    folder = tmp_path_factory.mktemp("the state")
    state = folder / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMFS_OTEL_STATE_DIR", str(state))
        done = run_program(AGENT, folder)
    assert (done.returncode, done.stdout) == (0, "the agent's own output\n"), done.stderr
    yield state
    EmbeddedServer(state).remove()


@pytest.fixture
def cli(recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(recorded))
    return Cli(capsys)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    return Cli(capsys)


def test_list_shows_what_was_recorded(cli: Cli) -> None:
    rows = cli.answer("list")
    assert {(row["agent_id"], row["outcome_ref"]) for row in rows} == {("deployer", "DEP-7"), ("reviewer", None)}
    assert all(row["sequence_number"] is not None for row in rows)
    assert [row["agent_id"] for row in cli.answer("list", "--agent", "reviewer")] == ["reviewer"]
    assert [row["agent_id"] for row in cli.answer("list", "--session", "run-1")] == ["deployer"]
    assert cli.answer("list", "--since", "2h", "--until", "1h") == []


def test_list_as_csv_has_the_same_rows(cli: Cli) -> None:
    called = cli("list", "--csv")
    rows = list(csv.DictReader(io.StringIO(called.out)))
    assert [row["record_id"] for row in rows] == [row["record_id"] for row in cli.answer("list")]


def test_explain_answers_by_ref_piece_of_id_trace_and_last(cli: Cli) -> None:
    by_ref = cli.answer("explain", "DEP-7")
    assert by_ref["external_contexts"][0]["source"] == "PagerDuty API"
    assert by_ref["decisions"][0]["alternatives"] == ["Wait"]
    for text in (by_ref["record_id"], by_ref["record_id"][-8:]):
        assert cli.answer("explain", text)["record_id"] == by_ref["record_id"]
    assert cli.answer("explain", "last")["agent_id"] == "reviewer"


def test_explain_as_text_shows_the_four_blocks(cli: Cli) -> None:
    called = cli("explain", "DEP-7")
    assert called.code == 0
    assert "PagerDuty API" in called.out
    assert "Healthy again" in called.out
    assert "\x1b" not in called.out


def test_show_gives_the_record(cli: Cli) -> None:
    shown = cli.answer("show", "DEP-7")
    assert shown["record_id"] == cli.answer("explain", "DEP-7")["record_id"]
    assert cli("show", "last").code == 0


def test_an_unknown_ref_is_exit_2_with_the_nearest_refs_and_nothing_on_stdout(cli: Cli) -> None:
    called = cli("explain", "DEP-8", "--json")
    assert (called.code, called.out) == (2, "")
    assert "DEP-7" in called.err
    assert "Traceback" not in called.err


def test_an_unknown_entry_is_exit_2(cli: Cli) -> None:
    called = cli("tree", "no/such-entry")
    assert (called.code, called.out) == (2, "")


def test_outcome_adds_a_signed_record_that_names_the_decision(cli: Cli) -> None:
    decision = cli.answer("explain", "DEP-7")["record_id"]
    told = cli.answer(
        "outcome", "DEP-7", "failure", "--summary", "It broke again", "--source", "on-call", "--score", "0.25",
        "--at", "2021-01-02T03:04:05Z",
    )  # fmt: skip
    assert (told["decision_id"], told["outcome_ref"]) == (decision, "DEP-7")
    (late,) = (one for one in cli.answer("explain", "DEP-7")["outcomes"] if one["record_id"] == told["record_id"])
    assert late["outcome_type"] == "failure"
    assert (late["decision_summary"], late["source"], late["score"]) == ("It broke again", "on-call", 0.25)
    assert late["recorded_at"].startswith("2021-01-02T03:04:05")
    assert cli("outcome", "NO-SUCH", "failure").code == 2


def test_verify_is_intact_and_says_what_that_does_not_prove(cli: Cli) -> None:
    cli.answer("list")
    called = cli("verify")
    assert called.code == 0
    assert called.out.startswith("INTACT")
    assert "not proven" in called.out
    answer = cli.answer("verify")
    assert answer["findings"] == []
    assert answer["coverage"]["unanchored_tail"] == answer["checked"]["entries"] > 2
    assert cli.answer("verify", "--level", "headers")["checked"]["parts"] == 0
    assert cli("verify", "--require-anchor").code == 3
    assert cli("verify", "--from", "1000").code == 2


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_verify_names_each_forgery_with_its_place(cli: Cli, recorded: Path, forgery: Forgery) -> None:
    called = _verified_copy(cli, recorded, forgery, 1)
    check_schema(called.json, "verify")
    assert (called.code, called.json["verdict"]) == (1, "TAMPERED")
    assert called.json["findings"][0]["sequence_number"] == 1


def test_a_tail_that_was_cut_off_cannot_be_seen_and_verify_says_so(cli: Cli, recorded: Path) -> None:
    cli.answer("list")
    head = cli.answer("verify")["checked"]["entries"] - 1
    deleted = next(forgery for forgery in FORGERIES if forgery.name == "deleted")
    called = _verified_copy(cli, recorded, deleted, head)
    assert (called.code, called.json["coverage"]["unanchored_tail"]) == (0, head)


def test_a_saved_log_is_judged_without_us(cli: Cli, recorded: Path, tmp_path: Path) -> None:
    cli.answer("list")
    offline = [sys.executable, "-I", str(Path(__file__).parents[2] / "examples" / "verify_offline.py"), "--json"]
    for key in sorted((recorded / "keys").glob("*.key")):
        offline += ["--key-file", str(key)]

    def judged(saved: Path) -> dict[str, Any]:
        done = subprocess.run([*offline, str(saved)], capture_output=True, text=True, timeout=60)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    saved = tmp_path / "log.jsonl"
    ours = cli.answer("verify", "--save", str(saved))
    theirs = judged(saved)
    assert (theirs["verdict"], theirs["checked"]) == ("INTACT", ours["checked"])
    assert saved.stat().st_mode & 0o777 == 0o600

    dsn, altered = EmbeddedServer(recorded).ensure(), next(one for one in FORGERIES if one.name == "altered")
    assert dsn is not None
    with copies(dsn) as copier:
        cli("verify", "--save", str(tmp_path / "forged.jsonl"), "--dsn", copier.forged(altered, "default", 1))
    assert judged(tmp_path / "forged.jsonl")["verdict"] == "TAMPERED"

    again = cli("verify", "--save", str(saved))
    assert (again.code, again.out) == (2, "")
    assert str(saved) in again.err
    assert cli("verify", "--save", str(tmp_path / "part.jsonl"), "--from", "1").code == 2
    assert not (tmp_path / "part.jsonl").exists()


def _verified_copy(cli: Cli, state: Path, forgery: Forgery, at: int) -> Called:
    cli.answer("list")
    dsn = EmbeddedServer(state).ensure()
    assert dsn is not None
    with copies(dsn) as copier:
        return cli("verify", "--json", "--dsn", copier.forged(forgery, "default", at))


_OTHER_WORDS = """
UPDATE amfs_otel.part AS p SET bytes = convert_to('Stay', 'UTF8')
FROM amfs_otel.entry AS e JOIN amfs_otel.record AS r ON r.record_hash = e.record_hash
WHERE e.log = %(log)s AND e.sequence_number >= %(at)s AND p.record = r.id AND p.bytes = convert_to('Roll back', 'UTF8')
"""


def test_other_words_in_a_text_are_marked_where_they_are_read(cli: Cli, recorded: Path) -> None:
    cli.answer("list")
    dsn = EmbeddedServer(recorded).ensure()
    assert dsn is not None
    with copies(dsn) as copier:
        forged = copier.forged(
            Forgery("words", "a text in record #{at} reads otherwise", (_OTHER_WORDS,)), "default", 1
        )
        answers = {name: cli.answer(name, "DEP-7", "--dsn", forged) for name in ("explain", "show")}
        printed = {name: cli(name, "DEP-7", "--dsn", forged).out for name in answers}
    assert answers["explain"]["decisions"][0]["summary"] == "Stay"
    assert [one["path"] for one in answers["explain"]["altered"]] == ["decisions[0].summary"]
    assert len(answers["show"]["altered"]) == 1
    for text in printed.values():
        assert text.count("Stay [altered]") == 1
        assert text.count("amfs-otel verify") == 1
    assert cli.answer("explain", "DEP-7")["altered"] == cli.answer("show", "DEP-7")["altered"] == []


def test_drain_rebuild_and_doctor_leave_the_answers_as_they_are(cli: Cli) -> None:
    before = cli.answer("list")
    assert cli.answer("drain")["refused"] == 0
    assert cli("rebuild").code == 0
    assert cli.answer("list") == before
    called = cli("doctor", "--json")
    check_schema(called.json, "doctor")
    assert called.code == 0, called.json["findings"]
    assert called.json["store"]["entries"] >= 3
    assert cli("doctor").code == 0


def test_nothing_recorded_is_said_and_starts_no_server(empty: Cli, tmp_path: Path) -> None:
    for words in (("list",), ("explain", "DEP-1"), ("tree", "a/b")):
        called = empty(*words)
        assert (called.code, called.out) == (2, "")
        assert "amfs-otel run" in called.err
    assert not EmbeddedServer(tmp_path / "state").exists()


def test_verify_without_a_store_cannot_judge(empty: Cli) -> None:
    called = empty("verify", "--json")
    check_schema(called.json, "verify")
    assert called.code == 3
    said = {finding["code"]: finding["message"] for finding in called.json["findings"]}
    assert "amfs-otel list" in said["EMPTY_STORE"]


def test_reset_asks_and_deletes_the_local_store_alone(empty: Cli, tmp_path: Path) -> None:
    run_program(AGENT, tmp_path)
    assert len(empty.answer("list")) == 2
    assert empty("reset").code == 2
    assert empty("reset", "--local").code == 2
    assert empty("reset", "--local", "--yes").code == 0
    assert not EmbeddedServer(tmp_path / "state").exists()
    assert empty("list").code == 2
    assert (tmp_path / "state" / "keys" / "development-writer.key").exists()


def test_a_bad_setting_is_one_message(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_IDLE_TIMEOUT", "soon")
    called = empty("list")
    assert called.code == 2
    assert called.err.count("\n") == 1
    assert "AMFS_OTEL_IDLE_TIMEOUT" in called.err


def test_run_passes_the_exit_code_and_the_output_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    done = run_program("import sys; print('out'); print('err', file=sys.stderr); sys.exit(42)", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (42, "out\n", "err\n")


def test_run_passes_signals_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    text = "import time; print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-m", "amfs_otel", "run", sys.executable, "-c", text],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == -signal.SIGTERM


def test_run_says_why_a_program_cannot_be_run_and_ends_as_a_shell_does(empty: Cli, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text("print()", encoding="utf-8")
    for name, code, cause in (
        ("no-such-program-anywhere", 127, "no such program"),
        (str(tmp_path / "missing.py"), 127, "no such program"),
        (str(script), 126, "is not executable"),
        (str(tmp_path), 126, "is a directory"),
    ):
        called = empty("run", name)
        assert (called.code, called.out) == (code, "")
        assert name in called.err
        assert cause in called.err
    assert empty("run", "--").code == 2


def test_version(empty: Cli) -> None:
    called = empty("--version")
    assert (called.code, called.out) == (0, f"amfs-otel {version('amfs-otel')}\n")


def test_the_help_cuts_no_summary(empty: Cli) -> None:
    commands = empty("--help").out.partition("Commands:")[2]
    assert "doctor" in commands
    assert "..." not in commands


def test_an_empty_ref_is_wrong_usage(empty: Cli) -> None:
    for words in (("show", ""), ("explain", " "), ("tree", ""), ("outcome", "", "success")):
        called = empty(*words)
        assert (called.code, called.out) == (2, "")
        assert "it is empty" in called.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["", "success"], "it is empty"),
        (["DEP-7", ""], "it is empty"),
        (["DEP-7", " \t"], "success, minor_failure"),
        (["DEP-7", "success", "--score", "nan"], "a finite number"),
        (["DEP-7", "success", "--score=-inf"], "a finite number"),
        (["DEP-7", "success", "--at", "2099-01-01"], "--at: is in the future"),
    ],
)
def test_an_outcome_that_says_nothing_or_foretells_is_never_recorded(cli: Cli, words: list[str], said: str) -> None:
    before = len(cli.answer("explain", "DEP-7")["outcomes"])
    called = cli("outcome", *words)
    assert (called.code, called.out) == (2, "")
    assert said in called.err
    assert len(cli.answer("explain", "DEP-7")["outcomes"]) == before


def test_the_id_of_a_session_leads_to_its_decisions(cli: Cli) -> None:
    for command in ("explain", "show"):
        called = cli(command, "run-1")
        assert (called.code, called.out) == (2, "")
        assert "amfs-otel list --session run-1" in called.err


def test_a_log_that_an_option_named_is_not_said_to_be_the_variables_alone(cli: Cli) -> None:
    assert "AMFS_OTEL_LOG (or --log): nothing was ever recorded" in cli("list", "--log", "nosuch").err


def test_a_key_file_is_named_with_its_setting_and_a_step(cli: Cli, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AMFS_OTEL_SIGNING_KEY_FILE", str(tmp_path / "nowhere"))
    missing = cli("outcome", "DEP-7", "success").err
    assert f"AMFS_OTEL_SIGNING_KEY_FILE ({tmp_path / 'nowhere'}): the key file cannot be read" in missing
    assert "Check its path" in missing
    (tmp_path / "nowhere").write_text("hex:not-hex")
    assert "the key is not valid hex. Was it copied whole? `amfs-otel keygen` makes" in cli("outcome", "DEP-7", "x").err


def test_an_empty_list_says_what_may_have_been_meant(cli: Cli) -> None:
    assert "did you mean success?" in cli("list", "--outcome", "sucess").err
    assert "logs here: default" in cli("list", "--log", "another").err
    assert "no agent is 'deploy'; did you mean deployer?" in cli("list", "--agent", "deploy").err
    assert "no outcome ref is 'DEP-8'; did you mean DEP-7?" in cli("list", "--ref", "DEP-8").err
    assert "no session is 'run'; did you mean run-1?" in cli("list", "--session", "run").err
    assert cli("list", "--agent", "nobody").err == ""
    assert cli("list", "--agent", "reviewer", "--ref", "DEP-7").err == "", "each is known, together there is none"
    assert cli("list", "--csv", "--json").code == 2


def test_an_unreadable_trust_file_and_a_taken_key_file_name_a_next_step(empty: Cli, tmp_path: Path) -> None:
    called = empty("verify", "--trust", str(tmp_path / "none.json"))
    assert called.code == 2
    assert "FORMAT.md" in called.err
    (tmp_path / "key").touch()
    called = empty("keygen", "--out", str(tmp_path / "key"))
    assert called.code == 2
    assert "Name another" in called.err


def test_a_key_file_that_cannot_be_made_is_about_that_place_alone(empty: Cli, tmp_path: Path) -> None:
    called = empty("keygen", "--out", str(tmp_path / "nowhere" / "a.key"))
    assert (called.code, called.out) == (2, "")
    assert f"{tmp_path / 'nowhere'}: no file can be made there" in called.err
    assert "AMFS_OTEL_STATE_DIR" not in called.err


def test_outcome_says_which_decision_it_judged_and_that_older_ones_have_the_ref(empty: Cli, tmp_path: Path) -> None:
    run_program(AGENT, tmp_path)
    run_program(AGENT, tmp_path)
    try:
        newest, older = (row["record_id"] for row in empty.answer("list", "--ref", "DEP-7"))
        told = empty("outcome", "DEP-7", "failure", "--at", "2h ago")
        assert f"judges the decision …{newest[-8:]} (deployer, " in told.out
        assert f"1 older decision has the same ref (…{older[-8:]})" in told.err
        without_ref = empty.answer("list", "--agent", "reviewer")[0]["record_id"]
        assert empty.answer("outcome", without_ref, "success")["outcome_ref"] == without_ref[-8:]
        assert empty("explain", without_ref[-8:]).out.startswith(f"{without_ref[-8:]}  success")
        assert empty.answer("explain", without_ref[-8:])["record_id"] == without_ref
    finally:
        EmbeddedServer(tmp_path / "state").remove()


def test_run_keeps_content_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    text = "from amfs_otel.settings import Settings; print(Settings.from_env().ledger_content.value)"
    assert run_program(text, tmp_path).stdout == "decision\n"
    assert run_program(text, tmp_path, "--keep-content").stdout == "all\n"


def test_on_a_terminal_run_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    terminal, other_end = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "amfs_otel", "run", sys.executable, str(tmp_path / "agent.py")],
        stdout=subprocess.PIPE, stderr=other_end, env={**os.environ}, text=True,
    ) as child:  # fmt: skip
        os.close(other_end)
        out, _ = child.communicate(timeout=60)
    said = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert (child.returncode, out) == (0, "the agent's own output\n")
    assert said.count("\n") == 1
    assert "the last of 2" in said
    assert "amfs-otel explain last" in said
