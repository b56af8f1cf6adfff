"""What the bench says of its figures: verdicts, differences, profiles, and a page that hides nothing."""

from __future__ import annotations

import cProfile

import pytest

from tests.bench import remedies
from tests.bench.adapters import PEERS
from tests.bench.environments import pins
from tests.bench.processes import Cost, Process, Variant, WorkerError
from tests.bench.profiles import added, own_times
from tests.bench.report import Figure, Section, page


@pytest.mark.parametrize(
    ("value", "bar", "at_least", "verdict"),
    [
        (2.5, 2.5, False, "met"),
        (2.51, 2.5, False, "**missed**"),
        (0.8, 0.8, True, "met"),
        (0.79, 0.8, True, "**missed**"),
        (0.0, 0.0, False, "met"),
        (7.0, None, False, ""),
        (None, 2.5, False, "not measured"),
    ],
)
def test_a_figure_is_judged_by_its_bar(value: float | None, bar: float | None, at_least: bool, verdict: str) -> None:
    assert Figure("what", value, "ms", bar, at_least).verdict == verdict


def test_the_page_names_what_missed_its_bar_why_and_what_could_not_be_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remedies, "REMEDIES", {"ch": "Of all that begin so.", "chat": "Less work."})
    slow, failed = (
        Section("Calls", [Figure("chat", 3.0, "ms", 2.5), Figure("other", 1.0, "ms", 0.5)]),
        Section("Memory", remarks=["**Not measured**: x"]),
    )

    text = page([slow, failed], names=["calls", "memory"], quick=False, load=(0.0, 0.0))

    assert "Of 2 bars 0 are met, these are missed, each with what would have to change:\n\n" in text
    assert "- chat (3.00 ms, bar ≤ 2.50 ms). Less work.\n" in text
    assert "- other (1.00 ms, bar ≤ 0.50 ms). What would have to change has not been looked for.\n" in text
    assert "| chat | 3.00 ms | ≤ 2.50 ms | **missed** |  |" in text
    assert "**Not measured**: x" in text


def test_what_a_call_costs_is_the_difference_within_each_round() -> None:
    """A machine that turns slow in the second round changes both sides, and not the difference."""
    bare, ours = Cost([1.0, 9.0, 1.2], [40.0] * 3), Cost([3.0, 11.0, 3.2], [40.0] * 3)

    assert ours.over(bare) == pytest.approx(2.0)


def test_a_profile_gives_builtin_functions_to_their_callers_and_leaves_out_what_is_there_without_us() -> None:
    def inner() -> list[int]:
        return sorted(range(500))

    def outer() -> None:
        for _ in range(3):
            inner()

    profiler = cProfile.Profile()
    profiler.enable()
    outer()
    outer()
    profiler.disable()

    functions = own_times(profiler.getstats(), calls=2)
    (name,) = (name for name in functions if name.endswith("inner"))
    assert functions[name][0] == 3.0
    assert not any("sorted" in one for one in functions)
    assert list(added({"a": (1, 50.0), "b": (1, 90.0), "c": (2, 10.0)}, {"c": (2, 10.0), "b": (1, 10.0)})) == ["b", "a"]


def test_a_worker_that_cannot_do_what_it_is_asked_says_why_and_goes_on() -> None:
    with Process(Variant("none")) as process:
        with pytest.raises(WorkerError, match="KeyError: 'no such workload'"):
            process.ask("batch", workload="no such workload", calls=1)

        answer = process.ask("batch", workload="chat", calls=2)

    assert answer["call"] > 0
    assert answer["floor"] > 0


@pytest.mark.parametrize(
    ("environment", "patched"), [({}, True), ({"AMFS_OTEL_DISABLED": "true"}, False)], ids=["suppressed", "disabled"]
)
def test_what_a_patch_alone_costs_is_told_with_whether_there_is_one(environment: dict[str, str], patched: bool) -> None:
    with Process(Variant("amfs_otel", ("--suppressed",), environment)) as process:
        answer = process.ask("patch", workload="chat", calls=20)

    assert answer["patched"] is patched


def test_an_interpreter_that_is_no_worker_ends_with_an_error_and_not_with_a_wait() -> None:
    with pytest.raises(WorkerError, match="the worker none ended"):
        Process(Variant("none", ("--library", "cobol")))


@pytest.mark.parametrize("name", list(PEERS))
def test_every_peer_is_pinned(name: str) -> None:
    assert pins(name)
