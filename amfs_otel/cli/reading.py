"""`list`, `show`, `explain`, `tree`: what was decided, and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from amfs_otel.cli.failure import Code, UsageError, command, tell
from amfs_otel.cli.options import AsJson, Dsn, Log, said

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from amfs_otel.drain.open_store import Opened
    from amfs_otel.graph.listing import ListFilter
    from amfs_otel.graph.reading import Reader
    from amfs_otel.settings import Settings

OUTCOME_TYPES = ("success", "minor_failure", "failure", "critical_failure")
NEWEST = 1000
"""Among so many of the newest decisions a word is looked for that is like the one that was typed."""
NAMED = {
    "agent": ("agent_id", "agent"),
    "session": ("session_id", "session"),
    "outcome": ("outcome", "outcome's type"),
    "ref": ("outcome_ref", "outcome ref"),
}
"""Fields of a `ListFilter` whose words may be mistyped → the column in the answer, and what it is called."""

RefOrId = Annotated[
    str,
    typer.Argument(
        metavar="REF|ID",
        help="Outcome ref, id (or its beginning or end), trace id, number of an entry, or last.",
        callback=said,
    ),
]


def register(app: typer.Typer) -> None:
    """Registers the commands."""
    command(app, "list")(list_)
    command(app, "show")(show)
    command(app, "explain")(explain)
    command(app, "tree")(tree)


def list_(
    *,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.", show_default=False)] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only this session's: the application's session or thread id.", show_default=False
        ),
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only those whose newest outcome is this.", show_default=False)
    ] = None,
    ref: Annotated[str | None, typer.Option(help="Only those with this outcome ref.", show_default=False)] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="RFC 3339, a date, or 30m, 6h, 7d ago.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="The same; exclusive.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the newest.")] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, a header line first.")] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
    log: Log = None,
) -> int:
    """Decision traces, newest first."""
    from amfs_otel.cli.output import show as shown
    from amfs_otel.cli.output import write, write_json
    from amfs_otel.cli.times import moment_from
    from amfs_otel.graph.listing import ListFilter

    wanted = ListFilter(
        agent,
        outcome,
        ref,
        moment_from(since, where="--since") if since is not None else None,
        moment_from(until, where="--until") if until is not None else None,
        limit,
        session,
    )
    if as_csv and as_json:
        raise UsageError("two forms of one answer", where="list", expected="--csv or --json")
    rows = _answer(dsn, log, lambda reader: reader.list(wanted))
    if not rows:
        _say_why_none(dsn, log, wanted)
        _say_what_is_open(dsn, log)
    if as_json:
        write_json(rows)
    elif as_csv:
        write(_csv(rows), end="")
    else:
        from amfs_otel.graph.render import list_table

        shown(list_table(rows))
    return Code.FINE


def show(record: RefOrId, *, as_json: AsJson = False, dsn: Dsn = None, log: Log = None) -> int:
    """One record with all its steps, as it was recorded."""
    from amfs_otel.cli.output import show as shown
    from amfs_otel.cli.output import write_json

    answer = _answer(dsn, log, lambda reader: _found(reader, reader.show, record))
    if as_json:
        write_json(answer)
    else:
        from amfs_otel.graph.render import show_text

        shown(show_text(answer))
    return Code.FINE


def explain(ref: RefOrId, *, as_json: AsJson = False, dsn: Dsn = None, log: Log = None) -> int:
    """Why that was done.

    What the agent knew, consulted and decided, and what happened.
    """
    from amfs_otel.cli.output import show as shown
    from amfs_otel.cli.output import write_json

    answer = _answer(dsn, log, lambda reader: _found(reader, reader.explain, ref))
    if as_json:
        write_json(answer)
    else:
        from amfs_otel.graph.render import explain_text

        shown(explain_text(answer))
    return Code.FINE


def tree(
    entry: Annotated[str, typer.Argument(metavar="ENTRY", help="A memory entry: entity_path/key.", callback=said)],
    *,
    as_json: AsJson = False,
    dsn: Dsn = None,
    log: Log = None,
) -> int:
    """Who read a memory entry, and how it ended.

    Also what else they consulted and wrote, and who relied on the entry without reading it.
    """
    from amfs_otel.cli.output import show as shown
    from amfs_otel.cli.output import write_json

    answer = _answer(dsn, log, lambda reader: reader.tree(entry))
    if as_json:
        write_json(answer)
    else:
        from amfs_otel.graph.render import tree_text

        shown(tree_text(answer))
    return Code.FINE


def _answer(dsn: str | None, log: str | None, ask: "Callable[[Reader], Any]") -> Any:
    """Asks the store; says on stderr what of the spool could not be taken over, or waits there for a server."""
    from amfs_otel.cli.options import settings_for
    from amfs_otel.drain.asking import NothingRecorded
    from amfs_otel.graph.finding import NothingFound

    settings = settings_for(dsn, log)
    try:
        return _asked(settings, ask, of_option=dsn is not None)
    except (NothingFound, NothingRecorded):
        _say_what_is_open(dsn, log)
        raise


def _asked(settings: "Settings", ask: "Callable[[Reader], Any]", *, of_option: bool) -> Any:
    from amfs_otel.drain.asking import asking

    with asking(settings) as (opened, reader):
        for problem in opened.filled.problems if opened.filled is not None else ():
            tell(problem)
        if not opened.local:
            _say_what_waits(opened, settings, of_option=of_option)
        return ask(reader)


def _found(reader: "Reader", ask: "Callable[[str], Any]", text: str) -> Any:
    """What `ask` finds; where that is nothing and `text` is the id of a session, how its decisions are listed."""
    import shlex

    from amfs_otel.graph.finding import NothingFound
    from amfs_otel.graph.listing import ListFilter

    try:
        return ask(text)
    except NothingFound:
        if reader.list(ListFilter(session=text, limit=1)):
            raise UsageError(
                "is the id of a session, not of one of its decisions",
                where=text,
                hint=f"Find them with: amfs-otel list --session {shlex.quote(text)}.",
            ) from None
        raise


def _say_what_waits(opened: "Opened", settings: "Settings", *, of_option: bool) -> None:
    """What ended processes left here for a server that did not take it: no answer from there can show it."""
    from amfs_otel.drain.waiting import waiting_here
    from amfs_otel.settings import DEFAULT_LOG

    found = waiting_here(opened.store, settings, ended=True)
    if not found.records and not found.unfinished:
        return
    if found.records:
        what = "1 record waits" if found.records == 1 else f"{found.records} records wait"
    else:
        what = "unfinished traces wait"
    by = "amfs-otel drain" + (f" --log {settings.log}" if settings.log != DEFAULT_LOG else "")
    tell(f"{what} in the spool here; to bring them in: {by}{', with this DSN in AMFS_OTEL_DSN' if of_option else ''}")


def _say_what_is_open(dsn: str | None, log: str | None) -> None:
    """Beside an answer that there is nothing: traces that processes here hold open, and when they will show."""
    from amfs_otel.cli.options import settings_for
    from amfs_otel.errors import SpoolError
    from amfs_otel.spool import StateDirectory, open_traces
    from amfs_otel.store.destination import destination_of

    settings = settings_for(dsn, log)
    try:
        found = open_traces(StateDirectory(settings.state_dir), destination_of(settings.dsn, settings.log))
    except SpoolError:
        return  # doctor names it; the answer stands without it
    idle = f"{settings.inferred_idle_s:g} s without a call"
    if settings.idle_s != settings.inferred_idle_s:
        idle += f" ({settings.idle_s:g} s inside a session)"
    for one in found:
        what = "1 trace is" if one.count == 1 else f"{one.count} traces are"
        shows = "it shows" if one.count == 1 else "they show"
        tell(
            f"{what} open in {one.program or 'a process'} (pid {one.pid}); {shows} after an outcome, at its exit, or "
            f"after {idle}"
        )


def _say_why_none(dsn: str | None, log: str | None, wanted: "ListFilter") -> None:
    """Beside an empty list: where else decisions are, or which word was meant."""
    from dataclasses import replace

    from amfs_otel.cli.options import settings_for
    from amfs_otel.drain.asking import asking
    from amfs_otel.graph.listing import ListFilter

    settings = settings_for(dsn, log)
    with asking(settings) as (opened, reader):
        if not reader.list(ListFilter(limit=1)):
            others = ", ".join(name for name in opened.store.logs() if name != settings.log)
            tell(f"the log {settings.log} holds no decisions" + (f"; logs here: {others}" if others else ""))
            return
        given = {field: word for field in NAMED if (word := getattr(wanted, field)) is not None}
        alone = {field: reader.list(replace(ListFilter(limit=1), **{field: word})) for field, word in given.items()}
        if all(alone.values()):
            return
        rows = reader.list(replace(wanted, **dict.fromkeys(NAMED), limit=NEWEST))
    for field in (field for field, found in alone.items() if not found):
        word, (column, named) = given[field], NAMED[field]
        known = {*(OUTCOME_TYPES if field == "outcome" else ()), *(row[column] for row in rows if row[column])}
        meant = _meant(word, known)
        if meant is not None:
            tell(f"no {named} is {word[:40]!r}; did you mean {meant}?")


def _meant(word: str, known: "Collection[str]") -> str | None:
    """The known word that somebody may have meant who typed another; `None` where the word is known, or like none."""
    from difflib import get_close_matches

    if word in known:
        return None
    begun = [one for one in known if one.startswith(word)]
    near = begun if len(begun) == 1 else get_close_matches(word, known, n=1)
    return near[0] if near else None


def _csv(rows: list[dict[str, Any]]) -> str:
    import csv
    import io

    from amfs_otel.graph.listing import KEYS

    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(KEYS)
    writer.writerows([row[key] for key in KEYS] for row in rows)
    return lines.getvalue()
