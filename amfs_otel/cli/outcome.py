"""`outcome`: how a decision ended, reported by a person or a pipeline."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from amfs_otel.cli.failure import Code, command, tell
from amfs_otel.cli.options import AsJson, Dsn, Log, said
from amfs_otel.errors import ConfigurationError

CLOCKS_DIFFER_NS = 60_000_000_000
"""How far ahead of this machine's clock a time may be: that of another machine may go faster."""


def register(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "outcome")(outcome)


def _word(text: str) -> str:
    """A type that says something: the record is for ever.

    Raises:
        typer.BadParameter: It is empty.
    """
    if not text.strip():
        raise typer.BadParameter(
            "it is empty; say success, minor_failure, failure, critical_failure, or your own word."
        )
    return text


def _number(score: float | None) -> float | None:
    """A score that can be compared.

    Raises:
        typer.BadParameter: It is no finite number.
    """
    if score is not None and not math.isfinite(score):
        raise typer.BadParameter(f"a finite number is expected, not {score}.")
    return score


def outcome(
    ref: Annotated[
        str, typer.Argument(metavar="REF|ID", help="Outcome ref, id (or its end), trace id, or last.", callback=said)
    ],
    type_: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="success, minor_failure, failure, critical_failure, or your own word.", callback=_word
        ),
    ],
    *,
    summary: Annotated[str | None, typer.Option(help="One sentence.", show_default=False)] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it showed: RFC 3339, a date, or 30m, 6h, 7d ago.", show_default=False),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Who says so.", show_default=False)] = None,
    score: Annotated[
        float | None, typer.Option(help="A number on your scale.", show_default=False, callback=_number)
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    log: Log = None,
) -> int:
    """Say how a decision ended, in a new signed record.

    It names the decision that it judges; the decision itself is never changed.
    """
    from amfs_otel.cli.options import settings_for
    from amfs_otel.cli.output import printable, write, write_json
    from amfs_otel.drain.asking import asking
    from amfs_otel.drain.late_outcome import Judgement, store_outcome

    settings = settings_for(dsn, log)
    at_ns = _ns_from(at) if at is not None else None
    with asking(settings) as (opened, reader):
        known = reader.explain(ref)
        decision_id: str = known["record_id"]
        # A decision without a ref becomes known by the end of its id, as `list` shows it.
        judgement = Judgement(known["outcome_ref"] or decision_id[-8:], type_, summary, source, score, at_ns)
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
        write(f"{printable(judgement.ref)} → {printable(type_)}: record …{done.record_id[-8:]} ({place})")
        write(f"judges the decision {printable(_decision(known))}")
    if done.problem is not None:
        tell(f"the outcome is stored as record {done.record_id} and not sealed: {done.problem}")
    older = _older(known["other_traces"])
    if older:
        tell(older)
    return Code.FINE


def _decision(known: Mapping[str, Any]) -> str:
    from amfs_otel.graph.finding import described

    return described(known["record_id"], {**known, "started_at": known["session_started_at"]})


def _older(others: Sequence[str]) -> str | None:
    """What to say of older decisions with the same ref."""
    if not others:
        return None
    ends = ", ".join(f"…{one[-8:]}" for one in others[:5])
    have = "1 older decision has" if len(others) == 1 else f"{len(others)} older decisions have"
    return f"{have} the same ref ({ends}); to judge one of them, name it by its id."


def _ns_from(text: str) -> int:
    from amfs_otel.cli.times import moment_from

    at_ns = int(moment_from(text, where="--at").timestamp() * 1_000_000) * 1000
    if at_ns > time.time_ns() + CLOCKS_DIFFER_NS:
        # It would be the newest outcome until that time comes, whatever is said meanwhile.
        raise ConfigurationError(
            "is in the future",
            where="--at",
            expected="when the outcome showed",
            got=repr(text[:40]),
            hint="An outcome is reported once it is known; without --at it is now.",
        )
    return at_ns
