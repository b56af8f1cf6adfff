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
