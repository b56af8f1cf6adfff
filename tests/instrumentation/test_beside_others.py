"""Beside the instrumentors of others, loaded before ours or after: one event and one set of counts for a call.

Nobody's spans are lost: theirs are compared with those that they make without us. They run in an environment of their
own, because they pin what the development environment must not be bound to.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from amfs_otel.doctor.process_causes import foreign_cause
from tests.instrumentation.beside_others_program import MANY, Case
from tests.support.environments import ROOT, python_of

pytestmark = pytest.mark.timeout(600)  # the first test waits for the calls of all

FAMILIES = {
    "genai": "opentelemetry.instrumentation.genai",
    "openinference": "openinference.instrumentation",
    "openllmetry": "opentelemetry.instrumentation",
}
"""Whose instrumentors → the package that holds one for each library."""
CLASSES = {"openai": "OpenAIInstrumentor", "anthropic": "AnthropicInstrumentor", "langchain": "LangChainInstrumentor"}
CLASSES_OF_OPENLLMETRY = {**CLASSES, "langchain": "LangchainInstrumentor"}
ORDERS = ("theirs first", "ours first")
SETS: tuple[tuple[str, ...], ...] = (*((name,) for name in FAMILIES), tuple(FAMILIES))
NATIVE = "com.anthropic.sdk.python"
"""The scope of the spans that the SDK itself makes, which give way to whichever stands for the call."""


def instrumentor_of(family: str, library: str) -> str:
    """The "module:class" of an instrumentor."""
    classes = CLASSES_OF_OPENLLMETRY if family == "openllmetry" else CLASSES
    return f"{FAMILIES[family]}.{library}:{classes[library]}"


def case_of(order: str, library: str, families: tuple[str, ...], **more: Any) -> Case:
    """The case of the calls of a library; with content and without, where that is not said."""
    contents = ["NO_CONTENT"] if order == "theirs alone" or len(families) > 1 else ["NO_CONTENT", "SPAN_ONLY"]
    others = [instrumentor_of(family, library) for family in families]
    return Case(order, library, others, **{"contents": contents, **more})


def both_of(order: str) -> Case:
    """OpenInference's instrumentors of langchain and of the client below it."""
    return Case(order, "langchain", [instrumentor_of("openinference", library) for library in ("langchain", "openai")])


CASES = [
    *(case_of(order, library, families) for order in (*ORDERS, "theirs alone") for library in CLASSES for families in SETS),
    *(case_of(order, "langchain", (family,), ours=["langchain"]) for order in ORDERS for family in FAMILIES),
    *(case_of("ours first", "openai", (family,), contents=["NO_CONTENT"], elsewhere=True) for family in FAMILIES),
    *(both_of(order) for order in ORDERS),
]  # fmt: skip


def run(cases: list[Case]) -> Iterator[dict[str, Any]]:
    """What the calls of each case leave."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "instrumentation")]),
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    }
    program = ROOT / "tests" / "instrumentation" / "beside_others_program.py"
    done = subprocess.run(
        [python_of("beside-others"), program, json.dumps([asdict(case) for case in cases])],
        capture_output=True, text=True, timeout=600, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return map(json.loads, done.stdout.splitlines())


LeftBy = Callable[[Case], dict[str, Any]]


@pytest.fixture(scope="module")
def left_by() -> LeftBy:
    """What one of `CASES` leaves; all of them run together, once."""
    found = {repr(case): left for case, left in zip(CASES, run(CASES), strict=True)}
    return lambda case: found[repr(case)]


def theirs_in(call: dict[str, Any]) -> list[tuple[str, ...]]:
    """The spans of others that a call leaves, without what differs from one run to the next."""
    found = [span for span in call["spans"] if span["scope"] not in ("amfs_otel", NATIVE)]
    return sorted((span["scope"], span["name"], str(span["usage"]), str(span["error"])) for span in found)


def models_of_ours(call: dict[str, Any]) -> list[str]:
    """The names of our spans of model calls."""
    found = [span["name"] for span in call["spans"] if span["scope"] == "amfs_otel"]
    return [name for name in found if not name.startswith("invoke_agent")]


def assert_one_event(call: dict[str, Any], source: str, *, told: bool = True) -> None:
    """A call is one event, which bears the ids of a span of theirs, and that (`told`) the record's."""
    assert len(call["events"]) == (MANY if call["call"].startswith("many") else 1)
    assert len({tuple(event["ids"]) for event in call["events"]}) == len(call["events"])
    wanted = {"error": ("error", None), "embeddings": ("ok", 1)}.get(call["call"], ("ok", 143))
    for event in call["events"]:
        assert (event["source"], event["status"], event["input_tokens"]) == (source, *wanted)
        (named,) = [span for span in call["spans"] if span["ids"] == event["ids"]]
        assert named["scope"] != "amfs_otel"
        assert named["response"] in (None, event["response_id"])
        assert not told or named["record"] == event["record"]


@pytest.mark.parametrize("families", SETS, ids="+".join)
@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_call_is_one_event_and_theirs_is_its_span(
    left_by: LeftBy, order: str, library: str, families: tuple[str, ...]
) -> None:
    found = left_by(case_of(order, library, families))
    alone = {call["call"]: theirs_in(call) for call in left_by(case_of("theirs alone", library, families))["calls"]}
    assert (found["errors"], found["states"][library]["state"]) == ({}, "patched")
    for call in found["calls"]:
        assert_one_event(call, "anthropic" if library == "anthropic" else "openai")
        assert models_of_ours(call) == []
        assert theirs_in(call) == alone[call["call"]]
        assert len(call["spans"]) == len(theirs_in(call)) + call["records"]


@pytest.mark.parametrize("families", SETS, ids="+".join)
@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.parametrize("order", ORDERS)
def test_each_token_is_counted_by_one_metric(
    left_by: LeftBy, order: str, library: str, families: tuple[str, ...]
) -> None:
    found = left_by(case_of(order, library, families))
    read = sum(event["input_tokens"] or 0 for call in found["calls"] for event in call["events"])
    theirs = {key: tokens for key, tokens in found["counted"].items() if key.endswith(" gen_ai.client.token.usage")}
    ours = found["counted"].get("amfs_otel gen_ai.client.inference.usage.input_tokens", 0)
    embedded = sum(
        event["input_tokens"] for call in found["calls"] if call["call"] == "embeddings" for event in call["events"]
    )
    if families == ("openinference",):
        assert (theirs, ours) == ({}, read - embedded)
    else:
        assert len(theirs) == len(set(families) - {"openinference"})
        counted = next(iter(theirs.values()))
        assert ours + counted == read or ("genai" in families and (counted, ours) == (read, 0))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_frameworks_own_account_of_a_call_has_their_span_too(left_by: LeftBy, order: str, family: str) -> None:
    found = left_by(case_of(order, "langchain", (family,), ours=["langchain"]))
    for call in found["calls"]:
        assert_one_event(call, "langchain", told=False)  # it is made when their span has ended
        assert models_of_ours(call) == []


@pytest.mark.parametrize("order", ORDERS)
def test_of_two_of_theirs_that_of_the_client_is_named(left_by: LeftBy, order: str) -> None:
    for call in left_by(both_of(order))["calls"]:
        assert_one_event(call, "openai")
        assert models_of_ours(call) == []
        scopes = {tuple(span["ids"]): span["scope"] for span in call["spans"]}
        assert {scopes[tuple(event["ids"])] for event in call["events"]} == {"openinference.instrumentation.openai"}


@pytest.mark.parametrize("family", FAMILIES)
def test_spans_that_go_elsewhere_stand_for_none_of_ours(left_by: LeftBy, family: str) -> None:
    found = left_by(case_of("ours first", "openai", (family,), contents=["NO_CONTENT"], elsewhere=True))
    for call in found["calls"]:
        assert len(models_of_ours(call)) == len(call["events"])
        for event in call["events"]:
            assert [span["scope"] for span in call["spans"] if span["ids"] == event["ids"]] == ["amfs_otel"]
        assert not [span for span in call["spans"] if span["scope"] != "amfs_otel" and span["record"] is not None]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.parametrize("order", ORDERS)
def test_whose_spans_stand_for_the_calls_is_told(left_by: LeftBy, order: str, library: str, family: str) -> None:
    for call in left_by(case_of(order, library, (family,)))["calls"]:
        ((operations),) = call["owners"].values()
        ((scopes),) = operations.values()
        assert [scope.startswith(f"{FAMILIES[family]}.{library}") for scope in scopes] == [True]
        assert list(scopes.values()) == [len(call["events"])]


@pytest.mark.parametrize("family", ["genai", "openllmetry"])
def test_who_wrapped_a_method_is_told_whoever_was_first(left_by: LeftBy, family: str) -> None:
    owner = f"{FAMILIES[family]}.openai"
    for order, place, other in (("theirs first", "foreign", "foreign_over"), ("ours first", "foreign_over", "foreign")):
        state = left_by(case_of(order, "openai", (family,)))["states"]["openai"]
        named = dict(line.split(": ") for line in state[place])
        assert named["Completions.create"].startswith(owner)
        assert state[other] == []
        assert foreign_cause("It has wrapped it", "openai", named["Completions.create"]).level == "note"
