"""Which window an event falls into, and what closes it (architecture.md, "Life of a trace")."""

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from amfs_otel import api, capture
from amfs_otel.attach import RequestBoundaries
from amfs_otel.capture import Kind, Session
from amfs_otel.model import ClosedBy
from tests.support.capturing import Bench, capturing, resolved


@pytest.fixture
def bench() -> Iterator[Bench]:
    with capturing() as made:
        yield made


def llm(model: str) -> None:
    step = capture.begin(Kind.LLM_CALL, "openai", {"operation": "chat", "provider": "openai", "model": model})
    assert step is not None
    step.end({"input_tokens": 1, "output_tokens": 1})


def handle(agent: str = "deploy-agent", session_id: str = "sess-1") -> Session:
    return capture.handle_session("amfs", agent, session_id)


def read(memory: Session, key: str = "k") -> None:
    fields = {"operation": "read", "entity_path": "e", "key": key}
    step = capture.begin(Kind.MEMORY_READ, "amfs", fields, memory=memory)
    assert step is not None
    step.end({"found": True})


def commit(memory: Session | None = None, ref: str = "DEP-500") -> None:
    capture.commit("amfs", {"outcome_ref": ref, "outcome_type": "success"}, [], memory=memory)


def told(bench: Bench) -> list[tuple[str, str, list[str]]]:
    """(agent, closed by, what happened) of each trace, in the order of closing."""
    found = []
    for made in bench.traces():
        facts = resolved(made)
        if made.window.record_kind == "amendment":
            continue
        found.append((facts["agent"], facts["closed_by"], [_word(event) for event in facts["events"]]))
    return found


def _word(event: dict[str, Any]) -> str:
    return event.get("model") or event.get("key") or event.get("outcome_ref") or event["kind"]


def test_a_bare_loop_is_one_trace_with_one_root(bench: Bench) -> None:
    for model in ("a", "b", "c"):
        llm(model)
    assert told(bench) == [("program", "exit", ["a", "b", "c"])]
    roots = [span for span in bench.spans() if span.parent is None]
    assert [span.name for span in roots] == ["invoke_agent program"]
    assert {span.context.trace_id for span in bench.spans()} == {roots[0].context.trace_id}


def test_model_calls_before_the_first_memory_event_of_their_context_move_into_its_decision(bench: Bench) -> None:
    llm("before")
    memory = handle()
    read(memory)
    llm("after")
    commit(memory)
    llm("later")
    assert told(bench) == [
        ("deploy-agent", "commit", ["before", "k", "after", "DEP-500"]),
        ("program", "exit", ["later"]),
    ]
    roots = [span for span in bench.spans() if span.name.startswith("invoke_agent")]
    assert [span.name for span in roots] == ["invoke_agent deploy-agent", "invoke_agent program"]


def test_the_root_that_was_taken_over_names_the_record_that_took_it(bench: Bench) -> None:
    llm("before")
    read(handle())
    (made,) = bench.traces()
    (root,) = [span for span in bench.spans() if span.name == "invoke_agent deploy-agent"]
    assert root.attributes is not None
    assert root.attributes["amfs.record.id"] == made.window.record_id
    assert made.span_id == root.context.span_id


def test_a_pool_without_context_joins_the_only_decision(bench: Bench) -> None:
    memory = handle()
    read(memory)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(llm, ["p1", "p2", "p3"]))
    commit(memory)
    ((_, closed_by, happened),) = told(bench)
    assert closed_by == "commit"
    assert sorted(happened[1:4]) == ["p1", "p2", "p3"]
    events = resolved(bench.traces()[0])["events"]
    assert {event.get("flags") for event in events if event["kind"] == "llm_call"} == {"joined"}


def test_a_copied_context_is_the_same_context(bench: Bench) -> None:
    memory = handle()
    read(memory)
    read(handle("other"), "x")
    last_used = copy_context()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(last_used.run, llm, "in-pool").result()
    assert told(bench)[1] == ("other", "exit", ["x", "in-pool"])


def test_two_handles_in_one_thread_never_mix(bench: Bench) -> None:
    one, two = handle("one"), handle("two")
    for number in range(3):
        read(one, f"one-{number}")
        llm(f"for-one-{number}")
        read(two, f"two-{number}")
        llm(f"for-two-{number}")
    commit(two, "TWO")
    commit(one, "ONE")
    for agent, _, happened in told(bench):
        assert all(agent in word.lower() for word in happened)


def test_a_session_wins_over_memory_and_survives_a_commit(bench: Bench) -> None:
    memory = handle("memory-agent")
    with api.session(agent="outer", id="conversation-7"):
        read(memory)
        commit(memory, "FIRST")
        llm("second")
    assert told(bench) == [("outer", "commit", ["k", "FIRST"]), ("outer", "session_end", ["second"])]
    first, second = bench.traces()
    assert first.window.session == second.window.session
    assert first.window.session_id == "conversation-7"
    assert resolved(first)["events"][0]["agent"] == "memory-agent"


def test_an_empty_session_leaves_nothing(bench: Bench) -> None:
    with api.session(agent="idle"):
        pass
    assert told(bench) == []


def test_a_commit_on_an_empty_window_is_an_outcome_record_of_the_last_decision(bench: Bench) -> None:
    memory = handle()
    read(memory)
    bench.capture.windows.close_idle(0.0, 0.0)
    commit(memory)
    decision, outcome = bench.traces()
    assert decision.window.record_kind == "decision"
    assert outcome.window.record_kind == "outcome"
    assert outcome.window.refs == (("outcome_of", decision.window.record_id),)


def test_after_a_commit_the_next_one_names_no_decision(bench: Bench) -> None:
    memory = handle()
    read(memory)
    commit(memory, "DEP-500")
    commit(memory, "DEP-500")
    decision, outcome = bench.traces()
    assert (decision.window.record_kind, outcome.window.record_kind) == ("decision", "outcome")
    assert outcome.window.refs == ()


def test_a_run_is_the_window_root_and_its_commit_closes_at_its_end(bench: Bench) -> None:
    memory = handle("inner")
    run = capture.run("langgraph", "planner", "thread-9")
    read(memory)
    commit(memory, "R")
    llm("after-commit")
    run.end()
    ((agent, closed_by, happened),) = told(bench)
    assert (agent, closed_by) == ("planner", "commit")
    assert happened == ["agent_run", "k", "R", "after-commit"]
    (root,) = [span for span in bench.spans() if span.name == "invoke_agent planner"]
    assert bench.traces()[0].span_id == root.context.span_id


def test_a_second_memory_event_after_the_runs_commit_begins_a_new_decision(bench: Bench) -> None:
    memory = handle("inner")
    run = capture.run("langgraph", "planner", None)
    read(memory, "one")
    commit(memory, "ONE")
    read(memory, "two")
    run.end()
    assert [(closed, happened) for _, closed, happened in told(bench)] == [
        ("commit", ["agent_run", "one", "ONE"]),
        ("run_end", ["two"]),
    ]


def test_a_run_inside_a_decision_is_a_step_there(bench: Bench) -> None:
    memory = handle()
    read(memory)
    run = capture.run("langgraph", "helper", None)
    llm("inside")
    run.end()
    commit(memory)
    assert told(bench) == [("deploy-agent", "commit", ["k", "agent_run", "inside", "DEP-500"])]


def test_a_step_that_ends_after_its_window_becomes_an_amendment(bench: Bench) -> None:
    step = capture.begin(Kind.LLM_CALL, "openai", {"operation": "chat", "provider": "openai", "model": "slow"})
    assert step is not None
    bench.capture.windows.close_all(ClosedBy.CHECKPOINT)
    step.end({"output_tokens": 9})
    decision, amendment = bench.traces()
    assert resolved(decision)["status"] == "incomplete"
    facts = resolved(amendment)
    assert amendment.window.refs == (("amends", decision.window.record_id),)
    assert facts["step"] == resolved(decision)["events"][0]["id"]
    assert facts["event"]["output_tokens"] == 9


def test_a_window_with_a_step_in_flight_is_not_idle(bench: Bench) -> None:
    step = capture.begin(Kind.LLM_CALL, "openai", {"operation": "chat", "provider": "openai", "model": "slow"})
    assert step is not None
    bench.capture.windows.close_idle(0.0, 0.0)
    assert bench.traces(close=False) == []
    step.end({})
    bench.capture.windows.close_idle(0.0, 0.0)
    assert [trace.facts["closed_by"] for trace in bench.traces(close=False)] == ["idle"]


def test_a_checkpoint_is_continued_by_the_next_window(bench: Bench) -> None:
    with api.session(agent="long"):
        llm("one")
        api.checkpoint()
        llm("two")
    first, second = bench.traces()
    assert first.facts["closed_by"] == "checkpoint"
    assert second.window.refs == (("continues", first.window.record_id),)


def test_concurrent_requests_with_their_own_memory_never_mix(bench: Bench) -> None:
    async def request(number: int) -> None:
        llm(f"before-{number}")
        memory = handle(f"agent-{number}")
        await asyncio.sleep(0)
        read(memory, f"key-{number}")
        await asyncio.sleep(0)
        llm(f"after-{number}")
        commit(memory, f"REF-{number}")

    async def serve() -> None:
        await asyncio.gather(*(asyncio.create_task(request(number)) for number in range(5)))

    asyncio.run(serve())
    found = told(bench)
    assert len(found) == 5
    for agent, closed_by, happened in found:
        number = agent.removeprefix("agent-")
        assert closed_by == "commit"
        assert [word.rpartition("-")[2] for word in happened] == [number] * 4


def test_a_bare_request_is_a_trace_of_its_own_and_closes_with_its_span(bench: Bench) -> None:
    bench.provider.add_span_processor(RequestBoundaries())
    tracer = bench.provider.get_tracer("server")

    async def request(number: int) -> None:
        with tracer.start_as_current_span(f"GET /{number}", kind=SpanKind.SERVER):
            request_mark = capture.begin_request()
            llm(f"a-{number}")
            await asyncio.sleep(0)
            llm(f"b-{number}")
            capture.end_request(request_mark)

    async def serve() -> None:
        await asyncio.gather(*(asyncio.create_task(request(number)) for number in range(4)))

    asyncio.run(serve())
    assert sorted(happened for _, _, happened in told(bench)) == [[f"a-{n}", f"b-{n}"] for n in range(4)]
    assert {closed for _, closed, _ in told(bench)} == {"session_end"}


async def in_a_group(number: int) -> None:
    """Bare calls in the tasks of a group, each yielding to those of other groups between its two."""

    async def calls(name: str) -> None:
        llm(f"{name}-{number}-first")
        await asyncio.sleep(0)
        llm(f"{name}-{number}-second")

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b"):
            group.create_task(calls(name))


GROUP = ["a-{}-first", "b-{}-first", "a-{}-second", "b-{}-second"]


def test_a_task_group_is_a_part_of_its_session(bench: Bench) -> None:
    async def agent(number: int) -> None:
        with api.session(f"agent-{number}"):
            await in_a_group(number)

    async def agents() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(agent(number))

    asyncio.run(agents())
    expected = [(f"agent-{n}", "session_end", [name.format(n) for name in GROUP]) for n in range(4)]
    assert sorted(told(bench)) == expected


def test_a_task_group_is_a_part_of_its_request(bench: Bench) -> None:
    async def request(number: int) -> None:
        mark = capture.begin_request()
        await in_a_group(number)
        capture.end_request(mark)

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(request(number))

    asyncio.run(serve())
    found = sorted((closed, happened) for _, closed, happened in told(bench))
    assert found == [("session_end", [name.format(n) for name in GROUP]) for n in range(4)]


def test_a_failing_task_group_leaves_its_siblings_calls_in_the_session(bench: Bench) -> None:
    async def waits() -> None:
        step = capture.begin(Kind.LLM_CALL, "openai", {"operation": "chat", "provider": "openai", "model": "slow"})
        assert step is not None
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            step.fail(error)
            raise

    async def fails() -> None:
        llm("quick")
        raise LookupError("of the application")

    async def agent() -> None:
        with api.session("agent"):
            async with asyncio.TaskGroup() as group:
                group.create_task(waits())
                group.create_task(fails())

    with pytest.raises(ExceptionGroup):
        asyncio.run(agent())
    assert told(bench) == [("agent", "session_end", ["slow", "quick"])]


def test_a_request_after_the_last_use_of_a_handle_does_not_fall_into_its_decision(bench: Bench) -> None:
    memory = handle()
    read(memory)
    request = capture.begin_request()
    llm("of-the-request")
    capture.end_request(request)
    assert [happened for _, _, happened in told(bench)] == [["of-the-request"], ["k"]]


def test_claimed_baggage_joins_nothing_unless_trusted() -> None:
    from opentelemetry import baggage, context

    claimed = "ab" * 16
    token = context.attach(baggage.set_baggage("amfs.session.id", claimed))
    try:
        with capturing() as bench:
            llm("x")
            (made,) = bench.traces()
            assert made.window.session != claimed
            assert resolved(made)["claimed_session"] == claimed
        with capturing(trust_baggage=True) as bench:
            llm("x")
            (made,) = bench.traces()
            assert made.window.session == claimed
            assert made.window.opened_by == "remote"
    finally:
        context.detach(token)


def test_our_spans_hang_under_the_users_span(bench: Bench) -> None:
    tracer = bench.provider.get_tracer("app")
    with tracer.start_as_current_span("outer") as outer:
        llm("one")
        with tracer.start_as_current_span("inner") as inner:
            llm("two")
    bench.traces()
    by_name = {span.name: span for span in bench.spans()}
    root = by_name["invoke_agent program"]
    assert root.parent is not None
    assert root.parent.span_id == outer.get_span_context().span_id
    assert by_name["chat one"].parent.span_id == root.context.span_id
    assert by_name["chat two"].parent.span_id == inner.get_span_context().span_id


def test_nothing_keeps_a_closed_window_alive(bench: Bench) -> None:
    import weakref

    class Held:
        pass

    held = Held()
    seen = weakref.ref(held)
    capture.instant(Kind.CONTEXT, "amfs_otel", {"label": "x", "summary": held})
    bench.traces()
    bench.sink.messages.clear()
    del held
    gc.collect()
    assert seen() is None


def test_a_user_span_is_current_again_after_a_step(bench: Bench) -> None:
    before = trace.get_current_span()
    llm("x")
    assert trace.get_current_span() is before
