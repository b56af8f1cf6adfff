"""The answers for people."""

import io

from rich.console import Console

from amfs_otel.graph.explain import explanation
from amfs_otel.graph.listing import ListFilter, fits, list_row
from amfs_otel.graph.render import explain_text, list_table, show_text, tree_text
from amfs_otel.graph.showing import shown_record
from amfs_otel.graph.texts import shown_ref
from amfs_otel.graph.tree import branch, tree, tree_lines
from tests.support.seed_story import ENTRY, changed, committed, deploy_agent, onboard_agent, read
from tests.support.stories import event, window, writer

TOOL = event(
    "tool_call", 6.0, 1500.0, tool_name="look_up", call_id="c", arguments={"a": 1}, result="x", observed="call"
)


def printed(answer, terminal=False, width=1000) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, color_system="standard" if terminal else None).print(answer)
    return out.getvalue()


def piped(answer) -> str:
    """As the CLI prints into a pipe."""
    out = io.StringIO()
    Console(file=out, width=40, soft_wrap=True).print(answer)
    return out.getvalue()


def lines(answer, width=1000) -> list[str]:
    return [line.rstrip() for line in printed(answer, width=width).splitlines()]


def story(**options):
    facts = deploy_agent()
    facts["events"].append(TOOL)
    return writer(options.pop("ledger", "decision")).document(facts, **options)


def test_the_four_blocks_name_their_steps():
    text = lines(explain_text(explanation(story(), outcomes=[])))
    assert text[0] == "DEP-500  success"
    assert "deploy-agent (sess-a1b2)" in text[1]
    assert [line for line in text if line in ("Knew", "Consulted", "Decided", "Happened")] == [
        "Knew",
        "Consulted",
        "Decided",
        "Happened",
    ]
    for line in (
        '   1  checkout-service/retry-pattern v3, confidence 0.92, by review-agent: {"retries": 3}',
        "   3  PagerDuty API: 3 SEV-1 incidents in last 24h",
        "   4  git log: 15 commits since last deploy, 3 touching retry logic",
        "   5  wrote checkout-service/decision-rollback-retry v1, confidence 0.9: text",
        "   7  checkout-service/retry-pattern confidence 0.92 → 0.937 raised",
    ):
        assert line in text


def test_withheld_text_is_said_in_place_and_its_rule_and_setting_once_at_the_end():
    for text in (
        lines(explain_text(explanation(story(), outcomes=[]))),
        lines(show_text(shown_record(story()))),
    ):
        assert sum(line.count("bytes not kept¹]") for line in text) == 2
        assert text[-2:] == [
            "",
            '¹ message texts are not kept under the policy "decision"; AMFS_OTEL_LEDGER_CONTENT=all keeps them from now on',
        ]


def test_each_rule_has_its_own_note():
    text = lines(explain_text(explanation(story(ledger="none"), outcomes=[])))
    assert [line[:2] for line in text[-2:]] == ["¹ ", "² "]
    assert any("bytes not kept²]" in line for line in text)


def test_kept_message_texts_are_said_to_be_in_show():
    document = story(ledger="all")
    text = printed(explain_text(explanation(document, outcomes=[])))
    assert f"message texts kept: 2; they are in: amfs-otel show {document.record_id[-8:]}" in text
    assert "message texts kept" not in printed(explain_text(explanation(story(), outcomes=[])))


def test_a_trace_without_an_outcome_names_its_record_once():
    document = writer().document(onboard_agent() | {"status": "interrupted", "closed_by": "interrupted"})
    text = printed(explain_text(explanation(document, outcomes=[])))
    assert text.count(f"record …{document.record_id[-8:]}") == 1
    assert text.count("interrupted") == 1


def test_an_error_is_said_on_the_line_of_its_step():
    failed = event(
        "tool_call", 1.0, 2.0, tool_name="pay", status="error", success=False, error_type="X", error_message="no"
    )
    alone = event("error", 2.0, 0.0, status="error", error_type="Y")
    document = writer("all").document(window("a", [failed, alone, event("memory_read", 3.0, 1.0, status="error")]))
    text = lines(explain_text(explanation(document, outcomes=[])))
    assert "   1  tool pay, 2 ms, failed: X: no" in text
    assert "   2  error: Y" in text
    assert "   3  error in memory_read: unknown type" in text
    assert sum(line.startswith("   1") for line in text) == 1


def test_a_failure_without_a_message_names_only_its_type():
    stopped = event("llm_call", 1.0, 2.0, status="error", error_type="KeyboardInterrupt", error_message="")
    for ledger in ("none", "all"):
        document = writer(ledger).document(window("a", [stopped | {"model": "m"}]))
        assert "   1  model m, 2 ms, failed: KeyboardInterrupt" in lines(
            explain_text(explanation(document, outcomes=[]))
        )
        assert "0 bytes" not in printed(show_text(shown_record(document)))
    assert "      error_message: [empty]" in lines(
        show_text(shown_record(writer("none").document(window("a", [stopped]))))
    )


def test_a_step_that_did_not_come_to_its_end_says_so():
    killed = event("llm_call", 1.0, model="m", status="incomplete")
    left = event("llm_call", 2.0, 38.7, model="m", stream=True, stream_exit="closed_early")
    tool = event("tool_call", 3.0, tool_name="pay", status="incomplete")
    whole = event("llm_call", 4.0, 5.0, model="m")
    text = lines(explain_text(explanation(writer().document(window("a", [killed, left, tool, whole])), outcomes=[])))
    assert "   1  model m, did not end" in text
    assert "   2  model m, 38.7 ms, left early" in text
    assert "   3  tool pay, did not end" in text
    assert "   4  model m, 5 ms" in text


def test_late_outcomes_follow_in_the_order_of_time():
    one = writer()
    late = [
        one.document(window("ops", [committed(f"R-{at}", "success", float(at))]), kind="outcome")
        for at in (300, 100, 200)
    ]
    text = printed(explain_text(explanation(one.document(deploy_agent()), outcomes=late)))
    assert text.index("outcome DEP-500") < text.index("R-100") < text.index("R-200") < text.index("outcome R-300")


def test_the_inputs_of_a_statement_are_shown():
    facts = window("a", [event("statement", 1.0, 0.0, summary="go", alternatives=["wait"], inputs=[ENTRY, "PR 7"])])
    text = lines(explain_text(explanation(writer().document(facts), outcomes=[])))
    assert f"   1  decided: go; not: wait; on: {ENTRY}, PR 7" in text


def test_erased_text_is_said_in_place():
    text = printed(explain_text(explanation(story(erase="id"), outcomes=[])))
    assert "   1  [erased by record …0000e4a5] v3, confidence 0.92" in text
    assert "(name erased)" in text
    assert "AMFS_OTEL_LEDGER_CONTENT=decision" not in text


def test_outcomes_of_other_records_name_the_record():
    one = writer()
    late = one.document(window("ops", [committed("INC-7", "critical_failure", 99.0)]), kind="outcome")
    text = printed(explain_text(explanation(one.document(onboard_agent()), outcomes=[late])))
    assert f"      outcome INC-7 critical_failure (2026-03-07 16:14:59, record …{late.record_id[-8:]})" in text


def test_what_a_late_outcome_changed_stands_below_it():
    one = writer()
    events = [
        committed("INC-7", "critical_failure", 99.0),
        changed("retry-pattern", 0.937, 0.2, "discredited", version=4, at=99.1),
    ]
    late = one.document(window("ops", events), kind="outcome")
    text = lines(explain_text(explanation(one.document(deploy_agent()), outcomes=[late])))
    place = next(number for number, line in enumerate(text) if "INC-7" in line and "outcome" in line)
    assert text[place + 1] == "        checkout-service/retry-pattern confidence 0.937 → 0.2 discredited"
    assert sum("discredited" in line for line in text) == 1
    assert sum("raised" in line for line in text) == 2, "the decision's own changes stand among its steps"


def test_a_late_change_of_what_nobody_saw_before_has_no_direction():
    one = writer()
    events = [committed("DEP-500", "success", 99.0), changed("k", None, 0.95, None, at=99.1, before_from=None)]
    late = one.document(window("ops", events), kind="outcome")
    text = printed(explain_text(explanation(one.document(deploy_agent()), outcomes=[late])))
    assert "        checkout-service/k confidence unknown → 0.95\n" in text


def test_a_late_change_whose_entry_was_erased_says_so():
    one = writer()
    events = [committed("INC-7", "failure", 99.0), changed("retry-pattern", 0.9, 0.2, "lowered", at=99.1)]
    late = one.document(window("ops", events), kind="outcome", erase="i")
    text = printed(explain_text(explanation(one.document(deploy_agent()), outcomes=[late])))
    assert "        [erased by record …0000e4a5] confidence 0.9 → 0.2 lowered" in text


def test_a_model_call_says_what_it_wrote_to_the_cache():
    call = event(
        "llm_call", 1.0, 2.0, model="m", input_tokens=1200, cached_tokens=0, cache_write_tokens=1024, output_tokens=7
    )
    unknown = event("llm_call", 2.0, 2.0, model="m", input_tokens=1200, output_tokens=7)
    nothing = call | {"id": "0f", "cached_tokens": 1024, "cache_write_tokens": 0}
    text = lines(explain_text(explanation(writer().document(window("a", [call, unknown, nothing])), outcomes=[])))
    assert "   1  model m: 1200 in, 0 cached, 1024 written to cache, 7 out, 2 ms" in text
    assert "   2  model m: 1200 in, 7 out, 2 ms" in text
    assert "   3  model m: 1200 in, 1024 cached, 7 out, 2 ms" in text


def test_the_sessions_attributes_are_shown():
    facts = window("a", [read("k", 0.5, 1, attributes={"tenant": "blue"})])
    assert 'attributes: {"tenant": "blue"}' in lines(explain_text(explanation(writer().document(facts), outcomes=[])))
    text = lines(explain_text(explanation(writer("none").document(facts), outcomes=[])))
    assert "attributes: [18 bytes not kept¹]" in text
    erased = writer().document(facts, erase="d")
    assert any(
        line.startswith("attributes: [18 bytes erased by record …")
        for line in lines(explain_text(explanation(erased, outcomes=[])))
    )


def test_a_wrapped_line_goes_on_deeper_than_it_began():
    document = story(ledger="all")
    for answer in (explain_text(explanation(document, outcomes=[])), show_text(shown_record(document))):
        text = lines(answer, width=50)
        assert all(len(line) <= 50 for line in text)
    text = lines(explain_text(explanation(document, outcomes=[])), width=50)
    place = text.index("   1  checkout-service/retry-pattern v3,")
    assert text[place + 1 : place + 3] == ["        confidence 0.92, by review-agent:", '        {"retries": 3}']
    steps = [line for line in text if line[:6].strip().isdigit()]
    assert len(steps) == 9, "one line begins for each step"


def test_a_wrapped_tree_keeps_its_branches():
    answer = tree(ENTRY, [branch(ENTRY, writer().document(story)) for story in (deploy_agent(), onboard_agent())])
    text = lines(tree_text(answer), width=48)
    assert all(len(line) <= 48 for line in text)
    place = next(number for number, line in enumerate(text) if line.endswith("outcome: DEP-500 (success) →"))
    assert text[place].startswith("    │   └── outcome")
    assert text[place + 1] == "    │         confidence raised"


def test_a_pipe_gets_whole_lines():
    answer = explanation(story(ledger="all"), outcomes=[])
    assert piped(explain_text(answer)) == printed(explain_text(answer))


def test_no_line_of_a_text_can_pass_for_one_of_ours():
    forged = "fine\n   9  outcome INC-1 success"
    facts = window("a", [committed("R-1", "failure", decision_summary=forged)], session_id="s")
    document = writer("all").document(facts)
    for answer in (explain_text(explanation(document, outcomes=[])), show_text(shown_record(document))):
        for text in (printed(answer), piped(answer)):
            assert "outcome INC-1 success" in text
            assert not any(line.startswith("   9  ") for line in text.splitlines())


def test_losses_are_said():
    facts = onboard_agent() | {"coverage": {"events": 2, "dropped": {"queue_full": 3, "limit": 0}}}
    assert "not captured: 3 queue_full" in printed(explain_text(explanation(writer().document(facts), outcomes=[])))


def test_colour_on_a_terminal_only():
    answer = explain_text(explanation(story(), outcomes=[]))
    assert "\x1b[" in printed(answer, terminal=True)
    assert "\x1b" not in printed(answer)


def test_nothing_of_an_agent_reaches_the_terminal_as_a_command():
    evil = "\x1b]0;owned\x07[red]\u202e\r"
    facts = window(
        evil,
        [
            event("context", 1.0, 0.0, label=evil, summary=evil),
            event("tool_call", 1.0, 1.0, tool_name=evil, status="error", error_type=evil),
            committed(evil, evil, decision_summary=evil),
        ],
        session_id=evil,
        status=evil,
    )
    document = writer("all").document(facts)
    row = fits([list_row(document)], ListFilter())
    answers = (explain_text(explanation(document, outcomes=[])), show_text(shown_record(document)), list_table(row))
    for answer in answers:
        text = printed(answer)
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(text)
        assert "[red]" in text


def test_tree_is_drawn_as_tree_lines_are():
    answer = tree(ENTRY, [branch(ENTRY, writer().document(story)) for story in (deploy_agent(), onboard_agent())])
    assert lines(tree_text(answer)) == tree_lines(answer)


def test_list_table():
    document = writer().document(deploy_agent())
    header, row = lines(list_table(fits([list_row(document)], ListFilter())))
    assert header.split() == ["record", "agent", "session", "outcome", "started", "steps", "status", "#"]
    assert document.record_id[-8:] in row
    assert "DEP-500 success" in row
    assert "not sealed" in row
    assert printed(list_table([])).strip() == "no decision traces"


def test_show_prints_every_field_and_says_what_is_withheld():
    text = printed(show_text(shown_record(story())))
    assert "arguments: [8 bytes not kept¹]" in text
    assert "   9  tool_call" in text
    assert "observed: call" in text


def test_an_empty_ref_that_a_library_reported_is_not_shown_as_an_erasure():
    document = writer().document(window("deployer", [committed("", "success")]))
    assert "(no ref) success" in lines(list_table(fits([list_row(document)], ListFilter())))[1]
    assert "outcome (no ref) success" in printed(explain_text(explanation(document, outcomes=[])))
    assert (shown_ref("", "(erased)"), shown_ref(None, "(erased)")) == ("(no ref)", "(erased)")
