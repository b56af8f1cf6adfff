"""`init` and `keygen`: a server for a log, and keys."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amfs_otel.cli.failure import Code, UsageError, command, tell
from amfs_otel.cli.options import AsJson, Dsn, Log

if TYPE_CHECKING:
    from amfs_otel.drain.prepare_log import PreparedLog


def register(app: typer.Typer) -> None:
    """Registers the commands."""
    command(app, "init")(init)
    command(app, "keygen")(keygen)


def init(*, as_json: AsJson = False, dsn: Dsn = None, log: Log = None) -> int:
    """Prepare a PostgreSQL server for a log.

    Makes the schema, the roles, the log and, for a new log, its keys. Safe to repeat.
    """
    from amfs_otel.cli.options import unsettled
    from amfs_otel.cli.output import write, write_json
    from amfs_otel.drain.prepare_log import prepare_log

    settings = unsettled(dsn, log)
    if settings.dsn is None or settings.dsn_is_fallback:
        raise UsageError(
            "there is no server to prepare",
            hint="Set AMFS_OTEL_DSN or --dsn. Without one everything stays on this machine and needs no preparation.",
        )
    done = prepare_log(settings)
    if as_json:
        write_json(_answer(done))
    else:
        write("\n".join(_lines(done)))
    for note in done.notes:
        tell(note)
    return Code.FINE


def _answer(done: "PreparedLog") -> dict[str, object]:
    return {
        "log": done.log,
        "log_uid": done.log_uid,
        "created": done.created,
        "schema_version": done.version,
        "place": done.place,
        "keys": [
            {"role": role, "kid": held.key.kid, "source": held.source, "made": Path(held.source) in done.made}
            for role, held in done.held.items()
        ],
        "announced": [
            {"role": key.role, "kid": key.kid, "name": key.name, "state": key.state} for key in done.announced
        ],
        "notes": list(done.notes),
    }


def _lines(done: "PreparedLog") -> list[str]:
    begun = "begun" if done.created else "there already, nothing changed"
    lines = [f"log {done.log} on {done.place}: {begun} (log_uid {done.log_uid}, schema version {done.version})"]
    for role, held in done.held.items():
        made = ", made just now" if Path(held.source) in done.made else ""
        lines.append(f"  {role} key {held.key.kid}: {held.source}{made}")
    for role in ("writer", "log"):
        if role not in done.held:
            kids = ", ".join(key.kid for key in done.announced if key.role == role and key.state == "add")
            lines.append(f"  {role} key: not here; the log announces {kids}")
    return lines + _next_steps(done)


def _next_steps(done: "PreparedLog") -> list[str]:
    export = [f"  export AMFS_OTEL_DSN='{dsn_of(done.place)}'"]
    if done.log != "default":
        export.append(f"  export AMFS_OTEL_LOG={done.log}")
    lines = [
        "",
        "Agents and people need users of the server, none an administrator. In SQL, with passwords of your own:",
        *_users(done),
        "",
        "and in their environment, as that user:",
        *export,
        "",
        "Agents of other users or machines also need a copy of the writer key:",
        "  export AMFS_OTEL_SIGNING_KEY_FILE=/path/to/writer.key",
    ]
    if "log" in done.held:
        lines += [
            "",
            "Who holds the log key seals: here, every agent after its own records. To part the two, move the log key",
            "to another user or machine and run there: amfs-otel sealer",
        ]
    else:
        lines += ["", "Records stay stored, without an entry, until somebody with the log key runs: amfs-otel sealer"]
    return lines


def _users(done: "PreparedLog") -> list[str]:
    """The statements that make a user for each purpose; whoever holds the log key here seals, so it needs that role."""
    here = [("agent", "amfs_otel_writer, amfs_otel_sealer", "agents here, which seal: log.key is here")]
    elsewhere = "agents elsewhere, which only write" if "log" in done.held else "agents, which only write"
    writer = "agent_elsewhere" if "log" in done.held else "agent"
    users = [
        *(here if "log" in done.held else ()),
        (writer, "amfs_otel_writer", elsewhere),
        ("person", "amfs_otel_reader", "people, for list, explain and verify"),
    ]
    return [f"  CREATE ROLE {name} LOGIN PASSWORD 'PASSWORD' IN ROLE {roles};  -- {who}" for name, roles, who in users]


def dsn_of(place: str) -> str:
    """A connection string to a place, for another user; no user and no password of ours is in it."""
    server, _, database = place.rpartition("/")
    host, _, port = server.rpartition(":")
    if not host:
        return "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    if set("/,:") & set(host):  # a socket's directory, several hosts or IPv6: URIs need escapes for these
        return f"host={host} port={port} dbname={database} user=USER password=PASSWORD"
    return f"postgresql://USER:PASSWORD@{host}:{port}/{database}"


def keygen(
    *,
    role: Annotated[str, typer.Option(help="writer: signs records. log: seals them.")] = "writer",
    name: Annotated[str, typer.Option("--for", metavar="NAME", help="The workload that it is for.")] = "",
    announce: Annotated[
        bool, typer.Option("--announce", help="Say in the log that this key may sign. Needs a writer key here.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the key there (mode 0600) instead of to stdout.", show_default=False),
    ] = None,
    dsn: Dsn = None,
    log: Log = None,
) -> int:
    """Make a key. It goes to stdout, its id to stderr."""
    import getpass

    from amfs_otel.cli.options import settings_for
    from amfs_otel.cli.output import write
    from amfs_otel.drain.prepare_log import announce as announced
    from amfs_otel.drain.prepare_log import new_key, role_from
    from amfs_otel.spool import ensure_key_file

    wanted = role_from(role)
    if out is not None and out.exists():
        raise UsageError(
            "there is such a file; it was left alone", where=str(out), hint="Name another with --out, or move it away."
        )
    if out is not None and not os.access(out.parent, os.W_OK):
        raise UsageError(
            "no file can be made there",
            where=str(out.parent),
            hint="Make that directory or its mode fit, or name another file with --out.",
        )
    new = new_key()
    if announce:
        new = announced(settings_for(dsn, log), new, role=wanted, name=name, by=getpass.getuser())
    if out is not None:
        ensure_key_file(out, new.text)
    else:
        write(new.text)
    where = f", announced in entry {new.sequence_number}" if new.sequence_number is not None else ""
    waits = ", announced once somebody seals it" if announce and new.sequence_number is None else ""
    tell(f"{wanted} key {new.kid}{where}{waits}")
    return Code.FINE
