"""No patch imports another: each library can be read, tested and removed by itself."""

import ast
from pathlib import Path

import pytest

from tests.packaging.checkout import ROOT

PACKAGE = "amfs_otel_instrumentation"
MODULES = sorted((ROOT / "instrumentation" / PACKAGE).glob("*.py"))
PATCHES = {path.stem for path in MODULES if not path.stem.startswith("_")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_imports_a_patch(path: Path) -> None:
    """What patches share stands in modules whose names begin with `_`."""
    assert {name for name in _imported(path) if name in PATCHES} == set()


def _imported(path: Path) -> set[str]:
    """Names of modules of the package that a module names in its imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix(f"{PACKAGE}.").split(".")[0] for alias in node.names if PACKAGE in alias.name
            }
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            found.add(str(node.module).removeprefix(f"{PACKAGE}.").split(".")[0])
    return found
