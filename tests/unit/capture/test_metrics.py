"""The client metrics: each one that the profile has, the legacy ones under the dual switch, and an agent run's counts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

from amfs_otel import capture, semconv
from amfs_otel.capture.steps import Step
from amfs_otel.capture.streams import StreamWatch, WatchedIterator
from amfs_otel.capture.usage import usage_from_anthropic
from amfs_otel.libraries import CONVENTIONS
from amfs_otel.model import Kind, RecordKind
from tests.support.capturing import Bench, capturing
from tests.support.every_kind import EVERY_KIND, Example
from tests.support.oracle import Rules, check_metrics, failures, reference
from tests.support.otlp_decode import Metric, metrics_from_request

NOT_OURS = {
    "gen_ai.server.request.duration": "the model's server measures it",
    "gen_ai.server.time_per_output_token": "the model's server measures it",
    "gen_ai.server.time_to_first_token": "the model's server measures it",
    "mcp.client.session.duration": "requests are captured, not the sessions in which they are made",
    "mcp.server.session.duration": "requests are captured, not the sessions in which they are made",
}
"""Metrics of the profile that we do not record, and why."""

NOT_OURS_BEFORE = {
    "gen_ai.workflow.duration": "no release had this name",
    "gen_ai.invoke_workflow.duration": "what runs here is an agent, and was one before",
}
"""Legacy metrics that we do not record, and why."""

MCP = {"tool_name": "look", "mcp_method": "tools/call", "protocol_version": "2025-06-18"}
OVER_MCP = (
    Example(Kind.TOOL_CALL, "mcp", {**MCP, "remote": True}, {"success": True}),
    Example(Kind.TOOL_CALL, "mcp", {**MCP, "served": True}, {"success": True}),
)


def begun(kind: Kind, **fields: object) -> Step:
    step = capture.begin(kind, "library", fields)
    assert step is not None
    return step


def asked() -> None:
    begun(Kind.LLM_CALL, operation="chat", provider="openai").end()


def streamed(bench: Bench) -> None:
    step = begun(Kind.LLM_CALL, operation="chat", provider="openai", stream=True)
    watch = StreamWatch(step, lambda _chunk: None, dict, bench.capture.metrics)
    assert list(WatchedIterator(iter("abc"), watch)) == ["a", "b", "c"]


def recorded(bench: Bench) -> dict[str, Metric]:
    data = bench.reader.get_metrics_data()
    return {} if data is None else {metric.name: metric for metric in metrics_from_request(encode_metrics(data))}


def everything(*, dual: bool) -> dict[str, Metric]:
    with capturing(semconv_dual=dual) as bench:
        for example in (*EVERY_KIND, *OVER_MCP):
            example.report()
        streamed(bench)
        return recorded(bench)


def of_the_profile() -> set[str]:
    names = {definition["name"] for definition in reference()["profiles"][semconv.PROFILE]["metrics"]}
    assert names >= NOT_OURS.keys()
    return names - NOT_OURS.keys()


def of_before() -> set[str]:
    """Legacy metrics; one that is legacy for some operations only stands there as `name@operations`."""
    legacy = reference()["legacy"]["metrics"].items()
    names = {name.partition("@")[0] for name, entry in legacy if semconv.PROFILE in entry["applies_to"]}
    assert names >= NOT_OURS_BEFORE.keys()
    return names - NOT_OURS_BEFORE.keys()


def operations(metric: Metric) -> set[str]:
    return {attributes["gen_ai.operation.name"] for attributes, _ in metric.points}


def test_each_client_metric_of_the_profile_is_recorded() -> None:
    found = everything(dual=False)
    assert found.keys() == of_the_profile()
    assert failures(check_metrics(found.values())) == []
    assert operations(found["gen_ai.client.operation.duration"]) == {"search_memory", "upsert_memory"}


def test_each_legacy_metric_is_recorded_under_the_dual_switch() -> None:
    found = everything(dual=True)
    assert found.keys() == of_the_profile() | of_before()
    assert failures(check_metrics(found.values(), Rules(dual=True))) == []
    measured = operations(found["gen_ai.client.operation.duration"])
    assert measured == {"search_memory", "upsert_memory", "chat", "embeddings"}


def test_no_metric_is_named_that_is_not_recorded() -> None:
    durations = [one for own in CONVENTIONS.values() for one in (own.duration, own.served_duration) if one is not None]
    named = {metric.name for metric in (*semconv.GEN_AI_METRICS, *durations)}
    assert named == everything(dual=True).keys()


# -- the calls of a run --------------------------------------------------------------------------------------------


@pytest.fixture
def bench() -> Iterator[Bench]:
    with capturing() as made:
        yield made


def counts(bench: Bench) -> dict[str, tuple[int, int]]:
    """(model calls, tool calls) of each agent's one run."""
    found: dict[str, list[int]] = {}
    for what in ("inference_calls", "tool_calls"):
        metric = recorded(bench).get(f"gen_ai.invoke_agent.{what}")
        for attributes, (runs, calls) in metric.points if metric is not None else ():
            assert runs == 1
            found.setdefault(attributes["gen_ai.agent.name"], []).append(calls)
    return {agent: (inference, tools) for agent, (inference, tools) in found.items()}


def test_a_run_counts_its_own_calls_and_not_those_of_a_run_inside(bench: Bench) -> None:
    planner = capture.run("framework", "planner", None)
    asked()
    tool = begun(Kind.TOOL_CALL, tool_name="ask-helper")
    helper = capture.run("framework", "helper", None, inside=tool)
    assert helper.step is not None
    token = helper.step.attach()
    for _ in range(3):
        asked()
    Step.detach(token)
    helper.end()
    tool.end()
    asked()
    planner.end()
    assert counts(bench) == {"planner": (2, 1), "helper": (3, 0)}


def test_a_tool_that_calls_a_server_is_one_tool_call(bench: Bench) -> None:
    run = capture.run("framework", "planner", None)
    tool = begun(Kind.TOOL_CALL, tool_name="look")
    token = tool.attach()
    for example in OVER_MCP:
        example.report()
    Step.detach(token)
    tool.end()
    for example in OVER_MCP:
        example.report()
    run.end()
    assert counts(bench) == {"planner": (0, 2)}


def test_no_call_of_a_thread_is_lost(bench: Bench) -> None:
    run = capture.run("framework", "planner", None)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(400):
            pool.submit(asked)
    run.end()
    assert counts(bench) == {"planner": (400, 0)}


def test_a_run_goes_on_after_its_window(bench: Bench) -> None:
    run = capture.run("framework", "planner", None)
    asked()
    bench.capture.checkpoint()
    asked()
    run.end()
    assert [trace.window.record_kind for trace in bench.traces()].count(RecordKind.DECISION) == 2
    assert counts(bench) == {"planner": (2, 0)}


def test_a_failed_call_was_made(bench: Bench) -> None:
    run = capture.run("framework", "planner", None)
    begun(Kind.LLM_CALL, operation="chat", provider="openai").fail(TimeoutError("late"))
    begun(Kind.TOOL_CALL, tool_name="look").fail(TimeoutError("late"))
    run.end(error=TimeoutError("late"))
    assert counts(bench) == {"planner": (1, 1)}


def test_calls_outside_of_a_run_are_no_runs(bench: Bench) -> None:
    asked()
    begun(Kind.TOOL_CALL, tool_name="look").end()
    assert not {name for name in recorded(bench) if name.startswith("gen_ai.invoke_agent.")}


# -- what a reply says ---------------------------------------------------------------------------------------------


def test_a_secret_in_the_models_name_is_masked_in_every_metric(bench: Bench) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    for kind, operation in ((Kind.LLM_CALL, "chat"), (Kind.EMBEDDINGS, "embeddings")):
        step = begun(kind, operation=operation, provider="openai", model=f"ft:gpt:{secret}")
        step.end({"response_model": f"ft:gpt:{secret}", "input_tokens": 3})
    shown = {
        attributes.get("gen_ai.response.model")
        for metric in recorded(bench).values()
        for attributes, _ in metric.points
    }
    assert shown == {"ft:gpt:[masked]"}
    assert secret not in str(bench.reader.get_metrics_data())


@pytest.mark.parametrize("count", [2**63, 2**63 - 1, 10**400])
def test_a_count_that_no_reply_has_spoils_no_metric(bench: Bench, count: int) -> None:
    """What the exporter cannot encode would be in every export from then on, and none would arrive."""
    told = {"input_tokens": count, "cache_read_input_tokens": count, "output_tokens": 7}
    usage = usage_from_anthropic(told)
    for _ in range(2):
        begun(Kind.LLM_CALL, operation="chat", provider="anthropic").end(usage.facts())
    found = recorded(bench)
    assert "gen_ai.client.inference.operation.input_tokens" not in found
    assert [point for _, point in found["gen_ai.client.inference.operation.output_tokens"].points] == [(2, 14)]
