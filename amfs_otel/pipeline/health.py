"""What a process says of itself: the status file that `doctor` reads, and the health metrics."""

import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from opentelemetry.metrics import Meter

from amfs_otel import guard, instrumentor
from amfs_otel.assemble.origin import origin_facts
from amfs_otel.capture import foreign
from amfs_otel.capture.windows import Windows
from amfs_otel.export.metrics import HealthMetrics, HealthSnapshot
from amfs_otel.pipeline.delivery import Delivery
from amfs_otel.pipeline.intake import Intake
from amfs_otel.pipeline.signer import Signer
from amfs_otel.pipeline.spooling import Spooling
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory, StatusFile


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process's pipeline is made of, as far as it has something to tell."""

    settings: Settings
    state: StateDirectory
    intake: Intake
    windows: Windows
    signer: Signer
    spooling: Spooling
    delivery: Delivery


class Health:
    """Status file and metrics of one process.

    Args:
        parts: Whose numbers they are.
        meter: The application's; `None` records no metrics.
    """

    def __init__(self, parts: Parts, meter: Meter | None) -> None:
        self._parts = parts
        self._file = StatusFile(parts.state, time.time_ns())
        self._told: dict[str, int] = {}
        self._last: dict[str, Any] | None = None
        self._metrics = HealthMetrics(meter, self.snapshot) if meter is not None else None

    def new_drops(self, dropped: dict[str, int]) -> dict[str, int]:
        """Drops that no gap record tells of yet."""
        new = {cause: count - self._told.get(cause, 0) for cause, count in dropped.items()}
        return {cause: count for cause, count in new.items() if count > 0}

    def told(self, cause: str, count: int) -> None:
        """A gap record tells of `count` more drops of that cause."""
        self._told[cause] = self._told.get(cause, 0) + count

    def tick(self) -> None:
        """Writes the status file where something changed, at most once a second."""
        if self._file.is_due():
            guard.run("status", self.write, at_exit=False)

    def write(self, *, at_exit: bool) -> None:
        """Writes the status file.

        Raises:
            SpoolError: The state directory does not take it.
        """
        facts = self.facts(ended=at_exit)
        if facts != self._last and self._parts.spooling.usable and self._file.write(facts, at_exit=at_exit):
            self._last = facts

    def facts(self, *, ended: bool) -> dict[str, Any]:
        """What the status file holds. Counts, names of ours and versions; no content, no secret."""
        parts, settings = self._parts, self._parts.settings
        held = parts.signer.key() if parts.spooling.journaled else None
        return {
            "origin": dict(origin_facts(settings)),
            "program": settings.program,
            "python": sys.version.split()[0],
            "pid": os.getpid(),
            "ended": ended,
            "log": settings.log,
            "destination": parts.spooling.destination,
            "ledger_content": settings.ledger_content.value,
            "span_content": settings.span_content.value,
            "sdk_disabled": settings.sdk_disabled,
            "endpoint": _without_userinfo(settings.otlp_endpoint),
            "problems": list(settings.problems),
            "patches": [asdict(state) for state in instrumentor.states()],
            "span_owners": foreign.owners(),
            "internal_errors": guard.counters(),
            "events": parts.spooling.journaled,
            "dropped": dict(parts.intake.dropped),
            "records_signed": dict(parts.signer.signed),
            "unsigned": len(parts.signer.unsigned),
            "signing_key_id": held.key.kid if held is not None else None,
            "development_key": held.development if held is not None else None,
            "spool_usable": parts.spooling.usable,
            "spool_ephemeral": parts.spooling.ephemeral,
            "stored": parts.delivery.stored,
            "refused": parts.delivery.refused,
            "sealed": parts.delivery.sealed,
            "delivery_problem": parts.delivery.problem,
            "seal_held_by": parts.delivery.seal_held_by,
            "open_windows": parts.windows.open_count(),
        }

    def snapshot(self) -> HealthSnapshot:
        """What the metrics show now; takes no lock."""
        parts = self._parts
        key = parts.signer.held
        return HealthSnapshot(
            events_dropped=dict(parts.intake.dropped),
            spool_bytes=parts.spooling.used_bytes(),
            spool_oldest_age_s=parts.delivery.oldest_age_s(),
            drain_lag_s=parts.delivery.oldest_age_s(),
            seal_lag_s=parts.delivery.seal_lag_s,
            records_signed=dict(parts.signer.signed),
            patches_disabled=sum(1 for counted in guard.counters().values() if counted["off"]),
            internal_errors={name: int(str(counted["errors"])) for name, counted in guard.counters().items()},
            development_key=key.development if key is not None else None,
        )


def _without_userinfo(url: str | None) -> str | None:
    """A URL as a status file may show it: user and password can stand before the host, tokens in the query."""
    if url is None:
        return None
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}".partition("?")[0]
