"""A job that comes a day later, in another process, and says how the decision behind DEP-500 held up."""

from amfs import AgentMemory, OutcomeType


def main() -> None:
    """Report the second outcome of DEP-500, naming the entry that carries the decision."""
    with AgentMemory(agent_id="deploy-agent") as mem:
        mem.commit_outcome(
            "DEP-500",
            OutcomeType.SUCCESS,
            causal_entry_keys=["checkout-service/decision-rollback-retry"],
            decision_summary="No SEV-1 in the 24h after the rollback",
        )
        print("DEP-500 held: no SEV-1 in the 24h after the rollback")


if __name__ == "__main__":
    main()
