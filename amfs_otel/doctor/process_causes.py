"""Status files → causes: what processes say of themselves.

A mistake that was corrected must not be told for ever. So a process that is over counts only until a newer one of the
same program says otherwise; what it left behind, dropped events and unsigned windows, counts as long as it is so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from amfs_otel.capture.foreign import instrumentor_of
from amfs_otel.doctor.cause import Cause
from amfs_otel.doctor.facts import Facts
from amfs_otel.doctor.stranded import draining_step

Process = Mapping[str, Any]
"""One of `Facts.processes`."""


def process_causes_of(facts: Facts) -> Iterator[Cause]:
    """Every cause that lies in a process."""
    if not facts.processes:
        yield Cause(
            "NOTHING_RECORDED",
            "warning",
            f"No process has recorded anything in {facts.spool.path} yet.",
            "amfs-otel run python agent.py. Agents with another user or AMFS_OTEL_STATE_DIR write elsewhere.",
        )
    current = current_processes(facts)
    told = set(facts.settings.problems)
    for one in current:
        yield from _settings(one, told)
        yield from _patches(one)
        yield from _owners(one)
        yield from _working(one)
    for one in facts.processes:
        yield from _left_behind(facts, one, superseded=one not in current)


def current_processes(facts: Facts) -> list[Process]:
    """The processes that say how things are now: those that run, and the newest of each program."""
    programs: set[tuple[str, str]] = set()
    found: list[Process] = []
    for one in facts.processes:
        program = (str(one.get("program")), str(cast("Process", one.get("origin") or {}).get("service")))
        if _runs(one) or program not in programs:
            found.append(one)
        programs.add(program)
    return found


def who(one: Process) -> str:
    """Which process it is: program, process id, age, and whether it still runs."""
    age = one.get("age_s")
    started = f"started {_span(float(age))} ago, " if age is not None else ""
    return f"{one.get('program')} (pid {one.get('pid')}, {started}{one.get('state')})"


def _runs(one: Process) -> bool:
    return one.get("state") == "running"


def _span(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(seconds, 0):.0f} seconds"


def _settings(one: Process, told: set[str]) -> Iterator[Cause]:
    """What the process could not use and the present settings do not have: it read them at its start."""
    for problem in _texts(one.get("problems")):
        if problem not in told:
            told.add(problem)
            if _runs(one):
                yield Cause("SETTING", "problem", f"{who(one)}: {problem}", "Correct it and start the program again.")
            else:
                yield Cause(
                    "SETTING", "warning", f"{who(one)}: {problem}", "Correct it where that program gets its settings."
                )


def _patches(one: Process) -> Iterator[Cause]:
    for patch in _mappings(one.get("patches")):
        name, state = f"{patch.get('name')} {patch.get('version') or ''}".strip(), patch.get("state")
        yield from _beside(patch)
        if state in ("conflict", "failed"):
            yield Cause(
                "NOT_PATCHED",
                "problem",
                f"{who(one)}: {name} was not instrumented: {patch.get('detail')}.",
                f"Update amfs-otel or {patch.get('name')}, and start the program again.",
            )
        elif state == "partial":
            missing = ", ".join(_texts(patch.get("missing")))
            yield Cause("PARTLY_PATCHED", "warning", f"{name} has no {missing}; the rest is captured.")
        elif state == "disabled":
            yield Cause("SWITCHED_OFF", "note", f"The patch of {name} is switched off by configuration.")


def _beside(patch: Process) -> Iterator[Cause]:
    """Who else has wrapped the methods of a library, before us or since."""
    wrapped: dict[str, list[str]] = {}
    for place, text in (("below", "foreign"), ("around", "foreign_over")):
        for method, _, owner in (told.partition(": ") for told in _texts(patch.get(text))):
            wrapped.setdefault(owner, []).append(f"{method} ({place} ours)")
    for owner, methods in wrapped.items():
        yield foreign_cause(f"{owner} has wrapped {', '.join(methods)}", str(patch.get("name")), owner)


def foreign_cause(what: str, library: str, module: str) -> Cause:
    """What it means that another instrumentor is there.

    Args:
        what: What is so, without a full stop.
        library: The library that both instrument.
        module: The other's module, or the name of its distribution with dots.
    """
    if instrumentor_of(module) is None:
        meaning, level = "each call makes two spans, as its spans are not known to us", "warning"
    else:
        meaning, level = "a call of which it makes a span has that one, with our record's id, and none of ours", "note"
    return Cause(
        "FOREIGN_INSTRUMENTOR",
        level,
        f"{what}: {meaning}.",
        "Decision traces are whole either way. To switch one off: "
        f"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS={library} (theirs) or amfs_{library} (ours).",
    )


def _owners(one: Process) -> Iterator[Cause]:
    """Whose spans stood for the calls of a process that has loaded instrumentors of others."""
    for library, operations in cast("dict[str, dict[str, dict[str, int]]]", one.get("span_owners") or {}).items():
        told = [
            f"{operation}: {', '.join(f'{scope} {calls}' for scope, calls in sorted(scopes.items()))}"
            for operation, scopes in sorted(operations.items())
        ]
        yield Cause("SPAN_OWNERS", "note", f"{who(one)}: spans of calls of {library}, by owner: {'; '.join(told)}.")


def _working(one: Process) -> Iterator[Cause]:
    patched = {patch.get("name") for patch in _mappings(one.get("patches"))}
    for name, errors in cast("Process", one.get("internal_errors") or {}).items():
        count, cause = errors.get("errors"), errors.get("cause")
        if errors.get("off") and name in patched:
            yield Cause(
                "PATCH_OFF",
                "problem",
                f"{who(one)}: the patch of {name} has switched itself off: {count} internal errors, the newest "
                f"{cause}. Nothing of {name} is captured there since.",
                "The agent was not affected. Please report it, update amfs-otel, and start the program again: "
                "then the patch is on again.",
            )
        else:
            yield Cause(
                "INTERNAL_ERROR",
                "warning",
                f"{who(one)}: {count} internal errors in {name}: {cause}.",
                "The agent was not affected; events may be missing. Please report it.",
            )
    if one.get("delivery_problem") and _runs(one):
        yield Cause(
            "DELIVERY_FAILS",
            "problem",
            f"{who(one)}: {one.get('delivery_problem')}",
            "It is tried again by itself, and traces wait in the spool meanwhile; if it stays, correct AMFS_OTEL_DSN "
            "and start the program again.",
        )


def _left_behind(facts: Facts, one: Process, *, superseded: bool) -> Iterator[Cause]:
    for cause, count in cast("Process", one.get("dropped") or {}).items():
        yield Cause(
            "DROPPED",
            "note" if superseded else "problem",
            f"{who(one)}: {count} events were dropped ({cause}); a gap record says so.",
        )
    if one.get("unsigned") and one.get("journal_left"):
        have_key = any(key.role == "writer" and key.kid is not None for key in facts.keys)
        yield Cause(
            "UNSIGNED",
            "warning" if have_key else "problem",
            f"{who(one)}: {one.get('unsigned')} traces wait unsigned in the spool.",
            f"A writer key is here now: a running program finds it within a minute. {_signing_step(facts, one)}"
            if have_key
            else f"Put the writer key at {facts.spool.path}/keys/{_key_file(facts)}, or name it with "
            "AMFS_OTEL_SIGNING_KEY_FILE; then amfs-otel drain.",
        )


def _key_file(facts: Facts) -> str:
    return "development-writer.key" if facts.store.local else "writer.key"


def _signing_step(facts: Facts, one: Process) -> str:
    """What signs the traces of a program that is over: draining, in the store that they were made for."""
    for other in facts.spool.elsewhere:
        if other.destination == one.get("destination"):
            return f"Of a program that is over they wait for another store (STRANDED): {draining_step(facts, other)}"
    return "Of a program that is over they are signed by: amfs-otel drain."


def _texts(value: object) -> Sequence[str]:
    return [str(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def _mappings(value: object) -> Sequence[Process]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Process", item) for item in items if isinstance(item, dict)]
