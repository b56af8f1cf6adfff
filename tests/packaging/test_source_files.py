"""What must not stand in any file of this repository."""

import re

import pytest

from tests.packaging.checkout import ROOT, source_files

FORBIDDEN = {
    "a package registry's host": re.compile(
        r"\bpypi\.org|\bpythonhosted\.org|\bregistry\.npmjs|\b(?:proxy|sum)\.golang\.org|\b(?:deb|security)\.debian\.org"
        r"|\bcrates\.io|\brepo1?\.maven|\btest\.pypi\b|\bghcr\.io",
        re.IGNORECASE,
    ),
    "a path of one machine": re.compile(r"(?<![\w./-])/(?:work|root)(?=/|\b(?![\w.-]))"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    pattern = FORBIDDEN[what]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in source_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


def test_no_file_is_large_or_executable_by_mistake() -> None:
    files = source_files()
    assert [path for path in files if path.stat().st_size > 2**20] == []
    scripts = {path.relative_to(ROOT).as_posix() for path in files if path.stat().st_mode & 0o111}
    assert scripts <= {".ci/run"}
