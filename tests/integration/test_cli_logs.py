"""Names of logs without configuration: a log begins with what was recorded for it, never because somebody asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs_otel.spool import LOCAL, StateDirectory, WriterName, list_segments
from amfs_otel.store.embedded import EmbeddedServer
from amfs_otel.store.postgres import Store
from tests.integration.cli_calls import AGENT, Cli, check_schema, run_program

ASKING = (
    ("list",),
    ("show", "last"),
    ("explain", "DEP-7"),
    ("tree", "checkout/retries"),
    ("outcome", "DEP-7", "success"),
    ("rebuild",),
    ("drain",),
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory for which an agent recorded into the log `default`; nobody has asked yet."""
    monkeypatch.setenv("AMFS_OTEL_STATE_DIR", str(tmp_path / "state"))
    assert run_program(AGENT, tmp_path).returncode == 0
    yield tmp_path / "state"
    EmbeddedServer(tmp_path / "state").remove()


@pytest.fixture
def cli(state: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def logs(state: Path) -> list[str]:
    dsn = EmbeddedServer(state).ensure(create=False)
    assert dsn is not None
    with Store.connect(dsn, "default") as store:
        return store.logs()


def test_a_mistyped_log_is_refused_and_never_begun(cli: Cli, state: Path) -> None:
    assert not EmbeddedServer(state).exists()
    early = cli("list", "--log", "defualt")
    assert (early.code, early.out) == (2, "")
    assert "nothing was ever recorded for the log defualt" in early.err
    assert "logs here: default" in early.err
    assert not EmbeddedServer(state).exists(), "nor was a server made"
    assert len(cli.answer("list")) == 2
    for words in ASKING:
        called = cli(*words, "--log", "defualt")
        assert (called.code, called.out) == (2, ""), words
        assert "logs here: default" in called.err, words
    verified = cli("verify", "--log", "defualt")
    assert verified.code == 3
    assert "logs there: default" in verified.err
    found = cli("doctor", "--log", "defualt", "--json").json
    check_schema(found, "doctor")
    assert "LOG_UNKNOWN" in {one["code"] for one in found["findings"]}
    assert logs(state) == ["default"]


def test_a_process_that_was_killed_before_its_first_frame_begins_no_log(cli: Cli, state: Path) -> None:
    written = list_segments(StateDirectory(state), LOCAL)[0].path
    written.with_name(WriterName(LOCAL, 1, 1).segment_name("journal", 0)).touch(mode=0o600)
    called = cli("list", "--log", "defualt")
    assert (called.code, called.out) == (2, "")
    assert "logs here: default" in called.err
    assert not EmbeddedServer(state).exists()


def test_a_log_that_an_agent_recorded_for_is_begun(cli: Cli, state: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMFS_OTEL_LOG", "other")
        assert run_program(AGENT, tmp_path).returncode == 0
    cli.answer("list")  # takes over the other log's records, too, and begins no log for them
    assert logs(state) == ["default"]
    assert len(cli.answer("list", "--log", "other")) == 2
    assert cli("verify", "--log", "other").code == 0
    assert logs(state) == ["default", "other"]


def test_what_was_stored_for_a_log_counts_when_the_spool_is_gone(cli: Cli, state: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMFS_OTEL_LOG", "other")
        assert run_program(AGENT, tmp_path).returncode == 0
    cli.answer("list")
    left = list_segments(StateDirectory(state), LOCAL)
    assert left, "unsealed records are kept in the spool"
    for segment in left:
        segment.path.unlink()
    assert len(cli.answer("list", "--log", "other")) == 2
