"""Facts and causes → the answer of `doctor --json`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from amfs_otel.doctor.cause import Cause
from amfs_otel.doctor.facts import Facts


def report_of(facts: Facts, causes: Sequence[Cause]) -> dict[str, Any]:
    """The whole answer. No secret and no content is in it."""
    settings = facts.settings
    return {
        "healthy": not any(cause.level == "problem" for cause in causes),
        "findings": [asdict(cause) for cause in causes],
        "versions": dict(facts.versions),
        "log": settings.log,
        "processes": [_process(one) for one in facts.processes],
        "hook": asdict(facts.hook),
        "endpoint": None if facts.endpoint is None else asdict(facts.endpoint),
        "store": {
            **{key: value for key, value in asdict(facts.store).items() if key not in ("announced", "posture")},
            "announced": [asdict(key) for key in facts.store.announced],
            "posture": [asdict(fact) for fact in facts.store.posture],
        },
        "spool": {
            **asdict(facts.spool),
            "elsewhere": sum(one.files for one in facts.spool.elsewhere),
            "limit_bytes": settings.spool_limit_bytes,
        },
        "keys": [asdict(key) for key in facts.keys],
        "content": {"ledger": settings.ledger_content.value, "spans": settings.span_content.value},
        "owners": list(facts.owners),
        "postgres": facts.postgres,
    }


def _process(facts: Mapping[str, object]) -> dict[str, Any]:
    shown = (
        "program", "pid", "started_ns", "state", "ended", "python", "log", "patches", "events", "records_signed",
        "dropped", "unsigned", "stored", "sealed", "internal_errors", "ledger_content", "span_content", "endpoint",
        "signing_key_id", "development_key", "delivery_problem", "open_windows", "span_owners",
    )  # fmt: skip
    return {key: facts.get(key) for key in shown}
