"""An agent that writes a summary for whoever takes over the service; no outcome is ever reported for it."""

# amfs ships without a type marker:
# pyright: reportUnknownMemberType=false

from amfs import AgentMemory
from openai import OpenAI

SERVICE = "checkout-service"


def main() -> None:
    """Read what is known about retries, have it summed up, and leave the summary in memory."""
    with AgentMemory(agent_id="onboard-agent") as mem:
        pattern = mem.read(SERVICE, "retry-pattern")
        trusted = mem.search(entity_path=SERVICE, min_confidence=0.5)
        task = f"Sum up retries in {SERVICE}: {pattern and pattern.value}, beside {len(trusted)} trusted notes."
        reply = OpenAI().chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": task}])
        summary = reply.choices[0].message.content
        mem.write(SERVICE, "task-summary-retry-review", summary)
        print(summary)


if __name__ == "__main__":
    main()
