"""langchain-core: agents' runs, model calls, tools and retrievers, heard through its public hook for callbacks.

Read: langchain-core 0.3.23, 1.8.3. `register_configure_hook` has langchain hand one handler of ours to every run
in the process, in whatever thread. Runs form a tree by their ids, so a step finds what it is a part of without any
context. What is an agent's run: a graph of langgraph, or the classic `AgentExecutor`; all other chains are transparent.
A model call is announced, because the client below may be instrumented, too.

Nothing is attached for runs and model calls, which may be generators; for tools and retrievals see `_langchain_runs`.
"""

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, cast
from uuid import UUID

from amfs_otel import capture, guard
from amfs_otel.capture import Deferred, Kind, Step
from amfs_otel.capture.streams import StreamExit
from amfs_otel_instrumentation._langchain_messages import (
    call_id_from_output,
    documents_from_result,
    reply_from_result,
    request_from_start,
    result_from_output,
)
from amfs_otel_instrumentation._langchain_runs import (
    SOURCE,
    Agent,
    Run,
    akeep,
    attach,
    begun,
    ended,
    keep,
    key_of,
    known,
    passed,
    taken_out,
)
from amfs_otel_instrumentation._langgraph_streams import generator_of

requires = "langchain-core >= 0.3.23, < 2"

GRAPHS = "langgraph"

_EXECUTOR = "AgentExecutor"
_UNNAMED_GRAPH = "LangGraph"
_HANDLING = ("langchain_core.callbacks", "amfs_otel")


# -- runs of agents ------------------------------------------------------------------------------------------------


def _chain_started(run_id: UUID, given: Mapping[str, Any]) -> None:
    graph, name = _graph(inspect.currentframe()), given.get("name")  # nothing that a handler is told says it
    if graph is None and name != _EXECUTOR:
        passed(run_id, given.get("parent_run_id"))
        return
    run = begun(run_id, given.get("parent_run_id"))
    source, metadata = SOURCE if graph is None else GRAPHS, _mapping(given, "metadata")
    begins = capture.run(source, _agent(name, metadata), _thread(metadata), inside=run.inside)
    run.agent, run.inside = Agent(begins, None if graph is None else generator_of(graph)), begins.step


def _mapping(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _graph(frame: Any) -> Any:
    """The frame of the graph of langgraph that starts the run, if it is one itself and not one of its nodes."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_HANDLING):
            return frame if module.startswith("langgraph.pregel") else None
        frame = frame.f_back
    return None


def _agent(name: Any, metadata: Mapping[str, Any]) -> str:
    """The agent's name; a graph that was given none has the one of the node that it is, else the program's."""
    for given in (name if name not in (_UNNAMED_GRAPH, _EXECUTOR) else None, metadata.get("langgraph_node")):
        if isinstance(given, str) and given:
            return given
    owner = capture.current()
    return owner.settings.default_agent if owner is not None else SOURCE


def _thread(metadata: Mapping[str, Any]) -> str | None:
    thread_id = metadata.get("thread_id")
    return str(thread_id) if type(thread_id) in (str, int) else capture.name(getattr(thread_id, "hex", None))


def _chain_ended(run_id: UUID, error: BaseException | None = None) -> None:
    run = ended(run_id)
    if run is None:
        return
    own = run.agent if run.key == key_of(run_id) else None
    interrupted = error is not None and _is_interrupt(error)
    if interrupted:
        outer = run.outer if own is not None else run.agent or run.outer
        if outer is not None:
            outer.paused = True
    if own is None:
        return
    if isinstance(error, GeneratorExit):
        # The collector may have thrown it in, wherever some thread happened to be.
        dropped = own.generator is not None and own.generator() is None
        _later(partial(_run_ended, own, None, left="abandoned" if dropped else "closed_early"))
    else:
        gone = error is None or _is_control_flow(error)
        _run_ended(own, None if gone else error, unfinished=interrupted)


def _run_ended(
    agent: Agent, error: BaseException | None, *, unfinished: bool = False, left: StreamExit | None = None
) -> None:
    for key, inner in list(agent.within.items()):
        taken_out(key)
        if inner.key == key:
            _left_open(inner, error)
    step = agent.run.step
    if step is not None and (unfinished or left is not None):
        step.event.status = "incomplete"
    agent.run.end(None if left is None else {"stream_exit": left}, error, paused=agent.paused)


def _left_open(run: Run, error: BaseException | None) -> None:
    """What had not ended when its agent's run did: it was cancelled, or nobody read on."""
    if run.step is not None:
        run.step.event.status = "incomplete"
        run.step.end()
    if run.call is not None:
        run.call.end({}, error)
    if run.agent is not None:
        _run_ended(run.agent, error, unfinished=error is None)


def _is_interrupt(error: BaseException) -> bool:
    """Whether a graph stops here for somebody's answer."""
    return _is_langgraph_error(error, "GraphInterrupt")


def _is_control_flow(error: BaseException) -> bool:
    """Whether it is how langgraph stops or leaves a node, not a failure."""
    return _is_langgraph_error(error, "GraphBubbleUp")


def _is_langgraph_error(error: BaseException, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__ == "langgraph.errors" for kind in type(error).__mro__)


def _later(function: Callable[[], None]) -> None:
    owner = capture.current()
    if owner is not None:
        owner.later(function)


# -- calls of models -----------------------------------------------------------------------------------------------


def _model_started(run_id: UUID, messages: Any, given: Mapping[str, Any]) -> None:
    run = begun(run_id, given.get("parent_run_id"))
    asked, params, metadata = list(messages), _mapping(given, "invocation_params"), _mapping(given, "metadata")

    def fields() -> dict[str, Any]:
        return request_from_start(asked, params, metadata, streamed=run.chunks > 0)

    run.call = capture.announce(SOURCE, fields, inside=run.inside)


def _chunk_came(run_id: UUID) -> None:
    run = known(run_id)
    if run is None or run.call is None:
        return
    run.chunks += 1
    if run.chunks == 1:
        run.call.hide()
        run.first_chunk_ns = run.call.elapsed()
        if not run.call.claimed:
            # The caller has the word now, and may change its messages before the stream has ended.
            asked: dict[str, Any] = run.call.fields()
            run.call.fields = lambda: asked


def _model_ended(run_id: UUID, result: Any, error: BaseException | None = None) -> None:
    run = ended(run_id)
    call = run.call if run is not None else None
    if run is None or call is None:
        return
    reply = {} if call.claimed or result is None else guard.run(SOURCE, reply_from_result, result) or {}
    if run.chunks:
        reply["chunks"] = run.chunks
        reply["time_to_first_chunk_ms"] = round(run.first_chunk_ns / 1e6, 3)
        reply["stream_exit"] = _exit(error)
    if isinstance(error, GeneratorExit):
        call.freeze()
        _later(partial(call.end, reply))
    else:
        call.end(reply, error)


def _exit(error: BaseException | None) -> str:
    if error is None:
        return "complete"
    if isinstance(error, GeneratorExit):
        return "closed_early"
    return "cancelled" if type(error).__name__ == "CancelledError" else "error"


# -- tools and retrievals ------------------------------------------------------------------------------------------


def _tool_started(run_id: UUID, about: Any, text: Any, given: Mapping[str, Any]) -> None:
    inputs = given.get("inputs")
    called = cast("dict[str, Any]", about).get("name") if isinstance(about, dict) else None
    fields = {
        "tool_name": capture.name(called or given.get("name") or "tool"),
        "call_id": capture.name(given.get("tool_call_id")),
        "tool_type": "function",
        "arguments": capture.snapshot(inputs) if inputs is not None else text,
    }
    _step_started(Kind.TOOL_CALL, run_id, given, fields)


def _tool_ended(run_id: UUID, output: Any) -> None:
    _step_ended(run_id, lambda step: _answer(output, step))


def _answer(output: Any, step: Step) -> dict[str, Any]:
    answer: dict[str, Any] = {"success": getattr(output, "status", None) != "error"}
    answer["result"] = Deferred(result_from_output, capture.snapshot(output))
    if step.event.fields.get("call_id") is None:
        answer["call_id"] = call_id_from_output(output)
    return answer


def _retrieval_started(run_id: UUID, query: Any, given: Mapping[str, Any]) -> None:
    fields = {"source_name": capture.name(given.get("name")), "query": capture.snapshot(query)}
    _step_started(Kind.RETRIEVAL, run_id, given, fields)


def _retrieval_ended(run_id: UUID, documents: Any) -> None:
    _step_ended(run_id, lambda _step: documents_from_result(documents))


def _step_ended(run_id: UUID, answer: Callable[[Step], dict[str, Any]]) -> None:
    """Ends the run's step with its `answer`; without one where that cannot be made."""
    run = ended(run_id)
    if run is not None and run.step is not None:
        run.step.end(guard.run(SOURCE, answer, run.step))


def _step_started(kind: Kind, run_id: UUID, given: Mapping[str, Any], fields: dict[str, Any]) -> None:
    run = begun(run_id, given.get("parent_run_id"))
    run.step = capture.begin(kind, SOURCE, fields, inside=run.inside)
    if run.step is not None:
        run.inside = run.step
        attach(run.step)


def _step_failed(run_id: UUID, error: BaseException) -> None:
    run = ended(run_id)
    if run is None or run.step is None:
        return
    if _is_control_flow(error):
        run.step.event.status = "incomplete" if _is_interrupt(error) else "ok"
        run.step.end()
    else:
        run.step.fail(error)


# -- the handler ---------------------------------------------------------------------------------------------------


class _Hearing:
    """Our half of the handler; langchain's `BaseCallbackHandler` is the other."""

    run_inline = True
    listening = False

    def __copy__(self) -> "_Hearing":
        return self

    def __deepcopy__(self, _memo: Any) -> "_Hearing":
        return self

    @property
    def ignore_chain(self) -> bool:
        """Whether langchain passes us by: while we are taken back, and where OpenTelemetry is suppressed."""
        return not self.listening or guard.is_off(SOURCE) or capture.active() is None

    ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = ignore_chain
    ignore_retry = ignore_custom_event = property(lambda _: True)

    # Whoever calls these may name their arguments; only those that we need are named here.

    def on_chain_start(self, *_: Any, run_id: UUID, **given: Any) -> None:
        guard.run(SOURCE, _chain_started, run_id, given)

    def on_chain_end(self, *_: Any, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _chain_ended, run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _chain_ended, run_id, error)

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **given: Any) -> None:  # noqa: ARG002
        guard.run(SOURCE, _model_started, run_id, messages[0] if messages else (), given)

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **given: Any) -> None:  # noqa: ARG002
        guard.run(SOURCE, _model_started, run_id, prompts, given)

    def on_llm_new_token(self, *_: Any, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _chunk_came, run_id)

    def on_stream_event(self, *_: Any, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _chunk_came, run_id)

    def on_llm_end(self, response: Any, *, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _model_ended, run_id, response)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **given: Any) -> None:
        guard.run(SOURCE, _model_ended, run_id, given.get("response"), error)

    def on_tool_start(self, serialized: Any, input_str: Any, *, run_id: UUID, **given: Any) -> None:
        guard.run(SOURCE, _tool_started, run_id, serialized, input_str, given)

    def on_tool_end(self, output: Any, *, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _tool_ended, run_id, output)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _step_failed, run_id, error)

    def on_retriever_start(self, serialized: Any, query: Any, *, run_id: UUID, **given: Any) -> None:  # noqa: ARG002
        guard.run(SOURCE, _retrieval_started, run_id, query, given)

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _retrieval_ended, run_id, documents)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **_given: Any) -> None:
        guard.run(SOURCE, _step_failed, run_id, error)


_handler: _Hearing | None = None


def listen() -> Callable[[], None]:
    """Has langchain hand our handler to every run; returns what makes the handler deaf again."""
    global _handler  # noqa: PLW0603  langchain knows no way to take a hook back, so there is one for ever
    if _handler is None:
        from langchain_core.callbacks.base import BaseCallbackHandler
        from langchain_core.tracers.context import register_configure_hook

        handler = type("AmfsOtelHandler", (_Hearing, BaseCallbackHandler), {})()
        # A default is there in every thread and task; a value that was set would be lost in most.
        register_configure_hook(ContextVar("amfs_otel_langchain", default=handler), inheritable=True)
        _handler = handler
    _handler.listening = True
    return partial(setattr, _handler, "listening", False)


hooks: dict[str, Callable[..., Any]] = {}
hooks_when_imported: dict[str, Callable[..., Any]] = {
    "langchain_core.tools.base:BaseTool.run": keep,
    "langchain_core.tools.base:BaseTool.arun": akeep,
    "langchain_core.language_models.chat_models:BaseChatModel.agenerate": akeep,
    "langchain_core.language_models.llms:BaseLLM.agenerate": akeep,
    "langchain_core.retrievers:BaseRetriever.invoke": keep,
    "langchain_core.retrievers:BaseRetriever.ainvoke": akeep,
}
