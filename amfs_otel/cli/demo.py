"""`demo`: the whole story on this machine, in under a minute."""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from amfs_otel.cli.failure import Code, command, tell

if TYPE_CHECKING:
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
    _heading("Three agents run under opentelemetry-instrument, without a line of instrumentation in them")
    for said in play.acts():
        _line(f"{said.program:<18}{said.text[:100] or BEFORE}")
    as_promised = True
    for words in SHOWN:
        _heading(f"$ amfs-otel {words}")
        as_promised &= play.command(*words.split()).returncode == 0
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
    done = play.command("verify", "--json", "--dsn", dsn, shown=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    _line(forgery.title.format(at=at))
    _line(f"    verify: {_colour(answer['verdict'], 'red')}")
    for finding in answer["findings"][:SHOWN_FINDINGS]:
        _line(f"        #{finding['sequence_number']} {finding['code']}: {finding['message']}")
    named = any(finding["sequence_number"] == at for finding in answer["findings"])
    return done.returncode == Code.TAMPERED and named


def _farewell(play: "Play", took_s: float) -> None:
    _heading(f"Done in {took_s:.0f} s. Look around:")
    _line(f"export AMFS_OTEL_STATE_DIR='{play.settings.state_dir}' AMFS_OTEL_LOG={play.settings.log}")
    _line("amfs-otel explain DEP-500 --json      everything that is known about the decision")
    _line("amfs-otel show last                   every step of the newest trace")
    if play.exports:
        _line(f"spans and receipts went to {play.settings.otlp_endpoint}")
    _line("")
    _line("Your own agent, in another shell:     amfs-otel run python agent.py")


def _heading(text: str) -> None:
    print(f"\n{_colour(text, 'bold')}", flush=True)


def _line(text: str) -> None:
    print(f"  {text}".rstrip(), flush=True)


def _colour(text: str, style: str) -> str:
    """The text in a style where stdout is a terminal."""
    codes = {"bold": "1", "red": "1;31"}
    return f"\x1b[{codes[style]}m{text}\x1b[0m" if sys.stdout.isatty() else text
