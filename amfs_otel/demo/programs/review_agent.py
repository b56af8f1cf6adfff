"""An agent that reviews a change while errors come in; its model streams, tool call and all."""

# amfs ships without a type marker:
# pyright: reportUnknownMemberType=false

import json

from amfs import AgentMemory, OutcomeType
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

SERVICE = "checkout-service"

SENTRY_TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "sentry_errors",
        "description": "Errors of a service in the last hours.",
        "parameters": {
            "type": "object",
            "properties": {"service": {"type": "string"}, "hours": {"type": "integer"}},
            "required": ["service", "hours"],
        },
    },
}


def sentry_errors(service: str, hours: int) -> str:
    """Sum up a service's errors; a real agent would ask Sentry's API here."""
    return f"412 timeouts in {service} within {hours}h, first seen after the retry change"


def stream(client: OpenAI, messages: list[ChatCompletionMessageParam]) -> tuple[str, str, str]:
    """One streamed answer: its text, and the id and arguments of the call it makes, if any."""
    text, call_id, arguments = "", "", ""
    chunks = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=messages,
        tools=[SENTRY_TOOL],
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                call_id = call.id or call_id
                arguments += (call.function.arguments if call.function else None) or ""
    return text, call_id, arguments


def review(client: OpenAI, question: str, mem: AgentMemory) -> str:
    """Let the model look at the errors once, then hear its verdict."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    verdict, call_id, arguments = stream(client, messages)
    if call_id:
        errors = sentry_errors(**json.loads(arguments))
        mem.record_context("sentry-errors", errors, source="Sentry errors")
        call = {"id": call_id, "type": "function", "function": {"name": "sentry_errors", "arguments": arguments}}
        messages.append({"role": "assistant", "tool_calls": [call]})  # type: ignore[list-item]
        messages.append({"role": "tool", "tool_call_id": call_id, "content": errors})
        verdict, _, _ = stream(client, messages)
    return verdict


def main() -> None:
    """Review the retry change, note the risk, and report the incident that came of it."""
    with AgentMemory(agent_id="review-agent") as mem:
        pattern = mem.read(SERVICE, "retry-pattern")
        question = f"Review the retry change of {SERVICE}. Pattern: {pattern and pattern.value}."
        verdict = review(OpenAI(), question, mem)
        mem.write(SERVICE, "risk-timeout-regression", verdict, confidence=0.8)
        mem.commit_outcome(
            "INC-1042", OutcomeType.CRITICAL_FAILURE, decision_summary="Following the retry pattern caused timeouts"
        )
        print(verdict)


if __name__ == "__main__":
    main()
