"""What other agents had learned about checkout-service before the story begins."""

# amfs ships without a type marker:
# pyright: reportUnknownMemberType=false

from amfs import AgentMemory


def main() -> None:
    """Write the retry pattern, which took three versions, and a risk that a load test found."""
    platform = AgentMemory(agent_id="platform-agent")
    for max_retries in (3, 4, 5):
        pattern = {"max_retries": max_retries, "backoff": "exponential", "jitter": True}
        platform.write("checkout-service", "retry-pattern", pattern, confidence=0.92)

    load_test = AgentMemory(agent_id="load-test-agent")
    risk = "Retries can charge a card twice when two workers pick up the same order"
    load_test.write("checkout-service", "risk-race-condition", risk, confidence=0.78)


if __name__ == "__main__":
    main()
