"""stdout and stderr of a command."""

import os
import select
import subprocess
import sys

import pytest

from amfs_otel.cli.streams import READER_GONE


def ended_without_reader(tmp_path: object, *words: str, stream: str = "stdout", unbuffered: bool = False) -> int:
    """The exit code of a command whose `stream` nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    environ = {**os.environ, "AMFS_OTEL_STATE_DIR": f"{tmp_path}/state"}
    if unbuffered:
        environ["PYTHONUNBUFFERED"] = "1"
    out, err = (writing, subprocess.DEVNULL) if stream == "stdout" else (subprocess.DEVNULL, writing)
    argv = [sys.executable, "-m", "amfs_otel", *words]
    try:
        return subprocess.run(argv, env=environ, stdout=out, stderr=err, timeout=60, check=False).returncode
    finally:
        os.close(writing)


@pytest.mark.parametrize("words", [["verify"], ["verify", "--json"], ["--help"], ["list", "--help"], ["keygen"]])
def test_a_reader_that_went_away_is_141_and_never_1(tmp_path: object, words: list[str]) -> None:
    assert ended_without_reader(tmp_path, *words) == READER_GONE == 141


def test_unbuffered_and_stderr_end_so_too(tmp_path: object) -> None:
    assert ended_without_reader(tmp_path, "keygen", unbuffered=True) == READER_GONE
    assert ended_without_reader(tmp_path, "list", stream="stderr") == READER_GONE


def called(tmp_path: object, redirection: str, *words: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    """A command whose streams a shell redirected."""
    environ = {**os.environ, "AMFS_OTEL_STATE_DIR": f"{tmp_path}/state", "PYTHONUNBUFFERED": unbuffered}
    argv = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "amfs_otel", *words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["verify"], ["verify", "--json"], ["--help"], ["list", "--help"], ["--version"]])
def test_an_answer_that_cannot_be_written_is_one_line_and_3(
    tmp_path: object, words: list[str], unbuffered: str
) -> None:
    done = called(tmp_path, ">/dev/full", *words, unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (3, "amfs-otel: stdout: cannot be written; got No space left on device\n")


def test_a_stdout_that_was_never_open_is_one_that_cannot_be_written(tmp_path: object) -> None:
    done = called(tmp_path, ">&-", "verify")
    assert (done.returncode, done.stderr) == (3, "amfs-otel: stdout: cannot be written; got Bad file descriptor\n")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_what_stderr_refuses_is_lost_and_the_answer_is_written(tmp_path: object, redirection: str) -> None:
    done = called(tmp_path, redirection, "keygen")
    assert done.returncode == 0
    assert [line[:4] for line in done.stdout.splitlines()] == ["hex:"], "stdout is the answer alone"
    assert called(tmp_path, f">/dev/full {redirection}", "keygen").returncode == 3


def test_what_the_encoding_lacks_is_written_in_ascii() -> None:
    code = (
        "from amfs_otel.cli.streams import prepare_streams\n"
        "prepare_streams()\n"
        "print('a … b · c → d ├── e └─ 30 bytes¹ ü ☃')"
    )
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"a ... b - c -> d |-- e `- 30 bytes^1 \\xfc \\u2603\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_said_on_stderr_is_there_at_once(unbuffered: str) -> None:
    code = (
        "import sys\nfrom amfs_otel.cli.streams import prepare_streams\nprepare_streams()\n"
        "print('said', file=sys.stderr)\nsys.stdin.read()"
    )
    argv, environ = [sys.executable, "-c", code], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        assert select.select([child.stderr], [], [], 30)[0], "nothing came while the program still runs"
        child.communicate()
