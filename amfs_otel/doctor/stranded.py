"""What lies in the spool for another store than the one that the settings name, and how it gets there."""

from collections.abc import Iterator

from amfs_otel.doctor.cause import Cause
from amfs_otel.doctor.facts import ElsewhereFacts, Facts
from amfs_otel.settings import DEFAULT_LOG
from amfs_otel.store.destination import LOCAL


def stranded_causes_of(facts: Facts) -> Iterator[Cause]:
    """One cause for each such store. What is for the local one gets there with the next command that asks it."""
    for one in facts.spool.elsewhere:
        files = "1 spool file is" if one.files == 1 else f"{one.files} spool files are"
        made = f", made by {', '.join(one.programs)}" if one.programs else ""
        yield Cause(
            "STRANDED",
            "note" if one.destination == LOCAL else "warning",
            f"{files} for {_store(one)}{made}.",
            draining_step(facts, one),
        )


def draining_step(facts: Facts, one: ElsewhereFacts) -> str:
    """What brings it into the store that it was made for, or into another."""
    if one.here:
        return f"Bring them there with: {'; '.join(f'amfs-otel drain --log {log}' for log in one.logs)}."
    to = "this one" if facts.settings.dsn is not None else "a server"
    instead = f"To send them to {to} instead: amfs-otel drain --to DSN."
    if one.destination == LOCAL:
        return f"Take them over with: amfs-otel list, where no DSN is set. {instead}"
    log = f" --log {one.logs[0]}" if len(one.logs) == 1 and one.logs[0] != DEFAULT_LOG else ""
    return f"Bring them there with: amfs-otel drain{log}, where AMFS_OTEL_DSN names that database. {instead}"


def _store(one: ElsewhereFacts) -> str:
    named = f"the log {' or '.join(one.logs)}" if one.logs else "a log that cannot be read"
    if one.destination == LOCAL:
        return f"the local store ({named})"
    return f"{named} in this database" if one.here else f"another database than this one ({named})"
