"""`verify`: is the log what was recorded?"""

import os
import sys
import time
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from amfs_otel.cli.failure import UsageError, command, tell
from amfs_otel.cli.options import AsJson, Dsn, Log

if TYPE_CHECKING:
    from collections.abc import Generator

    from amfs_otel.audit import Audit, Copy, Progress
    from amfs_otel.chain.findings import Finding
    from amfs_otel.chain.record import Record
    from amfs_otel.chain.trust import Trust
    from amfs_otel.chain.verification import StoredEntry
    from amfs_otel.store.postgres import Store

SHOWN_FINDINGS = 50
BAR_AFTER_S = 0.5
_TRUST_HINT = "FORMAT.md 5.7 says what it holds; without --trust, verify takes the keys that are held here."
_PROVEN_BY = {
    "full": "every header, part, signature, entry MAC and link",
    "headers": "every header, signature, entry MAC and link (parts were not looked at)",
}


def register(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "verify")(verify)


def verify(
    *,
    level: Annotated[
        Literal["full", "headers"], typer.Option(help="headers looks at no part: faster, proves less.")
    ] = "full",
    first: Annotated[int, typer.Option("--from", min=0, metavar="N", help="First sequence number.")] = 0,
    last: Annotated[
        int | None,
        typer.Option("--to", min=0, metavar="N", help="Last sequence number; default: the head.", show_default=False),
    ] = None,
    trust: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Trust file: the keys as announced by another way.", show_default=False),
    ] = None,
    require_anchor: Annotated[
        bool, typer.Option("--require-anchor", help="CANNOT_JUDGE where no checkpoint outside covers an entry.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the log there as JSON lines, texts and all: examples/verify_offline.py judges it without us.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    log: Log = None,
) -> int:
    """Check that nobody changed, dropped or added anything. Exit 0 INTACT, 1 TAMPERED, 3 CANNOT_JUDGE, 4 INCOMPLETE."""
    from amfs_otel.audit import Scope, audit
    from amfs_otel.cli.options import settings_for
    from amfs_otel.cli.output import write_json
    from amfs_otel.drain.custody import key_ring
    from amfs_otel.drain.open_store import open_as_it_is
    from amfs_otel.spool import StateDirectory

    if save is not None and (level != "full" or first or last is not None):
        raise UsageError("only a whole log can be saved", where="--save", expected="no --level, --from and --to")
    settings = settings_for(dsn, log)
    scope = Scope(level, first, last, require_anchor, _trust(trust))
    keys = key_ring(settings, StateDirectory(settings.state_dir))
    with open_as_it_is(settings) as opened, _progress() as progress, _saved(save) as copy:
        store = opened.store if opened is not None else None
        done = audit(store, settings, keys, scope, progress=progress, copy=copy)
        others = _other_logs(opened.store) if opened is not None and not done.verification.checked.entries else ""
    if as_json:
        write_json(done.to_dict())
    else:
        _show(done, local=opened is None or opened.local)
    if others:
        tell(f"nothing was ever recorded for the log {settings.log}; logs there: {others}")
    return int(done.verdict)


def _other_logs(store: "Store") -> str:
    """Names of the logs that a store holds beside one that it does not."""
    return ", ".join(store.logs()) if store.schema_state().present and not store.is_begun() else ""


def _trust(path: Path | None) -> "Trust | None":
    from amfs_otel.chain.trust import trust_from_json
    from amfs_otel.errors import ConfigurationError, FormatError

    if path is None:
        return None
    try:
        return trust_from_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            "the trust file cannot be read", where=str(path), got=error.strerror, hint=_TRUST_HINT
        ) from None
    except FormatError:
        raise ConfigurationError("is no trust file", where=str(path), hint=_TRUST_HINT) from None


@contextmanager
def _saved(path: Path | None) -> "Generator[Copy]":
    """Writes what it is called with into a new file that is its user's alone; without a path it writes nothing."""
    from amfs_otel.chain.lines import line_from_entry, line_from_record
    from amfs_otel.chain.record import Record
    from amfs_otel.errors import ConfigurationError

    if path is None:
        yield lambda _seen: None
        return
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:

            def copy(seen: "StoredEntry | Record") -> None:
                file.write(line_from_record(seen) if isinstance(seen, Record) else line_from_entry(seen))
                file.write("\n")

            yield copy
    except OSError as error:
        raise ConfigurationError(
            "the log cannot be saved there",
            where=str(path), got=error.strerror, hint="Name a file that is not there yet, in a directory with room.",
        ) from None  # fmt: skip


def _progress() -> "AbstractContextManager[Progress]":
    """A bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        return _silent()
    return _bar()


@contextmanager
def _silent() -> "Generator[Progress]":
    yield lambda _done, _total: None


@contextmanager
def _bar() -> "Generator[Progress]":
    """The bar; it begins only where there is something to wait for."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("verifying", total=None)
    due_s = time.monotonic() + BAR_AFTER_S

    def report(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.monotonic() >= due_s:
            bar.start()

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def _show(done: "Audit", *, local: bool) -> None:
    from amfs_otel.cli.output import console

    out = console()
    verdict, checked, coverage = done.verdict, done.verification.checked, done.verification.coverage
    style = {"INTACT": "bold green", "TAMPERED": "bold red"}.get(verdict.name, "bold yellow")
    out.print(verdict.name, style=style, end="")
    out.print(f"  log {done.log}: {_count(checked.entries, 'entry', 'entries')}, ", end="")
    out.print(f"{_count(checked.records, 'record')}, {_count(checked.parts, 'part')}")
    findings = done.verification.findings
    for finding in findings[:SHOWN_FINDINGS]:
        out.print(f"  {_finding_line(finding)}")
    hidden = len(findings) - SHOWN_FINDINGS + coverage.findings_not_listed if len(findings) > SHOWN_FINDINGS else 0
    if hidden:
        out.print(f"  … and {hidden} more; --json lists them")
    for line in _reach(done, local=local):
        out.print(line, style="dim" if out.is_terminal else None)


def _finding_line(finding: "Finding") -> str:
    from amfs_otel.cli.output import printable

    place = f"#{finding.sequence_number}" if finding.sequence_number is not None else "—"
    record = f"  (record …{finding.record[-8:]})" if finding.record else ""
    return printable(f"{place:>6}  {finding.code}  {finding.message}{record}")


def _reach(done: "Audit", *, local: bool) -> list[str]:
    """What the verdict proves, and what it does not."""
    coverage, scope = done.verification.coverage, done.scope
    lines: list[str] = []
    if coverage.authenticated_up_to is not None:
        upto = f"{scope.first} to {coverage.authenticated_up_to}"
        lines.append(f"proven: entries {upto}, {_PROVEN_BY[scope.level]}, with {len(done.keys_held)} keys held here")
    if coverage.unanchored_tail:
        entries = _count(coverage.unanchored_tail, "entry", "entries")
        lines.append(
            f"not proven: that nothing was cut off the end, or rewritten by who holds all keys; {entries} under no "
            "checkpoint kept outside"
        )
    if scope.first or scope.last is not None:
        lines.append("not proven: anything outside this range")
    if coverage.unsealed_young:
        lines.append(f"not yet in the log: {_count(coverage.unsealed_young, 'record')} stored within the last minute")
    if done.backlog.records:
        lines.append(f"not in the store: {_count(done.backlog.records, 'record')} in the spool here (amfs-otel drain)")
    if coverage.withheld_parts or coverage.erased_parts:
        lines.append(f"texts: {coverage.withheld_parts} withheld by policy, {coverage.erased_parts} erased")
    # Of the local server its user is always the master.
    weak = [fact for fact in done.posture if not fact.ok and not (local and fact.code in ("SUPERUSER", "OWNER"))]
    if weak:
        lines.append("the database (prevention, no proof): " + "; ".join(fact.detail for fact in weak))
    return lines


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
