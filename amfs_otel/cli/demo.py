"""`demo`: the whole story on this machine, in under a minute."""

import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from amfs_otel.cli.failure import Code, command, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amfs_otel.demo.playing import Play
    from amfs_otel.demo.tampering import Copier, Forgery

SHOWN = ("list", "explain DEP-500", "tree checkout-service/retry-pattern", "verify")
SHOWN_FINDINGS = 3
BEFORE = "(what other agents had learned before; nobody watches)"


def register(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "demo")(demo)


def demo() -> int:
    """The whole story on this machine, in a minute.

    Three agents under opentelemetry-instrument: what they decided, the proof, and three forgeries found.
    """
    from amfs_otel.demo.playing import Play, caller_environment, home_of, require_programs

    require_programs()
    began = time.monotonic()
    play = Play(home_of(caller_environment()), caller_environment())
    _heading(
        "Three agents (amfs, openai, langgraph, anthropic) under opentelemetry-instrument; no line in them is for it"
    )
    for said in play.acts():
        _line(f"{said.program:<18}{said.text[:100] or BEFORE}")
    as_promised = True
    for words in SHOWN:
        _heading(f"$ amfs-otel {words}")
        as_promised &= play.command(*words.split()) == Code.FINE
    as_promised &= _forgeries(play)
    _farewell(play, time.monotonic() - began)
    if not as_promised:
        tell("the demo did not end as it should; `amfs-otel doctor` may know why.")
    return Code.FINE if as_promised else Code.CANNOT_JUDGE


def _forgeries(play: "Play") -> bool:
    from amfs_otel.demo.tampering import FORGERIES, copies, refusal

    dsn = play.dsn()
    _heading("The same log, forged three times (on copies, as the database's superuser)")
    _line(f"with the rules on:  {refusal(dsn)}")
    _line("with every rule and trigger switched off:")
    with copies(dsn) as copier:
        found = [_forgery(play, copier, forgery, at) for at, forgery in enumerate(FORGERIES, start=1)]
    return all(found)


def _forgery(play: "Play", copier: "Copier", forgery: "Forgery", at: int) -> bool:
    from amfs_otel.demo.playing import LOG

    dsn = copier.forged(forgery, LOG, at)
    done = play.quietly("verify", "--json", "--dsn", dsn, codes=(Code.FINE, Code.TAMPERED))
    answer: dict[str, Any] = json.loads(done.stdout)
    _line(forgery.title.format(at=at))
    _line(f"    verify: {_colour(answer['verdict'], 'red')}")
    for finding in answer["findings"][:SHOWN_FINDINGS]:
        _line(f"        #{finding['sequence_number']} {finding['code']}: {finding['message']}")
    named = any(finding["sequence_number"] == at for finding in answer["findings"])
    return done.returncode == Code.TAMPERED and named


def _farewell(play: "Play", took_s: float) -> None:
    command = command_for(Path(sys.executable), Path.cwd())
    where = f"AMFS_OTEL_STATE_DIR={shlex.quote(str(play.settings.state_dir))} AMFS_OTEL_LOG={play.settings.log}"
    _heading(f"Done in {took_s:.0f} s. Look around:")
    _line(f"export {where}")
    _said(
        command,
        {
            "explain INC-1042": "the decision of the langgraph agent",
            "show INC-1042": "its steps in full",
            "explain DEP-500 --json": "all that is known about the other one",
        },
    )
    if play.exports:
        _line(f"spans and receipts went to {play.settings.otlp_endpoint}")
    _heading("Your own agent, in another shell:")
    _said(
        command,
        {
            "run python agent.py": "without the texts of prompts and tools",
            "run --keep-content python agent.py": "with them, as here",
        },
    )


def _said(command: str, lines: "Mapping[str, str]") -> None:
    width = max(len(words) for words in lines)
    for words, meaning in lines.items():
        _line(f"{command} {words:<{width}}  {meaning}")


def command_for(python: Path, here: Path) -> str:
    """How a shell in `here` calls the `amfs-otel` of an interpreter: by name if that is the one on its path."""
    own = python.with_name("amfs-otel")
    found = shutil.which(own.name)
    if found is not None and Path(found) == own:
        return own.name
    return shlex.quote(os.path.relpath(own, here) if own.is_relative_to(here) else str(own))


def _heading(text: str) -> None:
    print(f"\n{_colour(text, 'bold')}", flush=True)


def _line(text: str) -> None:
    print(f"  {text}".rstrip(), flush=True)


def _colour(text: str, style: str) -> str:
    """The text in a style where stdout is a terminal."""
    codes = {"bold": "1", "red": "1;31"}
    return f"\x1b[{codes[style]}m{text}\x1b[0m" if sys.stdout.isatty() else text
