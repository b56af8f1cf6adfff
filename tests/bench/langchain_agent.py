"""A langgraph agent with a model that follows a script: eleven model calls and ten tool calls, no HTTP, no SDK."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from tests.bench.traffic import ANSWER, MODEL, QUESTION, SYSTEM

TOOL_CALLS = 10
STEPS = 2 * TOOL_CALLS + 1
_USAGE: Any = {"input_tokens": 161, "output_tokens": 74, "total_tokens": 235}


class Scripted(BaseChatModel):
    """Asks for the tool until it was called ten times, then answers."""

    model_name: str = MODEL

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        done = sum(message.type == "tool" for message in messages)
        reason = "tool_calls" if done < TOOL_CALLS else "stop"
        calls: Any = [{"id": f"call_{done}", "name": "find_order", "args": {"number": str(73155 + done)}}]
        message = AIMessage(
            content="Let me look that up." if done < TOOL_CALLS else ANSWER,
            tool_calls=calls if done < TOOL_CALLS else [],
            usage_metadata=_USAGE,
            response_metadata={"model_name": MODEL, "finish_reason": reason},
        )
        return ChatResult(generations=[ChatGeneration(message=message)], llm_output={"model_name": MODEL})


@tool
def find_order(number: str) -> str:
    """Find an order."""
    return f"Order {number} left our store and is with the carrier."


def run_once(agent: Any) -> None:
    """Has the agent answer one question."""
    agent.invoke({"messages": [{"role": "user", "content": QUESTION}]}, config={"recursion_limit": 60})


def made() -> Any:
    """The agent: two nodes that take turns, as langchain's `create_agent` lays them out, and one run for each of them."""
    model, said_first = Scripted().bind_tools([find_order]), SystemMessage(SYSTEM)

    def ask(state: MessagesState) -> Command[Any]:
        reply = model.invoke([said_first, *state["messages"]])
        return Command(update={"messages": [reply]}, goto="tools" if reply.tool_calls else END)

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask, destinations=("tools", END))
    graph.add_node("tools", ToolNode([find_order]))
    graph.add_edge(START, "model")
    graph.add_edge("tools", "model")
    return graph.compile(name="order-agent")
