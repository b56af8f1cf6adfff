"""`drain`, `sealer`, `rebuild`, `reset`: what keeps a log going."""

from typing import TYPE_CHECKING, Annotated

import typer

from amfs_otel.cli.failure import Code, UsageError, command, tell
from amfs_otel.cli.options import AsJson, Dsn, Log, Yes, given

if TYPE_CHECKING:
    from amfs_otel.drain.filling import Filled


def register(app: typer.Typer) -> None:
    """Registers the commands."""
    command(app, "drain")(drain)
    command(app, "sealer")(sealer)
    command(app, "rebuild")(rebuild)
    command(app, "reset")(reset)


def drain(
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="DSN",
            help="Send every spooled frame there, whatever it was for.",
            show_default=False,
            callback=given,
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    log: Log = None,
) -> int:
    """Bring what lies in the spool into the store.

    And seal it, if the log key is here.
    """
    from amfs_otel.cli.options import agreed, settings_for
    from amfs_otel.cli.output import write, write_json
    from amfs_otel.drain.draining import drain as drained
    from amfs_otel.drain.draining import strangers

    settings = settings_for(to, log)
    if to is not None:
        others = strangers(settings)
        if others.frames and not agreed(others.question, yes=yes):
            raise UsageError("nothing was sent")
    filled = drained(settings, everything=to is not None)
    answer = _answer(filled)
    if as_json:
        write_json(answer)
    else:
        write(
            f"{answer['stored']} records stored, {answer['already']} were there, {answer['refused']} refused, "
            f"{answer['adopted']} traces of dead processes finished, {answer['sealed']} sealed"
        )
    for problem in filled.problems:
        tell(problem)
    if filled.held_by is not None and not filled.sealed:
        tell(f"sealing is held back: {filled.held_by}")
    return Code.CANNOT_JUDGE if filled.problems else Code.FINE


def _answer(filled: "Filled") -> dict[str, object]:
    done = filled.delivered
    return {
        "stored": done.stored,
        "already": done.already,
        "refused": done.refused,
        "adopted": done.adopted,
        "gaps": done.gaps,
        "sealed": filled.sealed,
        "held_by": filled.held_by,
        "receipts": filled.receipts,
        "problems": filled.problems,
    }


def sealer(
    *,
    once: Annotated[bool, typer.Option("--once", help="Seal what there is, then end.")] = False,
    dsn: Dsn = None,
    log: Log = None,
) -> int:
    """Give every stored record its entry, until stopped. Needs the log key."""
    from amfs_otel.cli.options import settings_for
    from amfs_otel.drain.sealer import Sealing

    settings = settings_for(dsn, log)
    if settings.dsn is None:
        raise UsageError(
            "a sealer needs a server", hint="Set AMFS_OTEL_DSN or --dsn. The local store is sealed by whoever reads it."
        )
    sealing = Sealing(settings, tell)
    sealing.end_on_signals()
    count = sealing.once() if once else sealing.run()
    tell(f"sealed {count} records")
    return Code.FINE


def rebuild(*, dsn: Dsn = None, log: Log = None) -> int:
    """Derive all tables and views anew from the records. The log itself is not touched."""
    from amfs_otel.cli.options import settings_for
    from amfs_otel.cli.output import write
    from amfs_otel.drain.asking import asking
    from amfs_otel.graph.projection import rebuild as rebuilt

    settings = settings_for(dsn, log)
    with asking(settings) as (opened, _):
        count = rebuilt(opened.store.connection, settings.log)
    write(f"projected {count} entries anew")
    return Code.FINE


def reset(
    *,
    local: Annotated[bool, typer.Option("--local", help="Confirms that the local store is meant.")] = False,
    yes: Yes = False,
) -> int:
    """Delete the local store and what is spooled for it. Keys stay. A server is never touched."""
    from amfs_otel.cli.options import agreed
    from amfs_otel.cli.output import write
    from amfs_otel.drain.draining import reset_local
    from amfs_otel.settings import Settings

    if not local:
        raise UsageError("only the local store can be reset", hint="Say: amfs-otel reset --local.")
    settings = Settings.from_env()
    question = f"Delete every decision trace that is kept in {settings.state_dir}? Nothing of it can be brought back."
    if not agreed(question, yes=yes):
        raise UsageError("nothing was deleted")
    left = reset_local(settings)
    write(f"deleted the local store of {settings.state_dir}")
    if left:
        tell(f"{left} files belong to running agents and stay; they go into the next store.")
    return Code.FINE
