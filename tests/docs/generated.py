"""The parts of the documentation that are made from code.

A page marks such a part by a pair of comments, `<!-- generated: NAME -->` and `<!-- end -->`. `python -m
tests.docs.generated` writes all of them anew; `test_generated.py` holds them to the code.
"""

import ast
import itertools
import re
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import Requirement

from amfs_otel.libraries import LIBRARIES

ROOT = Path(__file__).parents[2]
PATCHES = ROOT / "instrumentation" / "amfs_otel_instrumentation"
BLOCK = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)


def settings_table() -> str:
    """Each constant of `environment_variables.py` with its docstring, as rows of a table."""
    source = (ROOT / "amfs_otel" / "environment_variables.py").read_text(encoding="utf-8")
    body = ast.parse(source).body
    rows = ["| variable | what it does |", "|---|---|"]
    for assignment, description in itertools.pairwise(body):
        match assignment, description:
            case ast.Assign(value=ast.Constant(value=str(name))), ast.Expr(value=ast.Constant(value=str(text))):
                cell = " ".join(text.split()).replace("|", "\\|")
                rows.append(f"| `{name}` | {cell} |")
            case _:
                pass
    return "\n".join(rows) + "\n"


def library_table() -> str:
    """Each library of `LIBRARIES` with what its patch says of itself, as rows of a table. No patch is imported."""
    rows = ["| library | versions | source read of | what of it | switched off by |", "|---|---|---|---|---|"]
    for library in LIBRARIES:
        patch = ast.parse((PATCHES / f"{library.name}.py").read_text(encoding="utf-8"))
        summary, versions, read = _summary(patch), _requires(patch), _releases(patch)
        rows.append(f"| {library.distribution} | `{versions}` | {read} | {summary} | `amfs_{library.name}` |")
    return "\n".join(rows) + "\n"


def _summary(patch: ast.Module) -> str:
    """The first line of the docstring without the library's name."""
    _, _, summary = (ast.get_docstring(patch) or "").partition("\n")[0].partition(": ")
    if not summary:
        raise ValueError("a patch's docstring begins with the library's name, a colon and what is patched")
    return summary.replace("|", "\\|")


def _releases(patch: ast.Module) -> str:
    """The releases after `Read:` in the docstring."""
    found = re.search(r"^Read: (.+?)[.:;](?=\s|$)", ast.get_docstring(patch) or "", re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError("a patch's docstring says which releases were read")
    return " ".join(found[1].split())


def _requires(patch: ast.Module) -> str:
    """The constant `requires` without the distribution's name, in the patch's own order."""
    for statement in patch.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="requires")], value=ast.Constant(value=str(requires))):
                return requires.removeprefix(Requirement(requires).name).strip()
            case _:
                pass
    raise ValueError("a patch says what it requires")


GENERATORS: dict[str, Callable[[], str]] = {"settings": settings_table, "libraries": library_table}


def pages() -> list[Path]:
    """The pages that may hold generated parts."""
    found = [ROOT / "README.md", ROOT / "instrumentation" / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if page.exists())


def rewritten(text: str) -> str:
    """The page `text` with its generated parts as the code has them now.

    Raises:
        KeyError: A part names no generator.
    """
    return BLOCK.sub(lambda block: block["begin"] + GENERATORS[block["name"]]() + block["end"], text)


def main() -> None:
    """Write all generated parts anew, and name the pages that changed."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = rewritten(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
