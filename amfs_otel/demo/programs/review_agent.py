"""An agent that reviews a change while errors come in: a graph of langgraph, in which Claude, streamed, calls tools."""

# amfs ships without a type marker, and langgraph's graphs are generic over more than a small program says:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from typing import Any

from amfs import AgentMemory, OutcomeType
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

SERVICE = "checkout-service"


def tools_over(mem: AgentMemory) -> list[BaseTool]:
    """What the model may do: look around, and leave a risk in the team's memory."""

    @tool
    def known_risks(service: str) -> str:
        """Risks that the team knows of a service."""
        return "; ".join(f"{entry.key}: {entry.value}" for entry in mem.list(service) if entry.key.startswith("risk-"))

    @tool
    def sentry_errors(service: str, hours: int) -> str:
        """Errors of a service in the last hours."""
        # A real agent would ask Sentry's API here.
        errors = f"412 timeouts in {service} within {hours}h, first seen after the retry change"
        mem.record_context("sentry-errors", errors, source="Sentry errors")
        return errors

    @tool
    def note_risk(service: str, key: str, risk: str) -> str:
        """Leave a risk in the team's memory."""
        mem.write(service, key, risk, confidence=0.8)
        return f"noted as {service}/{key}"

    return [known_risks, sentry_errors, note_risk]


def reviewer(mem: AgentMemory) -> Any:
    """The graph: the model is asked, its tools answer, until it calls none."""
    tools = tools_over(mem)
    claude = ChatAnthropic(model="claude-sonnet-5", max_tokens=1024, streaming=True)  # pyright: ignore[reportCallIssue]
    model = claude.bind_tools(tools)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(name="review-agent")


def main() -> None:
    """Review the retry change, note the risk, and report the incident that came of it."""
    with AgentMemory(agent_id="review-agent") as mem:
        pattern = mem.read(SERVICE, "retry-pattern")
        question = f"Review the retry change of {SERVICE}. Pattern: {pattern and pattern.value}."
        reviewed = reviewer(mem).invoke({"messages": [("user", question)]})
        mem.commit_outcome(
            "INC-1042", OutcomeType.CRITICAL_FAILURE, decision_summary="Following the retry pattern caused timeouts"
        )
        print(reviewed["messages"][-1].text)


if __name__ == "__main__":
    main()
