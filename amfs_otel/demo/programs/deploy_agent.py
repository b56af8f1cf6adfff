"""An agent that decides whether to keep a deploy: it remembers, asks its model, looks around, decides, reports."""

# amfs ships without a type marker:
# pyright: reportUnknownMemberType=false

import json

from amfs import AgentMemory, MemoryType, OutcomeType
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

SERVICE = "checkout-service"


def open_incidents(service: str) -> str:
    """Count the open incidents of a service; a real agent would ask PagerDuty's API here."""
    incidents = [{"id": f"PD-{n}", "severity": "SEV-1", "service": service} for n in (71, 74, 78)]
    return f"{len(incidents)} SEV-1 incidents in last 24h"


def commits_since_deploy(service: str) -> str:
    """Count what changed since the last deploy; a real agent would run ``git log`` in the service's repository."""
    subjects = [f"{service}: retry budget {n}" for n in range(3)] + [f"{service}: tidy {n}" for n in range(12)]
    return f"{len(subjects)} commits since last deploy, {sum('retry' in s for s in subjects)} touching retry logic"


TOOLS = {"open_incidents": open_incidents, "commits_since_deploy": commits_since_deploy}


def described(name: str) -> ChatCompletionToolParam:
    """A tool as the model sees it."""
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {"service": {"type": "string"}},
        "required": ["service"],
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def decide(client: OpenAI, situation: str, mem: AgentMemory) -> str:
    """Let the model look around with the tools until it has decided."""
    sources = {"open_incidents": ("pagerduty-incidents", "PagerDuty API"), "commits_since_deploy": ("git-log", "git")}
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "You guard deploys. Look at incidents and changes before you decide."},
        {"role": "user", "content": situation},
    ]
    while True:
        reply = client.chat.completions.create(
            model="gpt-4o-mini", temperature=0.2, messages=messages, tools=[described(name) for name in TOOLS]
        )
        answer = reply.choices[0].message
        messages.append(answer.model_dump(exclude_none=True))  # type: ignore[arg-type]
        if not answer.tool_calls:
            return answer.content or ""
        for call in answer.tool_calls:
            if call.type != "function":
                continue
            found = TOOLS[call.function.name](**json.loads(call.function.arguments))
            label, source = sources[call.function.name]
            mem.record_context(label, found, source=source)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


def main() -> None:
    """Decide about the last deploy of checkout-service and say how it went."""
    with AgentMemory(agent_id="deploy-agent") as mem:
        pattern = mem.read(SERVICE, "retry-pattern")
        risk = mem.read(SERVICE, "risk-race-condition")
        known = f"Retry pattern: {pattern and pattern.value}. Known risk: {risk and risk.value}."
        decision = decide(OpenAI(), f"Keep the last deploy of {SERVICE}? {known}", mem)
        mem.write(
            SERVICE,
            "decision-rollback-retry",
            decision,
            confidence=0.9,
            memory_type=MemoryType.EXPERIENCE,
            pattern_refs=[f"{SERVICE}/retry-pattern"],
        )
        mem.commit_outcome("DEP-500", OutcomeType.SUCCESS, decision_summary="Rolled back; checkout is healthy again")
        print(decision)


if __name__ == "__main__":
    main()
