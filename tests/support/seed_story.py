"""The seed's three agents as facts: what the capture would have seen of them."""

from tests.support.stories import T0, event, window

T0_US = T0 // 1000

ENTRY = "checkout-service/retry-pattern"


def read(key: str, confidence: float, version: int, at: float = 1.0, **fields) -> dict:
    return event(
        "memory_read",
        at,
        1.5,
        **{
            "operation": "read",
            "found": True,
            "entity_path": "checkout-service",
            "key": key,
            "version": version,
            "confidence": confidence,
            "memory_type": "fact",
            "written_by": "review-agent",
            "value": {"retries": 3},
        }
        | fields,
    )


def write(key: str, at: float = 5.0, **fields) -> dict:
    return event(
        "memory_write",
        at,
        2.0,
        **{
            "operation": "write",
            "entity_path": "checkout-service",
            "key": key,
            "version": 1,
            "created": True,
            "value": "text",
        }
        | fields,
    )


def context(label: str, summary: str, source: str | None, at: float = 3.0) -> dict:
    return event("context", at, 0.0, label=label, summary=summary, source_name=source)


def committed(ref: str, outcome_type: str, at: float = 9.0, **fields) -> dict:
    return event("outcome", at, 3.0, outcome_ref=ref, outcome_type=outcome_type, **fields)


def changed(key: str, before: float, after: float, direction: str, version: int = 3, at: float = 9.1, **fields) -> dict:
    return event(
        "confidence_change",
        at,
        0.0,
        **{
            "entity_path": "checkout-service",
            "key": key,
            "before": before,
            "after": after,
            "version_before": version,
            "version_after": version + 1,
            "direction": direction,
            "raced": False,
            "before_from": "read",
        }
        | fields,
    )


def deploy_agent() -> dict:
    return window(
        "deploy-agent",
        [
            read("retry-pattern", 0.92, 3, 1.0),
            read("risk-race-condition", 0.78, 1, 2.0),
            context("pagerduty-incidents", "3 SEV-1 incidents in last 24h", "PagerDuty API", 3.0),
            context("git-log", "15 commits since last deploy, 3 touching retry logic", "git", 4.0),
            write("decision-rollback-retry", 5.0, pattern_refs=["checkout-service/retry-pattern"], confidence=0.9),
            committed("DEP-500", "success", decision_summary="Deployed after verifying retry pattern"),
            changed("retry-pattern", 0.92, 0.937008, "raised"),
            changed("risk-race-condition", 0.78, 0.831418, "raised", version=1),
        ],
        session_id="sess-a1b2c3d4",
    )


def review_agent() -> dict:
    return window(
        "review-agent",
        [
            read("retry-pattern", 0.937, 4),
            context("sentry-errors", "Timeouts on checkout", "Sentry errors"),
            write("risk-timeout-regression"),
            committed("INC-1042", "critical_failure"),
            changed("retry-pattern", 0.937, 0.2756, "discredited", version=4),
        ],
        session_id="sess-e5f6a7b8",
        started_us=T0_US + 3600 * 10**6,
        ended_us=T0_US + 3660 * 10**6,
    )


def onboard_agent() -> dict:
    return window(
        "onboard-agent",
        [read("retry-pattern", 0.2756, 5), write("task-summary-retry-review")],
        session_id="sess-g7h8i9j0",
        closed_by="exit",
        started_us=T0_US + 7200 * 10**6,
        ended_us=T0_US + 7260 * 10**6,
    )
