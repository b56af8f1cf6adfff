"""The parts of the documentation that are made from code.

A page marks such a part by a pair of comments, `<!-- generated: NAME -->` and `<!-- end -->`. `python -m
tests.docs.generated` writes all of them anew; `test_generated.py` holds them to the code.
"""

import ast
import itertools
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


GENERATORS: dict[str, Callable[[], str]] = {"settings": settings_table}


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
