"""`doctor`: why does nothing show up?"""

from typing import TYPE_CHECKING, Any

import typer

from amfs_otel.cli.failure import Code, command
from amfs_otel.cli.options import AsJson, Dsn, Log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from amfs_otel.doctor import Cause, Facts

UNREACHABLE = frozenset({"STORE_UNREACHABLE", "STORE_UNUSABLE", "COLLECTOR_UNREACHABLE"})
_MARKS = {"problem": ("✗", "bold red"), "warning": ("!", "yellow"), "note": ("·", "dim")}


def register(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "doctor")(doctor)


def doctor(*, as_json: AsJson = False, dsn: Dsn = None, log: Log = None) -> int:
    """Say what is wrong and what to do. Exit 0 when nothing is, 3 when something cannot be reached, 4 otherwise."""
    from amfs_otel.cli.options import laid_over
    from amfs_otel.cli.output import console, write_json
    from amfs_otel.doctor import causes_of, gather, report_of
    from amfs_otel.drain.open_store import settled

    facts = gather(settled(laid_over(dsn, log)))
    causes = causes_of(facts)
    if as_json:
        write_json(report_of(facts, causes))
    else:
        out = console()
        _show_causes(out, causes)
        _show_facts(out, facts)
    return _code(causes)


def _code(causes: "Sequence[Cause]") -> Code:
    problems = {cause.code for cause in causes if cause.level == "problem"}
    if problems & UNREACHABLE:
        return Code.CANNOT_JUDGE
    return Code.INCOMPLETE if problems else Code.FINE


def _show_causes(out: "Console", causes: "Sequence[Cause]") -> None:
    text, style = _headline(causes)
    out.print(text, style=style)
    for cause in causes:
        mark, style = _MARKS[cause.level]
        out.print(f"{mark} {cause.code}", style=style, end="  ")
        out.print(_printable(cause.message))
        if cause.hint:
            out.print(f"    {_printable(cause.hint)}", style="dim")


def _headline(causes: "Sequence[Cause]") -> tuple[str, str]:
    problems, warnings = (sum(cause.level == level for cause in causes) for level in ("problem", "warning"))
    told = f"{warnings} {'warning' if warnings == 1 else 'warnings'}"
    if problems:
        counted = f"{problems} {'problem' if problems == 1 else 'problems'}"
        return f"✗ {counted}, {told}" if warnings else f"✗ {counted}", "bold red"
    return (f"! no problems, {told}", "bold yellow") if warnings else ("✓ nothing is wrong", "bold green")


def _show_facts(out: "Console", facts: "Facts") -> None:
    out.print()
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items() if version is not None)
    store = facts.store
    where = "local" if store.local else "server"
    rows = {
        "versions": versions,
        "store": f"{where}, PostgreSQL {store.server}, log {facts.settings.log}: {store.entries or 0} entries, "
        f"{store.unsealed or 0} unsealed"
        if store.prepared
        else f"{where}, {'not made yet' if not store.exists else store.problem or 'not prepared'}",
        "spool": _spool_line(facts),
        "keys": "; ".join(
            f"{key.role} {key.kid or 'none'}{' (development)' if key.development else ''}" for key in facts.keys
        ),
        "telemetry": _telemetry(facts),
        "content": f"traces keep {facts.settings.ledger_content.value}, spans {facts.settings.span_content.value}",
    }
    for name, text in rows.items():
        out.print(f"{name:<11}", style="bold", end="")
        out.print(_printable(text))
    for one in facts.processes[:5]:
        out.print(f"{'process':<11}", style="bold", end="")
        out.print(_printable(_process_line(one)))


def _telemetry(facts: "Facts") -> str:
    if facts.endpoint is None:
        return "switched off"
    state = "answers" if facts.endpoint.reachable else "does not answer"
    return f"{facts.endpoint.url} ({facts.endpoint.protocol}) {state}"


def _spool_line(facts: "Facts") -> str:
    spool = facts.spool
    if not spool.usable:
        return f"{spool.path}: cannot be used"
    size = f"{spool.path}: {spool.used_bytes / 1e6:.1f} MB"
    if spool.waiting is None:
        return f"{size}, {spool.segments} files for this store"
    line = f"{size}, {spool.waiting} records waiting"
    if facts.store.local or not spool.segments:
        return line
    return f"{line}; delivered ones are kept ten minutes after sealing, for a failover"


def _process_line(one: "Mapping[str, Any]") -> str:
    from amfs_otel.doctor import who

    known: list[dict[str, Any]] = one.get("patches") or []
    signed: dict[str, int] = one.get("records_signed") or {}
    records = ", ".join(f"{count} {kind}" for kind, count in signed.items()) or "none"
    patches = ", ".join(f"{patch['name']} {patch['state']}" for patch in known if patch["state"] != "waiting")
    return f"{who(one)}: records signed: {records}; {patches or 'no library patched: none was imported'}"


def _printable(text: str) -> str:
    from amfs_otel.cli.output import printable

    return printable(text)
