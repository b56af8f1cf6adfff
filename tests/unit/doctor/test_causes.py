"""Each cause that `doctor` names, broken on purpose: facts in, cause out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amfs_otel.doctor.cause import Cause
from amfs_otel.doctor.causes import causes_of
from amfs_otel.doctor.facts import ElsewhereFacts, EndpointFacts, Facts, HookFacts, KeyFacts, SpoolFacts, StoreFacts
from amfs_otel.doctor.report import report_of
from amfs_otel.settings import LedgerContent, Settings, SpanContent
from amfs_otel.store.announced import AnnouncedKey
from amfs_otel.store.postgres import PostureFact

KID, OTHER = "a" * 16, "b" * 16
FAR = "f" * 64
SERVER = Settings(state_dir=Path("/state"), dsn="postgresql://somewhere/db")
PROCESS: dict[str, Any] = {
    "program": "agent", "pid": 7, "ended": True, "state": "ended", "age_s": 200.0, "ledger_content": "decision", "span_content": "NO_CONTENT",
    "patches": [{"name": "openai", "state": "patched", "version": "2.0", "missing": [], "foreign": [], "detail": None}],
}  # fmt: skip
HEALTHY = Facts(
    settings=SERVER,
    versions={"python": "3.11"},
    processes=(PROCESS,),
    endpoint=EndpointFacts("http://collector:4317", False, "grpc", reachable=True, speaks="grpc"),
    hook=HookFacts(True),
    store=StoreFacts(
        local=False,
        server="15.18",
        prepared=True,
        entries=3,
        unsealed=0,
        announced=tuple(AnnouncedKey(KID, role, "HMAC-SHA256", "", "add") for role in ("writer", "log")),
        posture=(PostureFact("RULES", True, "all in force"),),
    ),
    spool=SpoolFacts("/state"),
    keys=(KeyFacts("writer", KID, "/state/keys/writer.key"), KeyFacts("log", KID, "/state/keys/log.key")),
    owners=("amfs-otel",),
    postgres="18.6",
)


def with_patch(**changes: Any) -> Facts:
    return with_process(patches=[{**PROCESS["patches"][0], **changes}])


def with_process(**changes: Any) -> Facts:
    return replace(HEALTHY, processes=({**PROCESS, **changes},))


def with_endpoint(**changes: Any) -> Facts:
    assert HEALTHY.endpoint is not None
    return replace(HEALTHY, endpoint=replace(HEALTHY.endpoint, **changes))


def with_store(**changes: Any) -> Facts:
    return replace(HEALTHY, store=replace(HEALTHY.store, **changes))


def with_spool(**changes: Any) -> Facts:
    return replace(HEALTHY, spool=replace(HEALTHY.spool, **changes))


def with_settings(**changes: Any) -> Facts:
    return replace(HEALTHY, settings=replace(SERVER, **changes))


BROKEN = {
    "COLLECTOR_UNREACHABLE": with_endpoint(reachable=False, speaks=None),
    "WRONG_PORT": with_endpoint(url="http://collector:4318", speaks="http"),
    "NO_KEY": replace(HEALTHY, keys=(KeyFacts("writer"), KeyFacts("log"))),
    "KEY_UNUSABLE": replace(HEALTHY, keys=(KeyFacts("writer", problem="the key is too short"), KeyFacts("log"))),
    "KEY_UNKNOWN": replace(HEALTHY, keys=(KeyFacts("writer", OTHER, "file"), KeyFacts("log", KID, "file"))),
    "TWO_PACKAGES": replace(HEALTHY, owners=("amfs-otel", "amfs-pro")),
    "FOREIGN_INSTRUMENTOR": with_patch(foreign=["Completions.create: opentelemetry.instrumentation.openai_v2"]),
    "SPAN_OWNERS": with_process(
        span_owners={"openai": {"chat_completions": {"openinference.instrumentation.openai": 2}}}
    ),
    "NOT_PATCHED": with_patch(state="conflict", detail="openai 0.9 is outside >= 1"),
    "PARTLY_PATCHED": with_patch(state="partial", missing=["openai:X.y"]),
    "SWITCHED_OFF": with_patch(state="disabled"),
    "HOOK_NOT_RUN": replace(HEALTHY, hook=HookFacts(False, "Requested component 'nope' not found")),
    "NO_SEALER": with_store(unsealed=5, oldest_unsealed_s=700.0),
    "SEAL_HELD": with_store(unsealed=5, oldest_unsealed_s=700.0, held_by="open transaction: pid 9"),
    "SPOOL_GROWS": with_spool(segments=3, oldest_s=7200.0),
    "SPOOL_EPHEMERAL": with_spool(ephemeral=True),
    "SPOOL_UNUSABLE": with_spool(usable=False, problem="read-only"),
    "STRANDED": with_spool(elsewhere=(ElsewhereFacts(FAR, 2),)),
    "QUARANTINE": with_spool(quarantined=1),
    "NO_RULES": with_store(posture=(PostureFact("RULES", False, "missing or switched off: entry_no_update"),)),
    "POSTURE": with_store(posture=(PostureFact("PARTS", False, "the writer role can read parts"),)),
    "DEVELOPMENT_KEY": replace(HEALTHY, keys=(KeyFacts("writer", KID, "f", development=True), HEALTHY.keys[1])),
    "CONTENT_DIFFERS": with_settings(span_content=SpanContent.SPAN_ONLY),
    "STORE_UNREACHABLE": with_store(prepared=False, problem="nothing listens there", unreachable=True),
    "STORE_UNUSABLE": with_store(prepared=False, problem="the server does not accept the password"),
    "STORE_UNPREPARED": with_store(prepared=False),
    "LOG_UNKNOWN": with_store(local=True, prepared=False, others=("default",)),
    "STORE_OUTDATED": with_store(outdated=True),
    "NO_POSTGRES": replace(HEALTHY, settings=replace(SERVER, dsn=None), store=StoreFacts(True), postgres=None),
    "SETTING": with_settings(problems=("AMFS_OTEL_RECEIPTS: cannot be used",)),
    "MASK_PATTERNS": replace(
        HEALTHY, mask_problems=("patterns line 2: unterminated character set; it masks nothing.",)
    ),
    "DISABLED": with_settings(disabled=True),
    "SDK_DISABLED": with_settings(sdk_disabled=True),
    "NOTHING_RECORDED": replace(HEALTHY, processes=()),
    "INTERNAL_ERROR": with_process(internal_errors={"openai": {"errors": 3, "cause": "KeyError at x:1", "off": False}}),
    "PATCH_OFF": with_process(internal_errors={"openai": {"errors": 20, "cause": "KeyError at x:1", "off": True}}),
    "DROPPED": with_process(dropped={"queue_full": 12}),
    "UNSIGNED": with_process(unsigned=4, journal_left=True),
    "DELIVERY_FAILS": with_process(delivery_problem="the server is shutting down", ended=False, state="running"),
}


ADVICE_IS_NOT_NEEDED = ("QUARANTINE", "DROPPED", "SDK_DISABLED", "SWITCHED_OFF", "PARTLY_PATCHED", "SPAN_OWNERS")


def test_a_healthy_process_has_no_cause() -> None:
    assert causes_of(HEALTHY) == []


@pytest.mark.parametrize("code", BROKEN)
def test_the_cause_is_named_alone(code: str) -> None:
    found = causes_of(BROKEN[code])
    assert [cause.code for cause in found] == [code]
    assert found[0].message


@pytest.mark.parametrize("code", BROKEN)
def test_a_problem_says_what_to_do_or_what_was_lost(code: str) -> None:
    for cause in causes_of(BROKEN[code]):
        assert cause.hint or cause.code in ADVICE_IS_NOT_NEEDED


def test_problems_come_first_and_each_once() -> None:
    facts = replace(
        HEALTHY,
        processes=(PROCESS, PROCESS),
        owners=("amfs-otel", "x"),
        spool=SpoolFacts("/s", elsewhere=(ElsewhereFacts(FAR, 1),)),
    )
    assert [cause.level for cause in causes_of(facts)] == ["problem", "warning"]
    twice = with_patch(state="failed", detail="KeyError")
    doubled = replace(twice, processes=twice.processes * 2)
    assert len(causes_of(doubled)) == 1


@pytest.mark.parametrize(
    ("no_room", "hint"), [(True, "Make room on this disk; until"), (False, "Set AMFS_OTEL_STATE_DIR to a directory")]
)
def test_a_full_disk_is_not_cured_by_another_right(no_room: bool, hint: str) -> None:
    (cause,) = causes_of(with_spool(usable=False, problem="x", no_room=no_room))
    assert cause.code == "SPOOL_UNUSABLE"
    assert cause.hint.startswith(hint)


def test_before_init_its_step_comes_first_and_the_key_is_said_to_come_of_it() -> None:
    facts = replace(with_store(prepared=False), keys=(KeyFacts("writer"), KeyFacts("log")))
    store, key = causes_of(facts)
    assert (store.code, key.code) == ("STORE_UNPREPARED", "NO_KEY")
    assert key.hint.startswith("amfs-otel init makes it")


def test_a_default_collector_that_is_not_there_is_a_warning() -> None:
    found = causes_of(with_endpoint(reachable=False, is_default=True))
    assert [(cause.code, cause.level) for cause in found] == [("COLLECTOR_UNREACHABLE", "warning")]


@pytest.mark.parametrize(
    ("protocol", "speaks", "wrong"),
    [
        ("grpc", "grpc", False),
        ("grpc", "both", False),
        ("grpc", None, False),
        ("grpc", "http", True),
        ("http/protobuf", "http", False),
        ("http/protobuf", "both", False),
        ("http/protobuf", "grpc", True),
    ],
)
def test_which_port_is_wrong(protocol: str, speaks: str | None, wrong: bool) -> None:
    found = causes_of(with_endpoint(protocol=protocol, speaks=speaks))
    assert [cause.code for cause in found] == (["WRONG_PORT"] if wrong else [])


def test_records_that_have_just_come_need_no_sealer_yet() -> None:
    assert causes_of(with_store(unsealed=5, oldest_unsealed_s=3.0)) == []


def test_content_in_both_places_does_not_differ() -> None:
    facts = with_settings(span_content=SpanContent.SPAN_ONLY, ledger_content=LedgerContent.ALL)
    assert causes_of(facts) == []


def test_the_report_holds_no_connection_string() -> None:
    report = report_of(HEALTHY, [Cause("X", "problem", "message")])
    assert report["healthy"] is False
    assert "somewhere" not in str(report)


def test_a_setting_that_a_running_process_could_not_use_is_a_problem() -> None:
    (found,) = causes_of(with_process(state="running", problems=["AMFS_OTEL_RECEIPTS: cannot be used"]))
    assert (found.code, found.level) == ("SETTING", "problem")
    assert "agent (pid 7, started 3 minutes ago, running)" in found.message


def test_a_mistake_of_a_process_that_is_over_is_a_warning() -> None:
    (found,) = causes_of(with_process(problems=["AMFS_OTEL_RECEIPTS: cannot be used"]))
    assert (found.code, found.level) == ("SETTING", "warning")
    assert "pid 7, started 3 minutes ago, ended" in found.message


def test_a_mistake_that_stands_in_the_present_settings_is_told_once() -> None:
    facts = replace(with_process(problems=["x"]), settings=replace(SERVER, problems=("x",)))
    assert [(cause.level, cause.message) for cause in causes_of(facts)] == [("problem", "x")]


@pytest.mark.parametrize(
    "mistake",
    [
        {"problems": ["AMFS_OTEL_RECEIPTS: cannot be used"]},
        {"patches": [{**PROCESS["patches"][0], "state": "failed", "detail": "KeyError"}]},
        {"internal_errors": {"openai": {"errors": 3, "cause": "KeyError", "off": False}}},
        {"internal_errors": {"openai": {"errors": 20, "cause": "KeyError", "off": True}}},
        {"delivery_problem": "the server is shutting down"},
        {"span_content": "SPAN_ONLY"},
        {"unsigned": 4, "journal_left": False},
    ],
)
def test_a_corrected_mistake_is_not_told_for_ever(mistake: dict[str, Any]) -> None:
    newer = {**PROCESS, "pid": 8}
    assert causes_of(replace(HEALTHY, processes=(newer, {**PROCESS, **mistake}))) == []


def test_a_newer_run_of_another_program_corrects_nothing() -> None:
    broken = {**PROCESS, "patches": [{**PROCESS["patches"][0], "state": "failed", "detail": "KeyError"}]}
    facts = replace(HEALTHY, processes=({**PROCESS, "program": "other"}, broken))
    assert [cause.code for cause in causes_of(facts)] == ["NOT_PATCHED"]


def test_a_patch_that_switched_itself_off_is_a_problem_that_says_which_and_why() -> None:
    errors = {
        "openai": {"errors": 20, "cause": "KeyError at x:1", "off": True},
        "pipeline": {"errors": 21, "cause": "OSError at y:2", "off": True},
    }
    off, other = causes_of(with_process(internal_errors=errors, state="running"))
    assert (off.code, off.level) == ("PATCH_OFF", "problem")
    assert "agent (pid 7, started 3 minutes ago, running): the patch of openai has switched itself off" in off.message
    assert "off: 20 internal errors, the newest KeyError at x:1. Nothing of openai is captured" in off.message
    assert "start the program again" in off.hint
    # What is no patch has nothing to be switched off.
    assert (other.code, other.level) == ("INTERNAL_ERROR", "warning")


def test_dropped_events_stay_a_note() -> None:
    older = {**PROCESS, "dropped": {"queue_full": 12}}
    assert [cause.level for cause in causes_of(replace(HEALTHY, processes=(PROCESS, older)))] == ["note"]


def test_unsigned_traces_are_a_problem_until_there_is_a_key() -> None:
    waiting = with_process(unsigned=4, journal_left=True)
    (found,) = causes_of(waiting)
    assert found.level == "warning"
    assert "amfs-otel drain" in found.hint
    without = replace(waiting, settings=replace(SERVER, dsn=None), keys=(KeyFacts("writer"), KeyFacts("log")))
    (found,) = causes_of(without)
    assert found.level == "problem"
    assert "/state/keys/writer.key" in found.hint


@pytest.mark.parametrize(
    ("one", "level", "store", "step"),
    [
        (
            ElsewhereFacts("local", 3, ("default",), programs=("agent",)),
            "note",
            "3 spool files are for the local store (the log default), made by agent.",
            "amfs-otel list, where no DSN is set",
        ),
        (
            ElsewhereFacts(FAR, 1, ("other",), here=True),
            "warning",
            "1 spool file is for the log other in this database.",
            "amfs-otel drain --log other.",
        ),
        (
            ElsewhereFacts(FAR, 1, ("default",)),
            "warning",
            "1 spool file is for another database than this one (the log default).",
            "where AMFS_OTEL_DSN names that database. To send them to this one instead: amfs-otel drain --to DSN.",
        ),
    ],
)
def test_what_waits_for_another_store_names_it_and_its_command(
    one: ElsewhereFacts, level: str, store: str, step: str
) -> None:
    (found,) = causes_of(with_spool(elsewhere=(one,)))
    assert (found.code, found.level, found.message) == ("STRANDED", level, store)
    assert step in found.hint


def test_unsigned_traces_for_another_store_have_the_command_that_reaches_them() -> None:
    elsewhere = with_spool(elsewhere=(ElsewhereFacts(FAR, 1, ("default",)),))
    process = {**PROCESS, "unsigned": 4, "journal_left": True, "destination": FAR}
    found = {cause.code: cause.hint for cause in causes_of(replace(elsewhere, processes=(process,)))}
    assert found["STRANDED"] in found["UNSIGNED"]


@pytest.mark.parametrize(
    "code",
    ["SUPERUSER", "OWNER", "ROLES", "PARTS", "ROW_SECURITY", "INHERITANCE", "MIGRATIONS", "CHECKSUMS", "DURABILITY"],
)
def test_every_weakness_of_a_server_has_a_next_step(code: str) -> None:
    (found,) = causes_of(with_store(posture=(PostureFact(code, False, "not as it should be"),)))
    assert found.hint


@pytest.mark.parametrize(("unreachable", "step"), [(True, "Start the server"), (False, "user, password")])
def test_a_store_that_does_not_let_us_in_has_a_next_step(unreachable: bool, step: str) -> None:
    (found,) = causes_of(with_store(prepared=False, problem="no", unreachable=unreachable))
    assert step in found.hint
    assert "AMFS_OTEL_DSN" in found.hint


@pytest.mark.parametrize(
    ("role", "variable"), [("writer", "AMFS_OTEL_SIGNING_KEY_FILE"), ("log", "AMFS_OTEL_LOG_KEY_FILE")]
)
def test_a_key_file_that_is_missing_has_a_next_step(role: str, variable: str) -> None:
    keys = tuple(replace(key, kid=None, problem="gone") if key.role == role else key for key in HEALTHY.keys)
    (found,) = causes_of(replace(HEALTHY, keys=keys))
    assert variable in found.hint
