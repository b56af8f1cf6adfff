"""The choice of a reply depends on the request alone."""

import pytest

from amfs_otel.demo.script import SCENARIOS, Reply, Rule, model_and_scenario, reply_for

RULES = (
    Rule(says="parcel", turn=0, reply=Reply(text="first")),
    Rule(says="parcel", turn=1, reply=Reply(text="second")),
)


def request(*messages: tuple[str, object], model: str = "gpt-4o-mini") -> dict[str, object]:
    return {"model": model, "messages": [{"role": role, "content": content} for role, content in messages]}


def test_the_first_rule_that_fits_answers() -> None:
    assert reply_for(request(("user", "my parcel")), RULES).text == "first"


def test_a_rule_counts_the_answers_since_the_last_user_message() -> None:
    spoken = (("user", "my parcel"), ("assistant", None), ("tool", "in Leeds"))
    assert reply_for(request(*spoken), RULES).text == "second"
    assert reply_for(request(*spoken, ("user", "and now?")), RULES).text == "first"


def test_without_a_rule_the_last_message_is_echoed_also_from_parts() -> None:
    parts = [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert (reply_for(request(("user", parts)), RULES).text or "").rstrip() == "You said: hello"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_in_the_models_name_wins(name: str) -> None:
    assert reply_for(request(("user", "my parcel"), model=f"m+{name}"), RULES) is SCENARIOS[name]


def test_an_unknown_scenario_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        reply_for(request(("user", "x"), model="m+nonsense"), RULES)


def test_the_models_name_is_split_at_the_first_plus() -> None:
    assert model_and_scenario("gpt-4o-mini") == ("gpt-4o-mini", None)
    assert model_and_scenario("a+b+c") == ("a", "b+c")


def test_a_reply_finishes_as_the_provider_would_say() -> None:
    assert SCENARIOS["tools"].finish == "tool_calls"
    assert SCENARIOS["text-and-tools"].finish == "tool_calls"
    assert SCENARIOS["refusal"].finish == "stop"
    assert SCENARIOS["content-filter"].finish == "content_filter"
