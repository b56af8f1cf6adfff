"""The quickstart's page names the programs that the demo plays, in its order and with its launcher, and links to them."""

import re
from pathlib import Path

from amfs_otel.demo import stage, story

EXAMPLES = Path(__file__).parents[3] / "examples"
PAGE = (EXAMPLES / "quickstart" / "README.md").read_text(encoding="utf-8")


def test_the_commands_play_the_story_in_the_demos_order(tmp_path: Path) -> None:
    shown = re.findall(r'^(amfs-otel run )?python "\$PROGRAMS/(\w+\.py)"$', PAGE, re.MULTILINE)
    steps = stage.steps(python=Path("p"), state_dir=tmp_path, memory_dir=tmp_path, model_origin="", environ={})
    assert [(program, bool(run)) for run, program in shown] == [(step.program, step.instrumented) for step in steps]
    assert f"amfs-otel tree {story.ROOT_ENTRY}" in PAGE


def test_every_link_leads_to_a_file() -> None:
    for page in (EXAMPLES / "README.md", EXAMPLES / "quickstart" / "README.md"):
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"
