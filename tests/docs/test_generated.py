"""The generated parts of the documentation say what the code says."""

import re
from pathlib import Path

import pytest

from amfs_otel import environment_variables
from amfs_otel.libraries import LIBRARIES
from tests.docs.generated import BLOCK, GENERATORS, ROOT, library_table, pages, rewritten, settings_table


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_fresh(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run `make docs`"


def test_every_generated_part_stands_somewhere() -> None:
    standing = {block["name"] for page in pages() for block in BLOCK.finditer(page.read_text(encoding="utf-8"))}
    assert standing == GENERATORS.keys()


def test_settings_table_has_every_variable() -> None:
    names = {name for name in vars(environment_variables) if name.isupper()}
    assert set(re.findall(r"^\| `(\w+)` \|", settings_table(), re.MULTILINE)) == names


def test_library_table_has_every_library() -> None:
    table = library_table()
    assert re.findall(r"^\| ([\w-]+) \|", table, re.MULTILINE)[1:] == [library.distribution for library in LIBRARIES]
    assert re.findall(r"`amfs_(\w+)` \|$", table, re.MULTILINE) == [library.name for library in LIBRARIES]
    assert "| `>= 1.1, < 4` | openai 1.1.0, 1.26.0, 3.57.0 |" in table
