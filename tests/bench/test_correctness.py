"""What a program sees of openai and anthropic is the same with us: all checks of the bench, content off and on."""

from __future__ import annotations

import importlib
from functools import cache

import pytest

from tests.bench.adapters import SDKS
from tests.bench.checking import Outcome
from tests.bench.correctness import COUNTS, outcomes, spans_right

RUNS = [(sdk, content, False) for sdk in SDKS for content in (False, True)] + [("anthropic", False, True)]
NAMES = {
    (sdk, content, native): f"{sdk}, content {'on' if content else 'off'}{', its own spans' * native}"
    for sdk, content, native in RUNS
}


@cache
def found(adapter: str, sdk: str, content: bool, native: bool) -> dict[str, Outcome]:
    """What every check of a run showed; run once."""
    return {one.check: one for one in outcomes(adapter, sdk, content=content, native=native)}


def checks_of(sdk: str) -> list[str]:
    return [check.name for check in importlib.import_module(f"tests.bench.checks.{sdk}_checks").CHECKS]


@pytest.mark.parametrize(
    ("run", "check"),
    [pytest.param(run, check, id=f"{NAMES[run]}: {check}") for run in RUNS for check in checks_of(run[0])],
)
def test_a_program_sees_what_it_saw_without_us(run: tuple[str, bool, bool], check: str) -> None:
    outcome = found("amfs_otel", *run)[check]

    assert outcome.error == ""
    assert outcome.logged == []
    assert outcome.clean, "a span is still current"
    assert spans_right(outcome), outcome


@pytest.mark.parametrize("run", RUNS, ids=list(NAMES.values()))
def test_every_span_ends_exactly_once(run: tuple[str, bool, bool]) -> None:
    end = found("amfs_otel", *run)["the end of the process"]

    assert (end.lost, end.twice, end.logged) == ([], [], [])
    assert end.ended == end.expected > COUNTS[run[0]] - 3, "all spans of the process, those of agent runs among them"


@pytest.mark.parametrize("sdk", SDKS)
def test_every_check_holds_without_an_instrumentation_and_sees_no_span(sdk: str) -> None:
    """Otherwise a check would blame whoever is loaded for what the SDK does."""
    *bare, end = found("none", sdk, False, False).values()

    assert len(bare) == COUNTS[sdk]
    assert [(one.check, one.error) for one in bare if one.error] == []
    assert sum(one.ended for one in bare) == end.ended == 0
