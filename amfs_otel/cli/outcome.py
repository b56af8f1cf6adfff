"""`outcome`: how a decision ended, reported by a person or a pipeline."""

from typing import Annotated

import typer

from amfs_otel.cli.failure import Code, command
from amfs_otel.cli.options import AsJson, Dsn, Log


def register(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "outcome")(outcome)


def outcome(
    ref: Annotated[str, typer.Argument(metavar="REF|ID", help="Outcome ref, id (or its end), trace id, or last.")],
    type_: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="success, minor_failure, failure, critical_failure, or your own word."),
    ],
    *,
    summary: Annotated[str | None, typer.Option(help="One sentence.", show_default=False)] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it showed, RFC 3339; default: now.", show_default=False)
    ] = None,
    source: Annotated[str | None, typer.Option(help="Who says so.", show_default=False)] = None,
    score: Annotated[float | None, typer.Option(help="A number on your scale.", show_default=False)] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    log: Log = None,
) -> int:
    """Say how a decision ended: a new signed record that names it. The decision itself is never changed."""
    from amfs_otel.cli.options import settings_for
    from amfs_otel.cli.output import write, write_json
    from amfs_otel.drain.asking import asking
    from amfs_otel.drain.late_outcome import Judgement, store_outcome

    settings = settings_for(dsn, log)
    at_ns = _ns_from(at) if at is not None else None
    with asking(settings) as (opened, reader):
        known = reader.explain(ref)
        decision_id: str = known["record_id"]
        judgement = Judgement(known["outcome_ref"] or decision_id, type_, summary, source, score, at_ns)
        done = store_outcome(opened, settings, decision_id, judgement)
    answer = {
        "record_id": done.record_id,
        "decision_id": decision_id,
        "outcome_ref": judgement.ref,
        "outcome_type": judgement.type,
        "sequence_number": done.sequence_number,
    }
    if as_json:
        write_json(answer)
    else:
        place = f"entry {done.sequence_number}" if done.sequence_number is not None else "not sealed yet"
        write(f"{judgement.ref} → {judgement.type}: record …{done.record_id[-8:]} ({place})")
    return Code.FINE


def _ns_from(text: str) -> int:
    from amfs_otel.cli.times import moment_from

    return int(moment_from(text, where="--at").timestamp() * 1_000_000) * 1000
