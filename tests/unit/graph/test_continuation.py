"""Which trace continues which: a pure function of the records."""

import itertools
import random

import pytest

from amfs_otel.graph.continuation import Stop, continuation_in, continuations, place_of
from amfs_otel.graph.explain import explanation
from amfs_otel.graph.listing import ListFilter, fits, list_row
from amfs_otel.graph.render import explain_text, list_table, show_text
from amfs_otel.graph.showing import shown_record
from tests.support.stories import event, window, writer
from tests.unit.graph.test_render import printed

ONE = writer()


def run(
    at: float, status: str = "complete", session: str | None = "thread-7", erase: str = "", agent: str = "deploy-agent",
    service: str = "deploys", **options,
):  # fmt: skip
    """A decision that started `at` seconds after the first moment."""
    start = 1_772_900_000_000_000 + int(at * 1e6)
    facts = window(
        agent, [event("checkpoint", at, 0.0, label="x")], session_id=session, status=status,
        started_us=start, ended_us=start + 1000, closed_by="run_end", opened_by="langgraph", origin={"service": service},
    )  # fmt: skip
    return ONE.document(facts, at=at + 1, erase=erase, **options)


def joined(*documents):
    """(place of the later, place of the earlier) among the given documents, whatever their order."""
    ids = {one.record_id: place for place, one in enumerate(documents)}
    found = continuations(documents)
    for order in itertools.islice(itertools.permutations(documents), 24):
        assert continuations(order) == found
    return {(ids[later], ids[earlier]) for later, earlier in found.items() if earlier is not None}


def test_a_resumed_run_continues_the_paused_one():
    assert joined(run(0, "paused"), run(60)) == {(1, 0)}


def test_a_run_that_pauses_again_is_a_chain():
    assert joined(run(0, "paused"), run(60, "paused"), run(120)) == {(1, 0), (2, 1)}


def test_only_the_next_run_continues_it():
    assert joined(run(0, "paused"), run(60), run(120)) == {(1, 0)}


@pytest.mark.parametrize("status", ["complete", "incomplete", "interrupted"])
def test_what_was_not_paused_is_not_continued(status):
    assert joined(run(0, status), run(60)) == set()


def test_sessions_are_apart():
    assert joined(run(0, "paused", "thread-7"), run(60, session="thread-8"), run(90, session=None)) == set()


@pytest.mark.parametrize("other", [{"agent": "billing-agent"}, {"service": "billing"}], ids=["agent", "service"])
def test_a_thread_id_that_two_applications_use_joins_nothing_across_them(other):
    one, its = [run(0, "paused"), run(120)], [run(60, "paused", **other), run(180, **other)]
    assert joined(one[0], its[1]) == joined(its[0], one[1]) == set()
    # What the other one did in between takes nothing away.
    assert joined(*one, *its) == {(1, 0), (3, 2)}


def test_the_name_of_a_program_where_nobody_named_the_agent_or_the_service_keeps_nothing_apart():
    def unnamed(start: float, program: str, **options):
        made = run(start, agent=program, service=program, **options)
        made.facts["origin"]["program"] = program
        return made

    assert joined(unnamed(0, "ask.py", status="paused"), unnamed(60, "approve.py")) == {(1, 0)}
    assert joined(unnamed(0, "ask.py", status="paused"), run(60)) == set()


def test_names_of_any_length_and_none_keep_their_places():
    long = "t" * 100_000
    assert joined(run(0, "paused", long), run(60, session=long), run(30, session=long[1:])) == {(1, 0)}
    assert joined(run(0, "paused", service=""), run(60, service="")) == {(1, 0)}


def test_a_trace_that_names_another_continues_that_one():
    first, paused = run(0, "complete"), run(30, "paused")
    named = run(60, refs={"continues": first.record_id})
    assert joined(first, paused, named) == {(2, 0)}


def test_of_two_that_started_at_once_the_id_decides():
    paused, one, other = run(0, "paused"), run(60), run(60)
    first = min(one.record_id, other.record_id)
    found = continuations([other, paused, one])
    assert [later for later, earlier in found.items() if earlier == paused.record_id] == [first]


def test_erased_names_join_nothing():
    assert joined(run(0, "paused", erase="i"), run(60)) == set()
    assert joined(run(0, "paused"), run(60, erase="i")) == set()
    assert place_of(run(0, erase="i")) is None


def test_records_without_a_place_do_no_harm():
    outcome = ONE.document(window("ops", []), kind="outcome")
    assert continuations([outcome]) == {}
    assert continuations([run(0, erase="sidm")]).popitem()[1] is None


def stop(document):
    return Stop(place_of(document), document.facts["status"], document.named_by("continues"))


def test_the_same_whatever_part_of_the_session_is_given():
    """What the store does: some decisions are given, their neighbours stand beside."""
    drawn = random.Random(7)
    session = [run(60 * place, drawn.choice(["paused", "complete"])) for place in range(12)]
    whole = continuations(session)
    for given in range(12):
        beside = [stop(session[place]) for place in (given - 1, given + 1) if 0 <= place < 12]
        part = continuations([session[given]], beside)
        assert part.items() <= whole.items()
        later = session[given + 1].record_id if given < 11 else None
        followers = [later] if later is not None and whole[later] is not None else []
        assert continuation_in(part, session[given].record_id).continued_by == tuple(followers)


def test_answers_say_it():
    paused, resumed = run(0, "paused"), run(60)
    links = continuations([resumed, paused])
    before, after = (continuation_in(links, one.record_id) for one in (paused, resumed))
    assert (before.continues, after.continued_by) == (None, ())
    earlier = explanation(paused, outcomes=[], continuation=before)
    later = explanation(resumed, outcomes=[], continuation=after, before=[paused])
    assert (earlier["continues"], earlier["continued_by"]) == (None, [resumed.record_id])
    assert (later["continues"], later["continued_by"]) == (paused.record_id, [])
    assert f"continues …{paused.record_id[-8:]}" in printed(explain_text(later))
    assert f"continued by …{resumed.record_id[-8:]}" in printed(explain_text(earlier))
    assert f"continued by …{resumed.record_id[-8:]}" in printed(show_text(shown_record(paused, (), before)))
    row = list_row(resumed) | {"continues": after.continues}
    assert f"complete, continues …{paused.record_id[-8:]}" in printed(list_table(fits([row], ListFilter())))


def test_without_a_store_a_record_says_what_it_names():
    first = run(0)
    named = run(60, refs={"continues": first.record_id})
    assert explanation(named, outcomes=[])["continues"] == first.record_id
    assert shown_record(named)["continues"] == first.record_id
    assert list_row(named)["continues"] == first.record_id
